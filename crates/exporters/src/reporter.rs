//! Publishes the metrics to the recorder of the crate `metrics`.

use std::time::Duration;

use metrics::{Key, Label, Level, Metadata, Recorder, Unit, with_recorder};
use tourbillon::{Handle, time::interval};

use crate::{
    families::{FAMILIES, Family, Kind, SECONDS, Value},
    text::each_bucket,
};

/// The default time between two reports.
const INTERVAL: Duration = Duration::from_secs(30);

/// Where all our metrics come from, for recorders that filter by it.
const METADATA: Metadata<'static> =
    Metadata::new("tourbillon", Level::INFO, Some("tourbillon_exporters"));

/// A builder of a [`RuntimeMetricsReporter`], which publishes a runtime's metrics to the recorder
/// of the crate [`metrics`]. Its methods have the names of those of tokio-metrics.
///
/// The metrics have the names and labels that [`prometheus`](crate::prometheus) gives them. Some
/// differ in kind, because the crate's counters are whole numbers, and its histograms take each
/// value by itself:
///
/// - A counter of seconds is a gauge: `tourbillon_worker_busy_seconds_total`,
///   `tourbillon_group_busy_seconds_total` and `tourbillon_throttled_seconds_total`.
/// - The histogram of lateness is a counter `…_bucket` for each bucket, with the label `le`, a
///   counter `…_count`, and a gauge `…_sum`. They are exact, and cost the same however many timers
///   there are. Queries for Prometheus such as `histogram_quantile` work as they do on a histogram.
///
/// If the runtime has a [name](tourbillon::runtime::Builder::name), all metrics have the label
/// `runtime` with that name. Give names to runtimes that share a recorder.
///
/// ```
/// use std::time::Duration;
/// use metrics_exporter_prometheus::PrometheusBuilder;
/// use tourbillon::Runtime;
/// use tourbillon_exporters::RuntimeMetricsReporterBuilder;
///
/// // The program's recorder. Any other one will do.
/// let recorder = PrometheusBuilder::new().install_recorder().unwrap();
///
/// let runtime = Runtime::new().unwrap();
/// let reporter = RuntimeMetricsReporterBuilder::default().with_interval(Duration::from_secs(5));
/// runtime.spawn(reporter.describe_and_run());
/// # while !recorder.render().contains("tourbillon_workers ") {
/// #     std::thread::yield_now();
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it does nothing until it is built and run"]
pub struct RuntimeMetricsReporterBuilder {
    interval: Duration,
}

impl Default for RuntimeMetricsReporterBuilder {
    fn default() -> Self {
        Self { interval: INTERVAL }
    }
}

