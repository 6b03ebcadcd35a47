//! The metrics of a node and of a queue for OpenTelemetry.

use std::sync::Arc;

use opentelemetry::{
    KeyValue,
    metrics::{AsyncInstrument, AsyncInstrumentBuilder, Meter},
};
use tourbillon_jobs::{
    node::{Histogram, NodeMetrics},
    queue::QueueStats,
};

use crate::{
    families::{Of, Sink, visit},
    text::buckets,
};

/// The unit of times.
const SECONDS: &str = "s";

/// Registers instruments on `meter` that observe a node and a queue. The program's exporter then
/// reads their numbers whenever it collects, by `read`. Nothing runs in between.
///
/// ```
/// use opentelemetry::metrics::MeterProvider;
/// use opentelemetry_sdk::metrics::{InMemoryMetricExporter, PeriodicReader, SdkMeterProvider};
/// use tourbillon_jobs::{Attempt, Failure, Node, Queue, sqlite::Sqlite};
/// use tourbillon_jobs_server::observe;
///
/// // The program's exporter. Any other one will do.
/// let exporter = InMemoryMetricExporter::default();
/// let reader = PeriodicReader::builder(exporter.clone()).build();
/// let provider = SdkMeterProvider::builder().with_reader(reader).build();
///
/// # let dir = std::env::temp_dir().join(format!("jobs-observe-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&dir)?;
/// # let path = dir.join("jobs.db");
/// # async fn work(_: Attempt) -> Result<(), Failure> { Ok(()) }
/// tourbillon::Runtime::new()?.block_on(async {
///     let queue = Queue::new(Sqlite::open(&path)?);
///     let node = Node::builder(queue.clone()).start(work);
///     let metrics = node.metrics_reader();
///     observe(&provider.meter("jobs"), move || (metrics.read(), queue.stats()));
/// #   provider.force_flush()?;
/// #   node.stop(std::time::Duration::from_secs(10)).await;
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })?;
/// # let metrics = exporter.get_finished_metrics()?;
/// # let scope = metrics[0].scope_metrics().next().unwrap();
/// # assert!(scope.metrics().any(|metric| metric.name() == "tourbillon_jobs.has_lease"));
/// # std::fs::remove_dir_all(&dir)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The metrics are those of [`prometheus`](crate::prometheus). A name has the namespace
/// `tourbillon_jobs`, and neither the unit nor `_total`: the instrument says both. So
/// `tourbillon_jobs_attempts_begun_total` is `tourbillon_jobs.attempts_begun`. Labels become
/// attributes.
///
/// OpenTelemetry has no histogram that is observed. So each is three counters:
/// `tourbillon_jobs.start_lateness.count`, `.sum` in seconds, and `.bucket` with the attribute
/// `le`: how many times were not longer than so many seconds. They are exact.
///
/// The SDK keeps 2,000 sets of attributes of an instrument, so the buckets of 64 kinds, each in one
/// queue.
///
/// What the store has (`live`, `dead`, `paused`) is not there, as a collection does not wait for
/// the store. [`Queue::count`](tourbillon_jobs::Queue::count) has it.
///
/// Call this once for each node and meter, since the crate `opentelemetry` cannot take instruments
/// back. They keep what `read` has.
pub fn observe(
    meter: &Meter,
    read: impl Fn() -> (NodeMetrics, QueueStats) + Send + Sync + 'static,
) {
    // The families are the same whatever the numbers are.
    let mut families = Families::default();
    visit(
        &mut families,
        &NodeMetrics::default(),
        &QueueStats::default(),
    );
    let read = Arc::new(read);
    for (name, of, help) in families.0 {
        let read = read.clone();
        let reader = Reader { name, read };
        let name = name_of(name);
        match of {
            Of::Counter => {
                let builder = meter.u64_observable_counter(name);
                described(builder, "", help, reader, Value::number).build();
            }
            Of::Gauge => {
                let builder = meter.i64_observable_up_down_counter(name);
                described(builder, "", help, reader, |value| {
                    Some(i64::try_from(value.number()?).unwrap_or(i64::MAX))
                })
                .build();
            }
            Of::Histogram => {
                let builder = meter.u64_observable_counter(format!("{name}.bucket"));
                described(builder, "", help, reader.clone(), Value::within).build();
                let builder = meter.u64_observable_counter(format!("{name}.count"));
                described(builder, "", help, reader.clone(), Value::count).build();
                let builder = meter.f64_observable_counter(format!("{name}.sum"));
                described(builder, SECONDS, help, reader, Value::seconds).build();
            }
        }
    }
}

