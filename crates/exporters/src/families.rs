//! The metrics that are published, each with its name, unit and description.
//!
//! Prometheus' text, the samples for the crate `metrics` and the instruments of OpenTelemetry are
//! made from this one table. An exporter for another system reads it, too:
//!
//! ```
//! use tourbillon::Runtime;
//! use tourbillon_exporters::families::{FAMILIES, Value};
//!
//! let runtime = Runtime::new().unwrap();
//! let metrics = runtime.metrics();
//! for family in FAMILIES {
//!     family.samples(&metrics, &mut |labels, value| match value {
//!         Value::Number(number) => println!("{} {labels:?} {number}", family.name),
//!         Value::Seconds(seconds) => println!("{} {labels:?} {seconds}", family.name),
//!         Value::Lateness(late) => println!("{} {labels:?} {late:?}", family.name),
//!     });
//! }
//! ```
//!
//! Names are those of Prometheus: they end in base units, so times are in seconds, and a counter
//! ends in `_total`. Values per worker have the label `worker`: a worker number, `helpers` for all
//! helpers, or `clocks` for timers of the wall clock and the boot-time clock, which belong to no
//! worker. Values per [group](tourbillon::task::Group) of tasks have the label `group`: its name. A
//! runtime without groups has none of these.

use tourbillon::{
    VERSION,
    metrics::{ClockMetrics, Counts, LatenessHistogram, RuntimeMetrics, WorkerMetrics},
};

use crate::samples::{
    CLOCKS, all_writers, each_worker, groups, lateness_by_stage, one, rescues_by_pair, stores,
    timers, writers, writers_by,
};

/// A metric. Its samples differ in their labels.
#[derive(Debug)]
#[non_exhaustive]
pub struct Family {
    /// The name for Prometheus.
    pub name: &'static str,
    /// Whether it only grows.
    pub kind: Kind,
    /// What is counted, as OpenTelemetry writes a unit: `s`, or a thing in braces.
    pub unit: &'static str,
    /// What it means, in a sentence.
    pub help: &'static str,
    pub(crate) samples: Samples,
}

impl Family {
    /// Calls `visit` with the labels and the value of each sample.
    pub fn samples(&self, metrics: &RuntimeMetrics, visit: &mut Visit<'_>) {
        (self.samples)(metrics, visit);
    }
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It is a distribution.
    Histogram,
}

/// A label's name and value.
pub type Label<'a> = (&'a str, &'a str);

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number of things.
    Number(u64),
    /// A time in seconds.
    Seconds(f64),
    /// How late timers were.
    Lateness(&'a LatenessHistogram),
}

/// A function that is called with each sample.
pub type Visit<'a> = dyn FnMut(&[Label<'_>], Value<'_>) + 'a;