impl RuntimeMetricsReporterBuilder {
    /// Sets the time between two reports. The default is 30 s.
    ///
    /// A recorder that is read more often shows the values of the last report.
    pub fn with_interval(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Describes all metrics to the current recorder: the unit and the meaning of each.
    ///
    /// Some recorders take a description only once. If several runtimes report, describe the
    /// metrics with the first one.
    pub fn describe(self) -> Self {
        with_recorder(|recorder| {
            FAMILIES
                .iter()
                .for_each(|family| describe(recorder, family))
        });
        self
    }

    /// Builds a reporter for the runtime that the calling thread is in.
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime.
    #[track_caller]
    pub fn build(self) -> RuntimeMetricsReporter {
        self.build_with_handle(&Handle::current())
    }

    /// Builds a reporter for the runtime of `handle`.
    pub fn build_with_handle(self, handle: &Handle) -> RuntimeMetricsReporter {
        RuntimeMetricsReporter {
            interval: self.interval,
            handle: handle.clone(),
        }
    }

    /// [Describes](Self::describe) the metrics, and then reports those of the current runtime at
    /// each interval. Spawn it as a task.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled outside of a runtime.
    pub async fn describe_and_run(self) {
        self.describe().build().run().await;
    }

    /// Reports the metrics of the current runtime at each interval, without describing them.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled outside of a runtime.
    pub async fn run_without_describing(self) {
        self.build().run().await;
    }
}

/// Publishes a runtime's metrics to the recorder of the crate `metrics`. See
/// [`RuntimeMetricsReporterBuilder`].
#[derive(Clone, Debug)]
pub struct RuntimeMetricsReporter {
    interval: Duration,
    handle: Handle,
}

impl RuntimeMetricsReporter {
    /// Publishes the present metrics once, to the thread's current recorder.
    ///
    /// It may also be called after the runtime has ended. The gauges of its workers then keep the
    /// values of the last report.
    ///
    /// ```
    /// use metrics_exporter_prometheus::PrometheusBuilder;
    /// use tourbillon::runtime::Builder;
    /// use tourbillon_exporters::RuntimeMetricsReporterBuilder;
    ///
    /// let recorder = PrometheusBuilder::new().build_recorder();
    /// let runtime = Builder::new().worker_threads(2).build().unwrap();
    /// let builder = RuntimeMetricsReporterBuilder::default();
    /// let mut reporter = builder.build_with_handle(runtime.handle());
    /// metrics::with_local_recorder(&recorder, || reporter.run_once());
    /// assert!(recorder.handle().render().contains("\ntourbillon_workers 2\n"));
    /// ```
    pub fn run_once(&mut self) {
        let metrics = self.handle.metrics();
        let runtime = self.handle.name().map(|name| ("runtime", name));
        let runtime = runtime.as_slice();
        with_recorder(|recorder| {
            for family in FAMILIES {
                family.samples(&metrics, &mut |labels, value| {
                    let labels = [runtime, labels].concat();
                    publish(recorder, family, &labels, value);
                });
            }
        });
    }

    /// Publishes the metrics at once, and then again at each interval. Spawn it as a task of the
    /// runtime, or of another one.
    ///
    /// # Panics
    ///
    /// The future panics if it is polled outside of a runtime.
    pub async fn run(mut self) {
        let mut interval = interval(self.interval);
        loop {
            interval.tick().await;
            self.run_once();
        }
    }
}

/// The suffixes of the parts of a histogram.
const BUCKET: &str = "_bucket";
const COUNT: &str = "_count";
const SUM: &str = "_sum";

/// Describes a metric, or the parts of a histogram.
fn describe(recorder: &dyn Recorder, family: &Family) {
    let unit = match family.unit {
        SECONDS => Unit::Seconds,
        _ => Unit::Count,
    };
    let (name, help) = (family.name, family.help);
    match family.kind {
        Kind::Counter if unit == Unit::Count => {
            recorder.describe_counter(name.into(), Some(unit), help.into());
        }
        Kind::Counter | Kind::Gauge => {
            recorder.describe_gauge(name.into(), Some(unit), help.into());
        }
        Kind::Histogram => {
            for part in [BUCKET, COUNT] {
                let name = format!("{name}{part}");
                recorder.describe_counter(name.into(), Some(Unit::Count), help.into());
            }
            recorder.describe_gauge(format!("{name}{SUM}").into(), Some(unit), help.into());
        }
    }
}

/// Publishes one sample.
fn publish(recorder: &dyn Recorder, family: &Family, labels: &[(&str, &str)], value: Value<'_>) {
    let key = |part: &str, more: &[(&str, &str)]| {
        let labels = labels.iter().chain(more);
        let labels = labels.map(|&(name, value)| Label::new(name.to_owned(), value.to_owned()));
        Key::from_parts(format!("{}{part}", family.name), labels.collect::<Vec<_>>())
    };
    let counter = |key: &Key, number| recorder.register_counter(key, &METADATA).absolute(number);
    let gauge = |key: &Key, number: f64| recorder.register_gauge(key, &METADATA).set(number);
    match value {
        Value::Number(number) if family.kind == Kind::Counter => counter(&key("", &[]), number),
        Value::Number(number) => gauge(&key("", &[]), number as f64),
        Value::Seconds(seconds) => gauge(&key("", &[]), seconds),
        Value::Lateness(late) => {
            let count = each_bucket(late, |le, below| {
                counter(&key(BUCKET, &[("le", le)]), below);
            });
            counter(&key(COUNT, &[]), count);
            gauge(&key(SUM, &[]), late.sum().as_secs_f64());
        }
    }
}
