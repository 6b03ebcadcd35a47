//! The samples of the families: what each worker, the helpers and the other clocks have.

use tourbillon::metrics::{ClockMetrics, Counts, GroupMetrics, RuntimeMetrics, WorkerMetrics};

use crate::families::{Label, Value, Visit};

/// The stages of a timer's lateness.
pub(crate) const STAGES: [&str; 3] = ["wake", "queue", "rescued"];

/// Reads one counter.
pub(crate) type Count = fn(&Counts) -> u64;

/// The clocks that have no worker go under one label value.
pub(crate) const CLOCKS: Label<'_> = ("worker", "clocks");

/// Visits a counter that a label splits.
fn split(
    worker: Label<'_>,
    counts: &Counts,
    label: &str,
    parts: &[(&str, Count)],
    visit: &mut Visit<'_>,
) {
    for (part, count) in parts {
        visit(&[worker, (label, part)], Value::Number(count(counts)));
    }
}

/// Visits a gauge that has one value.
pub(crate) fn one(number: usize, visit: &mut Visit<'_>) {
    visit(&[], Value::Number(number as u64));
}

/// Returns what `of` finds in each worker, and what the helpers have together, with the label of
/// each.
fn by_writer<'a, T: 'a>(
    metrics: &'a RuntimeMetrics,
    of: impl Fn(&'a WorkerMetrics) -> T + 'a,
    helpers: T,
) -> impl Iterator<Item = (String, T)> + 'a {
    let workers = metrics.workers().iter().enumerate();
    let workers = workers.map(move |(i, worker)| (i.to_string(), of(worker)));
    workers.chain([("helpers".to_owned(), helpers)])
}

/// Returns the counters of each worker, and of the helpers.
pub(crate) fn all_writers(metrics: &RuntimeMetrics) -> impl Iterator<Item = (String, &Counts)> {
    by_writer(metrics, WorkerMetrics::counts, metrics.helper_counts())
}

/// Visits a counter that workers and helpers have.
pub(crate) fn writers(metrics: &RuntimeMetrics, count: Count, visit: &mut Visit<'_>) {
    for (worker, counts) in all_writers(metrics) {
        visit(&[("worker", &worker)], Value::Number(count(counts)));
    }
}

/// Visits a counter that workers and helpers have, and that a label splits.
pub(crate) fn writers_by(
    metrics: &RuntimeMetrics,
    label: &str,
    parts: &[(&str, Count)],
    visit: &mut Visit<'_>,
) {
    for (worker, counts) in all_writers(metrics) {
        split(("worker", &worker), counts, label, parts, visit);
    }
}

/// Visits a counter of timers, which a label splits. The other clocks have it, too.
pub(crate) fn timers(
    metrics: &RuntimeMetrics,
    label: &str,
    parts: &[(&str, Count)],
    visit: &mut Visit<'_>,
) {
    writers_by(metrics, label, parts, visit);
    split(CLOCKS, &metrics.clock_counts(), label, parts, visit);
}

/// Visits a value that each worker has.
pub(crate) fn each_worker(
    metrics: &RuntimeMetrics,
    value: impl Fn(&WorkerMetrics) -> u64,
    visit: &mut Visit<'_>,
) {
    for (i, worker) in metrics.workers().iter().enumerate() {
        visit(&[("worker", &i.to_string())], Value::Number(value(worker)));
    }
}

/// Visits a value that each group of tasks has.
pub(crate) fn groups(
    metrics: &RuntimeMetrics,
    value: impl Fn(&GroupMetrics) -> Value<'static>,
    visit: &mut Visit<'_>,
) {
    for group in metrics.groups() {
        visit(&[("group", group.name())], value(group));
    }
}

/// Visits a number of timers of each worker, and of the other clocks.
pub(crate) fn stores(
    metrics: &RuntimeMetrics,
    worker: fn(&WorkerMetrics) -> usize,
    clock: fn(&ClockMetrics) -> usize,
    visit: &mut Visit<'_>,
) {
    each_worker(metrics, |it| worker(it) as u64, visit);
    let clocks = clock(metrics.wall_clock()) + clock(metrics.boot_clock());
    visit(&[CLOCKS], Value::Number(clocks as u64));
}

/// Visits the lateness of each worker and of the helpers, by stage.
pub(crate) fn lateness_by_stage(metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
    // Helpers end and start, so they share one histogram per stage.
    let helpers = [
        metrics.helper_wake_lateness(),
        metrics.helper_queue_lateness(),
        metrics.helper_rescued_lateness(),
    ];
    let all = by_writer(
        metrics,
        |worker| {
            [
                worker.wake_lateness(),
                worker.queue_lateness(),
                worker.rescued_lateness(),
            ]
        },
        helpers,
    );
    for (worker, all) in all {
        for (stage, late) in STAGES.into_iter().zip(all) {
            let labels = [("worker", &*worker), ("stage", stage)];
            visit(&labels, Value::Lateness(late));
        }
    }
}

/// Visits the number of rescues of each worker and of the helpers, by stuck worker.
pub(crate) fn rescues_by_pair(metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
    let helpers = metrics.helpers_rescued_from();
    for (worker, rescued) in by_writer(metrics, |worker| worker.rescued_from(), helpers) {
        // Omit pairs with no rescue: all pairs would be the square of the workers.
        for (from, &count) in rescued.iter().enumerate().filter(|(_, count)| **count > 0) {
            let labels = [("worker", &*worker), ("from", &*from.to_string())];
            visit(&labels, Value::Number(count));
        }
    }
}
