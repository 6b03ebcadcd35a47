//! The metrics under the names of other systems: the recorder of the crate `metrics`, and
//! OpenTelemetry. Both have what Prometheus' text has.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use metrics_exporter_prometheus::PrometheusBuilder;
use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
    data::{AggregatedMetrics, Metric, MetricData},
};
use tourbillon::{Runtime, runtime::Builder, task::Group, time::sleep};
use tourbillon_exporters::{
    RuntimeMetricsReporter, RuntimeMetricsReporterBuilder, observe_runtime, prometheus,
};
use tourbillon_support::{alarm, eventually, process::alone};

const MS: Duration = Duration::from_millis(1);

/// Builds a runtime that has done something of each kind.
fn busy(builder: &mut Builder) -> Runtime {
    let runtime = builder.worker_threads(2).build().unwrap();
    Group::builder("batch").build_on(runtime.handle()).unwrap();
    let done = runtime.spawn(async {
        for _ in 0..20 {
            sleep(MS).await;
        }
        drop(tourbillon::after(MS, || ()));
        tourbillon::after(Duration::from_secs(3600), || ()).cancel();
    });
    runtime.block_on(done).unwrap();
    eventually("it has run", || runtime.metrics().total().callbacks() == 1);
    runtime
}

/// The name of a sample with its labels, in order of their names.
type Key = (String, BTreeMap<String, String>);

/// Returns the samples of a text for Prometheus.
fn samples(text: &str) -> BTreeMap<Key, f64> {
    let lines = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty());
    let sample = |line: &str| {
        let (key, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
        let labels = labels.strip_suffix('}').unwrap().split(',');
        let labels = labels.filter(|label| !label.is_empty()).map(|label| {
            let (name, value) = label.split_once('=').unwrap();
            (name.to_owned(), value.trim_matches('"').to_owned())
        });
        ((name.to_owned(), labels.collect()), value.parse().unwrap())
    };
    lines.map(sample).collect()
}

/// Returns the words that follow `prefix` in the lines of a text for Prometheus.
fn lines<'a>(text: &'a str, prefix: &str) -> BTreeSet<&'a str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(prefix))
        .collect()
}

/// Returns the text of a recorder to which `reporter` has reported once.
fn reported(reporter: &mut RuntimeMetricsReporter) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        _ = RuntimeMetricsReporterBuilder::default().describe();
        reporter.run_once();
    });
    recorder.handle().render()
}

#[test]
fn a_recorder_gets_the_samples_of_prometheus() {
    let _alarm = alarm();
    let runtime = busy(&mut Builder::new());
    let mut reporter = RuntimeMetricsReporterBuilder::default().build_with_handle(runtime.handle());
    // Some counters grow all the time. All others are compared.
    let before = samples(&prometheus(&runtime.metrics()));
    let text = reported(&mut reporter);
    let after = samples(&prometheus(&runtime.metrics()));
    let recorded = samples(&text);
    let keys = |samples: &BTreeMap<Key, f64>| samples.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&recorded), keys(&after));
    for (key, value) in &recorded {
        let (least, most) = (before[key].min(after[key]), before[key].max(after[key]));
        assert!(
            (least..=most).contains(value),
            "{key:?}: {value}, {least} to {most}"
        );
    }
    let armed = recorded
        .iter()
        .filter(|it| it.0.0 == "tourbillon_timers_armed_total");
    assert_eq!(
        armed.map(|it| *it.1).sum::<f64>(),
        runtime.metrics().total().armed() as f64
    );
    // Descriptions and kinds. Without a rescue, `rescued_total` has no samples. A counter of the
    // facade cannot count times.
    let text_of_prometheus = prometheus(&runtime.metrics());
    let times = [
        "tourbillon_worker_busy_seconds_total ",
        "tourbillon_group_busy_seconds_total ",
        "tourbillon_throttled_seconds_total ",
    ];
    for (what, others) in [("# HELP ", &[][..]), ("# TYPE ", &times[..])] {
        let (ours, theirs) = (lines(&text_of_prometheus, what), lines(&text, what));
        let missing = ours.difference(&theirs).filter(|line| {
            let always = [
                "tourbillon_timer_lateness_seconds ",
                "tourbillon_rescued_total ",
            ];
            !always
                .iter()
                .chain(others)
                .any(|name| line.starts_with(name))
        });
        assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&str>::new());
    }
}

