//! The metrics for OpenTelemetry.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, AsyncInstrumentBuilder, Meter},
};
use tourbillon::{Handle, metrics::RuntimeMetrics, runtime::WeakHandle};

use crate::{
    families::{FAMILIES, Family, Kind, SECONDS, Samples, Value, Visit},
    samples::{STAGES, lateness_by_stage},
    text::each_bucket,
};

/// Registers instruments on `meter` that observe the runtime of `handle`. The program's exporter
/// then reads the runtime's counters whenever it collects; nothing runs in between.
///
/// ```
/// use opentelemetry::metrics::MeterProvider;
/// use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
/// use tourbillon::Runtime;
/// use tourbillon_exporters::observe_runtime;
///
/// // The program's exporter. Any other one will do.
/// let exporter = InMemoryMetricExporter::default();
/// let reader = PeriodicReader::builder(exporter.clone()).build();
/// let provider = SdkMeterProvider::builder().with_reader(reader).build();
///
/// let runtime = Runtime::new().unwrap();
/// observe_runtime(runtime.handle(), &provider.meter("tourbillon"));
///
/// provider.force_flush().unwrap();
/// let metrics = exporter.get_finished_metrics().unwrap();
/// let scope = metrics[0].scope_metrics().next().unwrap();
/// assert!(scope.metrics().any(|metric| metric.name() == "tourbillon.timers_armed"));
/// ```
///
/// The metrics are those of [`prometheus`](crate::prometheus), with names as OpenTelemetry writes
/// them:
///
/// | Prometheus | OpenTelemetry |
/// |---|---|
/// | `tourbillon_timers_armed_total` | `tourbillon.timers_armed`, a counter in `{timer}` |
/// | `tourbillon_timers_pending` | `tourbillon.timers_pending`, an up-down counter in `{timer}` |
/// | `tourbillon_worker_busy_seconds_total` | `tourbillon.worker_busy`, a counter in `s` |
/// | `tourbillon_timer_lateness_seconds_bucket` | the counter `tourbillon.timer_lateness.bucket` |
///
/// A name has the namespace `tourbillon`, and neither the unit nor `_total`: the instrument says
/// both. An exporter to Prometheus adds them again, and so returns to the names on the left, except
/// for those of the histogram. Labels become attributes.
///
/// OpenTelemetry has no histogram that is observed. One that records each value would cost a call
/// for each timer. So the histogram of lateness is three counters: `.count` and `.sum` of each
/// worker, and `.bucket` with the attribute `le`: how many timers were less late than that many
/// seconds, over all workers. They are exact. (By worker, the buckets of 24 workers would be more
/// than the 2,000 sets of attributes that the SDK keeps of an instrument.)
///
/// If the runtime has a [name](tourbillon::runtime::Builder::name), all metrics have the attribute
/// `runtime` with that name. Give names to runtimes that share a meter.
///
/// The instruments keep neither the runtime running nor its memory: they observe nothing once the
/// runtime and all of its handles are gone. Call this once for each runtime and meter, since the
/// crate `opentelemetry` cannot take instruments back.
pub fn observe_runtime(handle: &Handle, meter: &Meter) {
    let source = Arc::new(Source {
        runtime: handle.downgrade(),
        last: Mutex::default(),
    });
    let mut readers = 0..;
    let mut reader = |samples| Reader {
        source: source.clone(),
        number: readers.next().unwrap_or_default(),
        samples,
    };
    for family in FAMILIES {
        let name = name(family);
        match family.kind {
            Kind::Counter if family.unit == SECONDS => {
                seconds(meter, family, name, reader(family.samples));
            }
            Kind::Counter => counter(meter, family, name, reader(family.samples)),
            Kind::Gauge => {
                let builder = meter.i64_observable_up_down_counter(name);
                let reader = reader(family.samples);
                described(builder, family.unit, family.help, reader, |value| {
                    let number = number(value)?;
                    Some(i64::try_from(number).unwrap_or(i64::MAX))
                })
                .build();
            }
            Kind::Histogram => {
                counter(meter, family, format!("{name}.bucket"), reader(buckets));
                counter(meter, family, format!("{name}.count"), reader(counts));
                seconds(meter, family, format!("{name}.sum"), reader(sums));
            }
        }
    }
}

/// Returns the name of a metric for OpenTelemetry: with a namespace, and without what the
/// instrument says.
fn name(family: &Family) -> String {
    let name = family.name.trim_end_matches("_total");
    let name = name.trim_end_matches("_seconds");
    name.replacen('_', ".", 1)
}

