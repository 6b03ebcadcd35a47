use std::{collections::HashMap, time::Duration};

use tourbillon::{
    metrics::{LatenessHistogram, RuntimeMetrics},
    runtime::Builder,
    task::Group,
};

use crate::{
    families::Kind,
    openmetrics, prometheus,
    text::{Format, OCTAVES, Text},
};

fn metrics() -> RuntimeMetrics {
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let timer = runtime.handle().after(Duration::from_secs(3600), || ());
    let metrics = runtime.metrics();
    timer.cancel();
    metrics
}

/// Returns the samples of one family.
fn lines<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let is_of = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
    text.lines().filter(is_of).collect()
}

#[test]
fn labels_and_help_are_escaped_as_each_format_wants() {
    for (format, help) in [
        (Format::Prometheus, r#"a \\ "b" \n c"#),
        (Format::OpenMetrics, r#"a \\ \"b\" \n c"#),
    ] {
        let mut text = Text::new(format);
        text.family("g", Kind::Gauge, "a \\ \"b\" \n c");
        text.sample("", &[("x", "a\\b\"c\nd"), ("y", "")], 7);
        let out = text.out;
        let wanted = format!("# HELP g {help}\n# TYPE g gauge\n");
        assert_eq!(
            out,
            wanted + "g{x=\"a\\\\b\\\"c\\nd\",y=\"\"} 7\n",
            "{format:?}"
        );
    }
}

#[test]
fn buckets_are_cumulative_and_the_last_is_the_count() {
    let mut late = LatenessHistogram::default();
    // The last one adds only the start of its bucket to the sum, 206 s.
    let times = [10, 1_023, 1_024, 5_000, 5_000, 1 << 36, u64::MAX / 2];
    for ns in times {
        late.record(Duration::from_nanos(ns));
    }
    let mut text = Text::new(Format::Prometheus);
    text.family("h", Kind::Histogram, "help");
    text.buckets(&[("a", "1"), ("b", "2")], &late);
    let out = text.out;
    let buckets = lines(&out, "h_bucket");
    assert_eq!(buckets.len(), OCTAVES.count() + 1);
    let value = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    let values: Vec<_> = buckets.iter().map(|line| value(line)).collect();
    assert!(values.is_sorted(), "{out}");
    let starts = |line: &str, le: &str| {
        line.starts_with(&format!("h_bucket{{a=\"1\",b=\"2\",le=\"{le}\"}}"))
    };
    assert!(starts(buckets[0], "1.024e-6"), "{out}");
    assert!(starts(buckets[26], "68.719476736"), "{out}");
    assert!(starts(buckets[27], "+Inf"), "{out}");
    // 10 and 1,023 ns are below 1.024 us. The next bounds are 2.048, 4.096 and 8.192 us.
    assert_eq!(values[..4], [2, 3, 3, 5]);
    // Two times are above 68.7 s.
    assert_eq!(values[25..], [5, 5, 7]);
    assert_eq!(lines(&out, "h_count"), ["h_count{a=\"1\",b=\"2\"} 7"]);
    assert_eq!(
        lines(&out, "h_sum"),
        ["h_sum{a=\"1\",b=\"2\"} 274.877919001"]
    );
}

#[test]
fn each_family_is_told_once_and_before_its_samples() {
    let metrics = metrics();
    for (format, text) in [
        (Format::Prometheus, prometheus(&metrics)),
        (Format::OpenMetrics, openmetrics(&metrics)),
    ] {
        let mut kinds = HashMap::new();
        let mut family = ("", "");
        let mut families = 0;
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = (help.split_once(' ').unwrap().0, "");
                families += 1;
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert_eq!(name, family.0);
                family.1 = kind;
                assert_eq!(kinds.insert(name, kind), None, "{name} comes twice");
            } else if line != "# EOF" {
                let name = line.split(['{', ' ']).next().unwrap();
                let suffix = name
                    .strip_prefix(family.0)
                    .unwrap_or_else(|| panic!("{line}"));
                let known: &[&str] = match (family.1, format) {
                    ("counter", Format::OpenMetrics) => &["_total"],
                    ("histogram", _) => &["_bucket", "_sum", "_count"],
                    _ => &[""],
                };
                assert!(known.contains(&suffix), "{line}");
                let is_total = name.ends_with("_total");
                assert_eq!(is_total, family.1 == "counter", "{line}");
                assert!(name.starts_with("tourbillon_"), "{line}");
            }
        }
        assert_eq!(families, kinds.len());
        assert!(families > 30, "{families}");
    }
}

#[test]
fn both_formats_tell_the_same() {
    let metrics = metrics();
    let (prometheus, openmetrics) = (prometheus(&metrics), openmetrics(&metrics));
    let samples = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(samples(&prometheus), samples(&openmetrics));
    assert!(openmetrics.ends_with("\n# EOF\n"));
    assert_eq!(openmetrics.matches("# EOF").count(), 1);
    assert!(!prometheus.contains("# EOF"));
}

#[test]
fn armed_timers_are_counted_per_worker() {
    let text = prometheus(&metrics());
    let armed = lines(&text, "tourbillon_timers_armed_total");
    // Two workers, helpers and clocks, each with the origins `local` and `remote`.
    assert_eq!(armed.len(), 8, "{armed:?}");
    let sum: u64 = armed
        .iter()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, 1);
    let pending = lines(&text, "tourbillon_timers_pending");
    assert_eq!(pending.len(), 3, "{pending:?}");
}

#[test]
fn groups_have_their_names_as_labels() {
    let name = "tourbillon_group_shares";
    assert!(lines(&prometheus(&metrics()), name).is_empty());
    let runtime = Builder::new().worker_threads(2).build().unwrap();
    let batch = Group::builder("batch").shares(50);
    let batch = batch.build_on(runtime.handle()).unwrap();
    runtime.block_on(batch.spawn(async {})).unwrap();
    let text = prometheus(&runtime.metrics());
    let shares = [("default", 100), ("batch", 50)];
    let shares = shares.map(|(group, shares)| format!("{name}{{group=\"{group}\"}} {shares}"));
    assert_eq!(lines(&text, name), shares);
    for name in ["jobs_total", "busy_seconds_total", "queue_depth"] {
        let name = format!("tourbillon_group_{name}");
        assert_eq!(lines(&text, &name).len(), 2, "{text}");
    }
}