#[test]
fn a_recorder_gets_the_name_of_the_runtime() {
    let _alarm = alarm();
    let runtime = busy(Builder::new().name("shop"));
    let mut reporter = RuntimeMetricsReporterBuilder::default().build_with_handle(runtime.handle());
    let recorded = samples(&reported(&mut reporter));
    assert!(
        recorded
            .keys()
            .all(|(_, labels)| labels["runtime"] == "shop")
    );
    drop(runtime);
    // A report after the end of the runtime shows that end.
    let recorded = samples(&reported(&mut reporter));
    let workers = recorded.iter().find(|it| it.0.0 == "tourbillon_workers");
    assert_eq!(workers.map(|it| *it.1), Some(0.0));
}

#[test]
fn a_task_reports_at_each_interval() {
    alone(|| {
        let _alarm = alarm();
        let recorder = PrometheusBuilder::new().install_recorder().unwrap();
        let runtime = busy(&mut Builder::new());
        let builder = RuntimeMetricsReporterBuilder::default().with_interval(5 * MS);
        let task = runtime.spawn(builder.describe_and_run());
        let fired = || {
            let samples = samples(&recorder.render());
            let fired = samples.iter().filter(|((name, labels), _)| {
                let is_over = name == "tourbillon_timers_over_total";
                is_over && labels.get("outcome").is_some_and(|it| it == "fired")
            });
            fired.map(|it| *it.1).sum::<f64>()
        };
        eventually("it has reported", || fired() > 0.0);
        let first = fired();
        runtime.block_on(runtime.spawn(sleep(MS))).unwrap();
        eventually("it reports again", || fired() > first);
        assert!(
            recorder
                .render()
                .contains("# HELP tourbillon_workers Workers; ")
        );
        task.abort();
    });
}

/// A meter whose metrics are collected into memory.
struct Collector {
    provider: SdkMeterProvider,
    exporter: InMemoryMetricExporter,
}

/// A metric: its unit, whether it is a counter, and its points.
type Collected = (String, bool, BTreeMap<BTreeMap<String, String>, f64>);

impl Collector {
    fn new() -> Self {
        let exporter = InMemoryMetricExporter::default();
        // The reader collects when it is asked to.
        let reader = PeriodicReader::builder(exporter.clone());
        let reader = reader.with_interval(Duration::from_secs(36_000)).build();
        let provider = SdkMeterProvider::builder().with_reader(reader).build();
        Self { provider, exporter }
    }

    fn observe(&self, runtime: &Runtime) {
        observe_runtime(runtime.handle(), &self.provider.meter("test"));
    }

    fn collect(&self) -> BTreeMap<String, Collected> {
        self.exporter.reset();
        self.provider.force_flush().unwrap();
        let all = self.exporter.get_finished_metrics().unwrap();
        let scopes = all.iter().flat_map(|resource| resource.scope_metrics());
        let metrics = scopes.flat_map(|scope| scope.metrics());
        metrics
            .map(|it| (it.name().to_owned(), collected(it)))
            .collect()
    }
}

fn collected(metric: &Metric) -> Collected {
    assert!(!metric.description().is_empty(), "{metric:?}");
    macro_rules! points {
        ($data:expr) => {{
            let MetricData::Sum(sum) = $data else {
                panic!("{metric:?}");
            };
            let points = sum.data_points().map(|point| {
                let attributes = point.attributes();
                let attributes = attributes.map(|it| (it.key.to_string(), it.value.to_string()));
                (attributes.collect(), point.value() as f64)
            });
            (
                metric.unit().to_owned(),
                sum.is_monotonic(),
                points.collect(),
            )
        }};
    }
    match metric.data() {
        AggregatedMetrics::U64(data) => points!(data),
        AggregatedMetrics::I64(data) => points!(data),
        AggregatedMetrics::F64(data) => points!(data),
    }
}

/// Returns the name that Prometheus has for a metric of OpenTelemetry. The rules are those of
/// OpenTelemetry's specification: dots become underscores, the unit is added unless it is in
/// braces, and counters end in `_total`.
fn translated(name: &str, (unit, is_counter, _): &Collected) -> String {
    let unit = if unit == "s" { "_seconds" } else { "" };
    let total = if *is_counter { "_total" } else { "" };
    format!("{}{unit}{total}", name.replace('.', "_"))
}