/// Registers a counter of things.
fn counter(meter: &Meter, family: &Family, name: String, reader: Reader) {
    let unit = match family.unit {
        SECONDS => "{timer}",
        unit => unit,
    };
    let builder = meter.u64_observable_counter(name);
    described(builder, unit, family.help, reader, number).build();
}

/// Registers a counter of seconds.
fn seconds(meter: &Meter, family: &Family, name: String, reader: Reader) {
    let builder = meter.f64_observable_counter(name);
    described(builder, SECONDS, family.help, reader, |value| match value {
        Value::Seconds(seconds) => Some(seconds),
        _ => None,
    })
    .build();
}

fn number(value: Value<'_>) -> Option<u64> {
    match value {
        Value::Number(number) => Some(number),
        _ => None,
    }
}

/// Adds unit, description and callback to an instrument. `value` converts a sample.
fn described<'a, I, M: 'static>(
    builder: AsyncInstrumentBuilder<'a, I, M>,
    unit: &'static str,
    help: &'static str,
    reader: Reader,
    value: fn(Value<'_>) -> Option<M>,
) -> AsyncInstrumentBuilder<'a, I, M> {
    builder
        .with_unit(unit)
        .with_description(help)
        .with_callback(move |instrument: &dyn AsyncInstrument<M>| {
            reader.read(|attributes, sample| {
                if let Some(value) = value(sample) {
                    instrument.observe(value, attributes);
                }
            });
        })
}

/// Visits the buckets of the lateness over all workers, by stage.
fn buckets(metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
    let stages = [
        metrics.wake_lateness(),
        metrics.queue_lateness(),
        metrics.rescued_lateness(),
    ];
    for (stage, late) in STAGES.into_iter().zip(&stages) {
        each_bucket(late, |le, below| {
            visit(&[("stage", stage), ("le", le)], Value::Number(below));
        });
    }
}

/// Visits the number of timers whose lateness was recorded, by worker and stage.
fn counts(metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
    lateness_by_stage(metrics, &mut |labels, value| {
        if let Value::Lateness(late) = value {
            visit(labels, Value::Number(late.count()));
        }
    });
}

/// Visits the sum of the lateness, by worker and stage.
fn sums(metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
    lateness_by_stage(metrics, &mut |labels, value| {
        if let Value::Lateness(late) = value {
            visit(labels, Value::Seconds(late.sum().as_secs_f64()));
        }
    });
}

/// The longest time for which instruments share a snapshot.
const SHARED: Duration = Duration::from_secs(1);

/// The snapshots of a runtime, which its instruments share: one for each collection, so that a
/// collection does not read all workers once for each instrument.
struct Source {
    runtime: WeakHandle,
    last: Mutex<Option<Snapshot>>,
}

struct Snapshot {
    metrics: Arc<RuntimeMetrics>,
    taken: Instant,
    /// The numbers of the instruments that have read it.
    readers: Vec<usize>,
}

impl Source {
    /// Returns a snapshot that instrument `number` has not read, or `None` if the runtime is gone.
    ///
    /// An instrument that has read the last snapshot begins a new collection.
    fn metrics(&self, number: usize) -> Option<Arc<RuntimeMetrics>> {
        let handle = self.runtime.upgrade()?;
        // Not the clock of the runtime, which may be paused.
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &mut *last {
            let is_fresh = now.saturating_duration_since(last.taken) < SHARED;
            if is_fresh && !last.readers.contains(&number) {
                last.readers.push(number);
                return Some(last.metrics.clone());
            }
        }
        let metrics = Arc::new(handle.metrics());
        *last = Some(Snapshot {
            metrics: metrics.clone(),
            taken: now,
            readers: vec![number],
        });
        Some(metrics)
    }

    /// Returns the attribute with the name of the runtime, if it has one.
    fn name(&self) -> Option<KeyValue> {
        let handle = self.runtime.upgrade()?;
        Some(KeyValue::new("runtime", handle.name()?.to_owned()))
    }
}

/// What one instrument observes.
struct Reader {
    source: Arc<Source>,
    number: usize,
    samples: Samples,
}

impl Reader {
    /// Calls `observe` with the attributes and the value of each sample.
    fn read(&self, mut observe: impl FnMut(&[KeyValue], Value<'_>)) {
        let Some(metrics) = self.source.metrics(self.number) else {
            return;
        };
        let runtime = self.source.name();
        (self.samples)(&metrics, &mut |labels, value| {
            let labels = labels
                .iter()
                .map(|&(name, value)| KeyValue::new(name.to_owned(), value.to_owned()));
            let attributes: Vec<_> = runtime.iter().cloned().chain(labels).collect();
            observe(&attributes, value);
        });
    }
}
