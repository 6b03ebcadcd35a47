//! The metrics for OpenTelemetry, beside those for Prometheus.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use opentelemetry::metrics::MeterProvider;
use opentelemetry_sdk::metrics::{
    InMemoryMetricExporter, PeriodicReader, SdkMeterProvider,
    data::{AggregatedMetrics, Metric, MetricData},
};
use tourbillon::{Runtime, time::sleep};
use tourbillon_jobs::{Attempt, Backoff, Failure, Node, Queue, sqlite::Sqlite};
use tourbillon_jobs_server::{observe, prometheus};
use tourbillon_support::{PATIENCE, dir::Dir};

/// The samples of a metric, by their attributes as Prometheus writes them.
type Points = BTreeMap<String, f64>;

async fn handle(attempt: Attempt) -> Result<(), Failure> {
    match &*attempt.key {
        "fails" => Err(Failure::give_up("on purpose")),
        _ => Ok(()),
    }
}

/// Returns the points of a metric, its unit, and whether it is a counter.
fn collected(metric: &Metric) -> (Points, String, bool) {
    assert!(!metric.description().is_empty(), "{metric:?}");
    macro_rules! points {
        ($data:expr) => {{
            let MetricData::Sum(sum) = $data else {
                panic!("{metric:?}");
            };
            let points = sum.data_points().map(|point| {
                let attributes = point.attributes();
                let mut labels: Vec<_> = attributes
                    .map(|it| format!("{}=\"{}\"", it.key, it.value))
                    .collect();
                labels.sort();
                (labels.join(","), point.value() as f64)
            });
            (points.collect(), sum.is_monotonic())
        }};
    }
    let (points, is_counter) = match metric.data() {
        AggregatedMetrics::U64(data) => points!(data),
        AggregatedMetrics::I64(data) => points!(data),
        AggregatedMetrics::F64(data) => points!(data),
    };
    (points, metric.unit().to_owned(), is_counter)
}

/// Returns the samples of Prometheus' text, by name.
fn samples(text: &str) -> BTreeMap<String, Points> {
    let mut all = BTreeMap::<_, Points>::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let mut labels: Vec<_> = labels.trim_end_matches('}').split(',').collect();
        labels.sort();
        let points = all.entry(name.to_owned()).or_default();
        points.insert(labels.join(","), value.parse().unwrap());
    }
    all
}

/// Returns the name that Prometheus' text has for a metric of OpenTelemetry.
fn translated(name: &str, text: &str) -> String {
    let name = name.replace('.', "_");
    for part in ["_bucket", "_count", "_sum"] {
        if let Some(histogram) = name.strip_suffix(part) {
            return format!("{histogram}_seconds{part}");
        }
    }
    let total = format!("{name}_total");
    match text.contains(&format!("# TYPE {total} counter\n")) {
        true => total,
        false => name,
    }
}

#[test]
fn opentelemetry_has_the_samples_of_prometheus() {
    let dir = Dir::new();
    let exporter = InMemoryMetricExporter::default();
    // The reader collects when it is asked to.
    let reader = PeriodicReader::builder(exporter.clone());
    let reader = reader.with_interval(Duration::from_secs(36_000)).build();
    let provider = SdkMeterProvider::builder().with_reader(reader).build();
    Runtime::new().unwrap().block_on(async {
        let queue = Queue::new(Sqlite::open(dir.path("jobs.db")).unwrap());
        let node = Node::builder(queue.clone())
            .backoff(Backoff {
                attempts: 1,
                ..Backoff::default()
            })
            .start(handle);
        let (metrics, its_queue) = (node.metrics_reader(), queue.clone());
        observe(&provider.meter("test"), move || {
            (metrics.read(), its_queue.stats())
        });
        for key in ["one", "two", "fails"] {
            let after = Duration::ZERO;
            queue.schedule(key, after, "payload").await.unwrap();
        }
        let begun = Instant::now();
        while node
            .metrics()
            .kinds
            .iter()
            .map(|it| it.done + it.dead)
            .sum::<u64>()
            < 3
        {
            assert!(begun.elapsed() < PATIENCE, "{:?}", node.metrics());
            sleep(Duration::from_millis(2)).await;
        }
        // After that it makes no more requests, so that nothing changes.
        let metrics = node.metrics_reader();
        node.stop(Duration::from_secs(60)).await;
        provider.force_flush().unwrap();
        let text = prometheus(&metrics.read(), &queue.stats());
        let samples = samples(&text);
        let mut found = BTreeMap::new();
        for resource in exporter.get_finished_metrics().unwrap() {
            for metric in resource.scope_metrics().flat_map(|scope| scope.metrics()) {
                let (points, unit, is_counter) = collected(metric);
                let name = translated(metric.name(), &text);
                assert_eq!(
                    unit,
                    if name.ends_with("_sum") { "s" } else { "" },
                    "{name}"
                );
                let is_gauge = text.contains(&format!("# TYPE {name} gauge\n"));
                assert_eq!(is_counter, !is_gauge, "{name}");
                found.insert(name, points);
            }
        }
        assert_eq!(found, samples);
        let of = |name: &str, labels: &str| found[name][labels];
        let ended = "tourbillon_jobs_attempts_ended_total";
        let labels = |outcome| format!("kind=\"\",outcome=\"{outcome}\",queue=\"default\"");
        assert_eq!(of(ended, &labels("done")), 2.0);
        assert_eq!(of(ended, &labels("failed")), 1.0);
        let last = "kind=\"\",le=\"+Inf\",queue=\"default\"";
        assert_eq!(
            of("tourbillon_jobs_start_lateness_seconds_bucket", last),
            3.0
        );
        assert_eq!(
            of("tourbillon_jobs_answers_total", "answer=\"created\""),
            3.0
        );
    });
}