#[test]
fn opentelemetry_has_the_samples_of_prometheus() {
    let _alarm = alarm();
    let runtime = busy(&mut Builder::new());
    let collector = Collector::new();
    collector.observe(&runtime);
    let before = samples(&prometheus(&runtime.metrics()));
    let all = collector.collect();
    let text_of_prometheus = prometheus(&runtime.metrics());
    let after = samples(&text_of_prometheus);
    // 1. The histogram of lateness is three counters.
    let lateness = "tourbillon_timer_lateness";
    let (histogram, rest): (Vec<_>, Vec<_>) = all
        .iter()
        .partition(|it| it.0.starts_with("tourbillon.timer_lateness."));
    let parts: Vec<_> = histogram
        .iter()
        .map(|it| (&**it.0, &*it.1.0, it.1.1))
        .collect();
    assert_eq!(
        parts,
        [
            ("tourbillon.timer_lateness.bucket", "{timer}", true),
            ("tourbillon.timer_lateness.count", "{timer}", true),
            ("tourbillon.timer_lateness.sum", "s", true),
        ]
    );
    let sum = |name: &str, label: (&str, &str)| {
        let is_of =
            |labels: &BTreeMap<String, String>| labels.get(label.0).is_some_and(|it| it == label.1);
        let points = all[name].2.iter().filter(|it| is_of(it.0));
        points.map(|it| *it.1).sum::<f64>()
    };
    let wake = runtime.metrics().wake_lateness();
    let stage = ("stage", "wake");
    assert_eq!(
        sum("tourbillon.timer_lateness.count", stage),
        wake.count() as f64
    );
    // The order of adding changes the last digits.
    let late = sum("tourbillon.timer_lateness.sum", stage);
    assert!((late - wake.sum().as_secs_f64()).abs() < 1e-9, "{late}");
    let bucket = &all["tourbillon.timer_lateness.bucket"].2;
    let label = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let last = BTreeMap::from([label("stage", "wake"), label("le", "+Inf")]);
    assert_eq!(bucket[&last], wake.count() as f64);
    assert_eq!(bucket.len(), 3 * 28);
    // 2. All others have the kind, the labels and the values that Prometheus has, under the names
    //    that an exporter to Prometheus gives them.
    let mut found = BTreeSet::new();
    for (name, metric) in rest {
        let translated = translated(name, metric);
        let kind = if metric.1 { "counter" } else { "gauge" };
        let line = format!("# TYPE {translated} {kind}\n");
        assert!(text_of_prometheus.contains(&line), "{line}");
        for (attributes, value) in &metric.2 {
            let key = (translated.clone(), attributes.clone());
            let (a, b) = (before[&key], after[&key]);
            assert!((a.min(b)..=a.max(b)).contains(value), "{key:?}: {value}");
            found.insert(key);
        }
    }
    let expected = after.into_keys().filter(|key| !key.0.starts_with(lateness));
    assert_eq!(found, expected.collect());
}

#[test]
fn each_collection_of_opentelemetry_is_current() {
    let _alarm = alarm();
    let runtime = busy(Builder::new().name("shop"));
    let collector = Collector::new();
    collector.observe(&runtime);
    for spawned in 2..10 {
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let all = collector.collect();
        let points = &all["tourbillon.spawned_tasks"].2;
        let shop = BTreeMap::from([("runtime".to_owned(), "shop".to_owned())]);
        assert_eq!(*points, BTreeMap::from([(shop, f64::from(spawned))]));
    }
}

#[test]
fn instruments_of_opentelemetry_keep_no_runtime() {
    let _alarm = alarm();
    let collector = Collector::new();
    let runtime = busy(&mut Builder::new());
    let handle = runtime.handle().clone();
    collector.observe(&runtime);
    drop(runtime);
    // While there is a handle, the counters can be read.
    assert!(
        collector.collect()["tourbillon.spawned_tasks"]
            .2
            .values()
            .eq(&[1.0])
    );
    drop(handle);
    eventually("nothing is observed", || {
        collector
            .collect()
            .values()
            .all(|metric| metric.2.is_empty())
    });
}