/// Visits the samples of one family.
pub(crate) type Samples = fn(&RuntimeMetrics, &mut Visit<'_>);

/// The unit of times.
pub(crate) const SECONDS: &str = "s";

const fn counter(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    samples: Samples,
) -> Family {
    Family {
        name,
        kind: Kind::Counter,
        unit,
        help,
        samples,
    }
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    samples: Samples,
) -> Family {
    Family {
        kind: Kind::Gauge,
        ..counter(name, unit, help, samples)
    }
}

/// All metrics, in the order of Prometheus' text.
pub static FAMILIES: &[Family] = &[
    gauge(
        "tourbillon_build_info",
        "{build}",
        "The version of the library.",
        |_, visit| visit(&[("version", VERSION)], Value::Number(1)),
    ),
    // Timers.
    counter(
        "tourbillon_timers_armed_total",
        "{timer}",
        "Timers armed, sleeps included, by the worker itself or by other threads.",
        |it, visit| {
            timers(
                it,
                "from",
                &[
                    ("local", Counts::armed_local),
                    ("remote", Counts::armed_remote),
                ],
                visit,
            );
        },
    ),
    counter(
        "tourbillon_timers_over_total",
        "{timer}",
        "Timers that ended, sleeps included, by outcome.",
        |it, visit| {
            timers(
                it,
                "outcome",
                &[
                    ("fired", Counts::fired),
                    ("cancelled", Counts::cancelled),
                    ("shutdown", Counts::shut_down),
                ],
                visit,
            );
        },
    ),
    counter(
        "tourbillon_timers_refused_total",
        "{timer}",
        "Timers refused because the runtime was full.",
        |it, visit| {
            writers(it, Counts::refused, visit);
            let clocks = it.clock_counts().refused();
            visit(&[CLOCKS], Value::Number(clocks));
        },
    ),
    counter(
        "tourbillon_timers_refreshed_total",
        "{refresh}",
        "Resets and refreshes of pending or recurring timers.",
        |it, visit| {
            writers(it, Counts::refreshed, visit);
            let clocks = it.clock_counts().refreshed();
            visit(&[CLOCKS], Value::Number(clocks));
        },
    ),
    gauge(
        "tourbillon_timers_pending",
        "{timer}",
        "Pending timers, sleeps included.",
        |it, visit| stores(it, WorkerMetrics::pending, ClockMetrics::pending, visit),
    ),
    gauge(
        "tourbillon_timers_stored",
        "{timer}",
        "Timers in the store.",
        |it, visit| stores(it, WorkerMetrics::stored, ClockMetrics::stored, visit),
    ),
    gauge(
        "tourbillon_timers_garbage",
        "{timer}",
        "Cancelled timers that are still in the store.",
        |it, visit| stores(it, WorkerMetrics::garbage, ClockMetrics::garbage, visit),
    ),
    counter(
        "tourbillon_sweeps_total",
        "{sweep}",
        "Times that an inbox was emptied when it was not empty.",
        |it, visit| {
            each_worker(it, WorkerMetrics::sweeps, visit);
            let sweeps = it.wall_clock().sweeps() + it.boot_clock().sweeps();
            visit(&[CLOCKS], Value::Number(sweeps));
        },
    ),
    // Lateness.
    Family {
        kind: Kind::Histogram,
        ..counter(
            "tourbillon_timer_lateness_seconds",
            SECONDS,
            "Timer lateness. wake: from the deadline until taken from the store; queue: from there \
             until run (one in 16); rescued: the part of wake taken from stuck workers.",
            lateness_by_stage,
        )
    },
    // Jobs.
    counter(
        "tourbillon_callbacks_total",
        "{callback}",
        "Callback runs; a recurring timer counts each run.",
        |it, visit| writers(it, Counts::callbacks, visit),
    ),
    counter(
        "tourbillon_polls_total",
        "{poll}",
        "Task polls.",
        |it, visit| writers(it, Counts::polls, visit),
    ),
    counter(
        "tourbillon_panics_total",
        "{panic}",
        "Callbacks and tasks that panicked.",
        |it, visit| writers(it, Counts::panics, visit),
    ),
    counter(
        "tourbillon_stalls_total",
        "{stall}",
        "Jobs that held the worker longer than the stall threshold.",
        |it, visit| writers(it, Counts::stalls, visit),
    ),
    counter(
        "tourbillon_steals_total",
        "{steal}",
        "Times that jobs were taken from another queue.",
        |it, visit| writers(it, Counts::steal_operations, visit),
    ),
    counter(
        "tourbillon_jobs_stolen_total",
        "{job}",
        "Jobs taken from other queues.",
        |it, visit| writers(it, Counts::jobs_stolen, visit),
    ),
    counter(
        "tourbillon_parks_total",
        "{park}",
        "Times that the worker slept.",
        |it, visit| writers(it, Counts::parks, visit),
    ),
    counter(
        "tourbillon_epoll_waits_total",
        "{call}",
        "Times that the kernel was asked for events, with or without waiting.",
        |it, visit| writers(it, Counts::epoll_waits, visit),
    ),
    counter(
        "tourbillon_early_wakes_total",
        "{wake}",
        "Times that the kernel woke the worker before the deadline that it slept for.",
        |it, visit| writers(it, Counts::early_wakes, visit),
    ),
    counter(
        "tourbillon_deferred_wakes_total",
        "{wake}",
        "Times that the worker slept past a deadline, because its budget for wake-ups was spent.",
        |it, visit| writers(it, Counts::deferred_wakes, visit),
    ),
    counter(
        "tourbillon_quota_naps_total",
        "{nap}",
        "Naps of the worker because the process had used more than its CPU quota pays for.",
        |it, visit| writers(it, Counts::quota_naps, visit),
    ),
    counter(
        "tourbillon_search_wakes_total",
        "{wake}",
        "Times that the worker was woken to search for work.",
        |it, visit| writers(it, Counts::search_wakes, visit),
    ),
    counter(
        "tourbillon_tickles_total",
        "{update}",
        "Updates from other threads, by whether a write had to wake the worker.",
        |it, visit| {
            writers_by(
                it,
                "result",
                &[
                    ("written", Counts::tickles_written),
                    ("skipped", Counts::tickles_skipped),
                ],
                visit,
            );
        },
    ),
    counter(
        "tourbillon_worker_busy_seconds_total",
        SECONDS,
        "Time that the worker was awake, as of its last turn of the loop.",
        |it, visit| {
            for (worker, counts) in all_writers(it) {
                let seconds = counts.busy().as_secs_f64();
                visit(&[("worker", &worker)], Value::Seconds(seconds));
            }
        },
    ),
    // Rescues.
    counter(
        "tourbillon_alarms_total",
        "{alarm}",
        "Times that a watchdog woke the worker because another was overdue.",
        |it, visit| writers(it, Counts::alarms, visit),
    ),
    counter(
        "tourbillon_false_alarms_total",
        "{alarm}",
        "Alarms whose overdue worker was asleep by then, with nothing due.",
        |it, visit| writers(it, Counts::false_alarms, visit),
    ),
    counter(
        "tourbillon_rescued_timers_total",
        "{timer}",
        "Timers that the worker took from a stuck worker.",
        |it, visit| writers(it, Counts::rescued_timers, visit),
    ),
    counter(
        "tourbillon_rescued_tasks_total",
        "{task}",
        "Tasks of a stuck worker that the worker woke or took.",
        |it, visit| writers(it, Counts::rescued_tasks, visit),
    ),
    counter(
        "tourbillon_rescued_total",
        "{job}",
        "Timers and tasks taken, by stuck worker; only pairs with a rescue.",
        rescues_by_pair,
    ),
    // Queues.
    gauge(
        "tourbillon_local_queue_depth",
        "{job}",
        "Jobs in the worker's queue.",
        |it, visit| each_worker(it, |worker| worker.queue_depth() as u64, visit),
    ),
    gauge(
        "tourbillon_pinned_tasks",
        "{task}",
        "Tasks pinned to the worker that have not ended.",
        |it, visit| each_worker(it, |worker| worker.pinned_tasks() as u64, visit),
    ),
    gauge(
        "tourbillon_global_queue_depth",
        "{job}",
        "Jobs in the global queue.",
        |it, visit| one(it.global_queue_depth(), visit),
    ),
    gauge(
        "tourbillon_alive_tasks",
        "{task}",
        "Tasks that have not ended.",
        |it, visit| one(it.num_alive_tasks(), visit),
    ),
    counter(
        "tourbillon_spawned_tasks_total",
        "{task}",
        "Tasks spawned, jobs of spawn_blocking included.",
        |it, visit| visit(&[], Value::Number(it.spawned_tasks_count())),
    ),
    gauge(
        "tourbillon_blocking_queue_depth",
        "{job}",
        "Jobs of spawn_blocking that wait for a thread.",
        |it, visit| one(it.blocking_queue_depth(), visit),
    ),
    // Groups of tasks.
    gauge(
        "tourbillon_group_shares",
        "{share}",
        "Shares of the group of tasks, by which groups divide the workers' time.",
        |it, visit| groups(it, |group| Value::Number(group.shares().into()), visit),
    ),
    counter(
        "tourbillon_group_jobs_total",
        "{job}",
        "Jobs of the group that have run.",
        |it, visit| groups(it, |group| Value::Number(group.jobs()), visit),
    ),
    counter(
        "tourbillon_group_busy_seconds_total",
        SECONDS,
        "Time for which jobs of the group have run.",
        |it, visit| groups(it, |it| Value::Seconds(it.busy().as_secs_f64()), visit),
    ),
    gauge(
        "tourbillon_group_queue_depth",
        "{job}",
        "Jobs of the group that wait for a worker.",
        |it, visit| groups(it, |group| Value::Number(group.queued() as u64), visit),
    ),
    // The CPU quota.
    counter(
        "tourbillon_throttled_periods_total",
        "{period}",
        "Periods of the CPU quota in which the kernel stopped threads of the control group.",
        |it, visit| visit(&[], Value::Number(it.throttled_periods())),
    ),
    counter(
        "tourbillon_throttled_seconds_total",
        SECONDS,
        "Time for which the CPU quota stopped threads, summed over all cores.",
        |it, visit| visit(&[], Value::Seconds(it.throttled_duration().as_secs_f64())),
    ),
    // Threads.
    gauge(
        "tourbillon_workers",
        "{thread}",
        "Workers; zero once the runtime has ended.",
        |it, visit| one(it.num_workers(), visit),
    ),
    gauge(
        "tourbillon_active_workers",
        "{thread}",
        "Workers that take part, and are not retired.",
        |it, visit| one(it.active_workers(), visit),
    ),
    gauge(
        "tourbillon_helper_threads",
        "{thread}",
        "Helpers, idle ones included.",
        |it, visit| one(it.num_helpers(), visit),
    ),
    gauge(
        "tourbillon_idle_helper_threads",
        "{thread}",
        "Idle helpers.",
        |it, visit| one(it.num_idle_helpers(), visit),
    ),
    gauge(
        "tourbillon_blocking_threads",
        "{thread}",
        "Threads for spawn_blocking, idle ones included.",
        |it, visit| one(it.num_blocking_threads(), visit),
    ),
    gauge(
        "tourbillon_idle_blocking_threads",
        "{thread}",
        "Idle threads for spawn_blocking.",
        |it, visit| one(it.num_idle_blocking_threads(), visit),
    ),
    counter(
        "tourbillon_helpers_started_total",
        "{thread}",
        "Helpers started so far.",
        |it, visit| visit(&[], Value::Number(it.helpers_started())),
    ),
];