/// Returns the name for OpenTelemetry: with a namespace, and without what the instrument says.
fn name_of(family: &str) -> String {
    let name = family.trim_end_matches("_total");
    let name = name.trim_end_matches("_seconds");
    format!("tourbillon_jobs.{name}")
}

/// Adds unit, description and callback to an instrument. `value` converts a sample.
fn described<'a, I, M: 'static, R>(
    builder: AsyncInstrumentBuilder<'a, I, M>,
    unit: &'static str,
    help: &'static str,
    reader: Reader<R>,
    value: fn(Value) -> Option<M>,
) -> AsyncInstrumentBuilder<'a, I, M>
where
    R: Fn() -> (NodeMetrics, QueueStats) + Send + Sync + 'static,
{
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

/// A number of a sample.
#[derive(Clone, Copy)]
enum Value {
    /// Of a counter or a gauge.
    Number(u64),
    /// Of a bucket of a histogram.
    Within(u64),
    /// How many times a histogram has.
    Count(u64),
    /// The sum of its times.
    Seconds(f64),
}

impl Value {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    fn within(self) -> Option<u64> {
        match self {
            Self::Within(within) => Some(within),
            _ => None,
        }
    }

    fn count(self) -> Option<u64> {
        match self {
            Self::Count(count) => Some(count),
            _ => None,
        }
    }

    fn seconds(self) -> Option<f64> {
        match self {
            Self::Seconds(seconds) => Some(seconds),
            _ => None,
        }
    }
}

/// A sink that notes which families there are.
#[derive(Default)]
struct Families(Vec<(&'static str, Of, &'static str)>);

impl Sink for Families {
    fn family(&mut self, name: &'static str, of: Of, help: &'static str) {
        self.0.push((name, of, help));
    }

    fn sample(&mut self, _: &[(&str, &str)], _: u64) {}

    fn histogram(&mut self, _: &[(&str, &str)], _: &Histogram) {}
}

/// What one instrument observes: a family.
struct Reader<R> {
    name: &'static str,
    read: Arc<R>,
}

impl<R> Clone for Reader<R> {
    fn clone(&self) -> Self {
        let (name, read) = (self.name, self.read.clone());
        Self { name, read }
    }
}

impl<R: Fn() -> (NodeMetrics, QueueStats)> Reader<R> {
    /// Calls `observe` with the attributes and the numbers of each sample of the family.
    fn read(&self, observe: impl FnMut(&[KeyValue], Value)) {
        let (node, queue) = (self.read)();
        let mut samples = Samples {
            wanted: self.name,
            is_wanted: false,
            observe,
        };
        visit(&mut samples, &node, &queue);
    }
}

/// A sink that gives the samples of one family to a closure.
struct Samples<F> {
    wanted: &'static str,
    /// Whether the present family is that one.
    is_wanted: bool,
    observe: F,
}

impl<F: FnMut(&[KeyValue], Value)> Sink for Samples<F> {
    fn family(&mut self, name: &'static str, _: Of, _: &'static str) {
        self.is_wanted = name == self.wanted;
    }

    fn sample(&mut self, labels: &[(&str, &str)], value: u64) {
        if self.is_wanted {
            (self.observe)(&attributes(labels), Value::Number(value));
        }
    }

    fn histogram(&mut self, labels: &[(&str, &str)], times: &Histogram) {
        if !self.is_wanted {
            return;
        }
        let attributes = attributes(labels);
        for (le, within) in buckets(times) {
            let with_bound = [&attributes[..], &[KeyValue::new("le", le)]].concat();
            (self.observe)(&with_bound, Value::Within(within));
        }
        (self.observe)(&attributes, Value::Count(times.count()));
        (self.observe)(&attributes, Value::Seconds(times.sum().as_secs_f64()));
    }
}

fn attributes(labels: &[(&str, &str)]) -> Vec<KeyValue> {
    let attribute =
        |&(name, value): &(&str, &str)| KeyValue::new(name.to_owned(), value.to_owned());
    labels.iter().map(attribute).collect()
}
