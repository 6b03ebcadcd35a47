//! Metrics of a runtime: counters, timer lateness, queue lengths, and the workers' activity.
//!
//! | file | contents |
//! |---|---|
//! | `counters` | counters, and their snapshots |
//! | `histogram` | histograms of timer lateness |
//! | `activity` | the current activity of a worker |
//! | `label` | what a job does, in the words of the user |
//! | `parts` | snapshots of a worker and of a clock |
//! | `unstable` | what only tokio counts, for the package in its place |
//! | `recorder` | the counters and histograms of each thread |
//!
//! Each worker has its own counters and histograms. It alone writes them, with plain loads and
//! stores. Other threads count in a few shared sets.

pub(crate) mod activity;
pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod label;
pub(crate) mod parts;
pub(crate) mod recorder;
pub(crate) mod spawned;
#[cfg(all(feature = "facade", tokio_unstable))]
pub(crate) mod unstable;

use std::time::Duration;

pub use crate::metrics::{
    activity::{Activity, JobName},
    counters::Counts,
    histogram::{Bucket, LatenessHistogram},
    parts::{ClockMetrics, GroupMetrics, WorkerMetrics},
};
use crate::{metrics::recorder::Record, sys::quota::Throttled};

/// A snapshot of a runtime's metrics. See [`Handle::metrics`](crate::runtime::Handle::metrics).
///
/// Each value is exact by itself, unless its description says otherwise. The values are not read at
/// one moment.
///
/// Methods that tokio also has return the same values under the same names.
#[derive(Clone, Debug)]
pub struct RuntimeMetrics {
    pub(crate) workers: Vec<WorkerMetrics>,
    pub(crate) active_workers: usize,
    /// Counts of all workers, including those of a runtime that has ended.
    pub(crate) done: Record,
    pub(crate) helpers: HelperMetrics,
    pub(crate) wall_clock: ClockMetrics,
    pub(crate) boot_clock: ClockMetrics,
    pub(crate) groups: Vec<GroupMetrics>,
    pub(crate) injector_depth: usize,
    pub(crate) alive_tasks: usize,
    pub(crate) spawned_tasks: u64,
    pub(crate) blocking: BlockingMetrics,
    pub(crate) throttled: Throttled,
}

/// A snapshot of the blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct BlockingMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) queued: usize,
    pub(crate) dropped: u64,
}

/// A snapshot of the helpers.
#[derive(Clone, Debug)]
pub(crate) struct HelperMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) started: u64,
    /// Records of all helpers, including those that have ended.
    pub(crate) record: Record,
}

impl RuntimeMetrics {
    /// Returns the number of workers, or zero once the runtime has been shut down.
    pub fn num_workers(&self) -> usize {
        self.workers.len()
    }

    /// Returns how many of the workers take part: see
    /// [`Builder::follow_limits`](crate::runtime::Builder::follow_limits) and
    /// [`Handle::set_workers`](crate::runtime::Handle::set_workers). It is zero once the runtime has
    /// been shut down.
    pub fn active_workers(&self) -> usize {
        self.active_workers
    }

    /// Returns the workers, by worker number.
    pub fn workers(&self) -> &[WorkerMetrics] {
        &self.workers
    }

    /// Returns the sum of the counters of all workers, helpers and other clocks. It remains
    /// available after the runtime has ended.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let handle = runtime.handle().clone();
    /// runtime.handle().after(Duration::from_secs(60), || ());
    /// drop(runtime);
    /// let total = handle.metrics().total();
    /// assert_eq!((total.armed(), total.shut_down()), (1, 1));
    /// ```
    pub fn total(&self) -> Counts {
        let mut sum = self.helpers.record.counts.clone();
        sum += &self.done.counts;
        sum += &self.clock_counts();
        sum
    }

    /// Returns the lateness of timers when they were taken from their stores, over all workers and
    /// helpers. See [`WorkerMetrics::wake_lateness`].
    pub fn wake_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.wake_lateness)
    }

    /// Returns the further delay until timers ran, over all workers and helpers. See
    /// [`WorkerMetrics::queue_lateness`].
    pub fn queue_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.queue_lateness)
    }

    /// Returns the lateness of timers taken from stuck workers, over all workers and helpers. See
    /// [`WorkerMetrics::rescued_lateness`].
    pub fn rescued_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.rescued_lateness)
    }

    fn lateness(&self, of: impl Fn(&Record) -> &LatenessHistogram) -> LatenessHistogram {
        let mut sum = of(&self.done).clone();
        sum += of(&self.helpers.record);
        sum
    }

    /// Returns the number of [helpers](crate::runtime::Builder::helpers), including idle ones.
    pub fn num_helpers(&self) -> usize {
        self.helpers.threads
    }

    /// Returns the number of idle helpers.
    pub fn num_idle_helpers(&self) -> usize {
        self.helpers.idle
    }

    /// Returns the number of helpers started so far.
    pub fn helpers_started(&self) -> u64 {
        self.helpers.started
    }

    /// Returns the sum of the counters of all helpers, including those that have ended. A
    /// helper's shard has no timers: a timer that is armed on a helper goes to a worker.
    pub fn helper_counts(&self) -> &Counts {
        &self.helpers.record.counts
    }

    /// Returns the wake lateness over all helpers. See [`WorkerMetrics::wake_lateness`].
    pub fn helper_wake_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.wake_lateness
    }

    /// Returns the queue lateness over all helpers. See [`WorkerMetrics::queue_lateness`].
    pub fn helper_queue_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.queue_lateness
    }

    /// Returns the rescued lateness over all helpers. See [`WorkerMetrics::rescued_lateness`].
    pub fn helper_rescued_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.rescued_lateness
    }

    /// Returns the number of jobs that helpers stole from each worker. Empty until the first helper
    /// starts. See [`WorkerMetrics::steals_from`].
    pub fn helpers_steals_from(&self) -> &[u64] {
        &self.helpers.record.steals_from
    }

    /// Returns the number of timers and tasks that helpers took from each stuck worker. Empty until
    /// the first helper starts. See [`WorkerMetrics::rescued_from`].
    pub fn helpers_rescued_from(&self) -> &[u64] {
        &self.helpers.record.rescued_from
    }

    /// Returns the metrics of timers that follow the time of day.
    pub fn wall_clock(&self) -> &ClockMetrics {
        &self.wall_clock
    }

    /// Returns the metrics of timers whose clock continues while the machine is suspended.
    pub fn boot_clock(&self) -> &ClockMetrics {
        &self.boot_clock
    }

    /// Returns the sum of the counters of these two clocks. They count all timers armed on them,
    /// and the operations on them by threads other than workers.
    pub fn clock_counts(&self) -> Counts {
        let mut sum = self.wall_clock.counts.clone();
        sum += &self.boot_clock.counts;
        sum
    }

    /// Returns the scheduling [groups](crate::task::Group) of the runtime, the default one first.
    /// Empty as long as none was made.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::{Handle, task::Group};
    ///
    /// let batch = Group::builder("batch").shares(50).build().unwrap();
    /// batch.spawn(async { 6 * 7 }).await.unwrap();
    /// for group in Handle::current().metrics().groups() {
    ///     println!("{}: {} jobs in {:?}", group.name(), group.jobs(), group.busy());
    /// }
    /// # });
    /// ```
    pub fn groups(&self) -> &[GroupMetrics] {
        &self.groups
    }

    /// Returns the number of jobs in the global queue, which holds jobs from outside of the
    /// workers.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("{} jobs wait for a worker", runtime.metrics().global_queue_depth());
    /// ```
    pub fn global_queue_depth(&self) -> usize {
        self.injector_depth
    }

    /// Returns the number of tasks that have not ended. Unlike tokio's, this includes waiting and
    /// running jobs of [`spawn_blocking`](crate::task::spawn_blocking).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// assert_eq!(runtime.metrics().num_alive_tasks(), 1);
    /// # task.abort();
    /// ```
    pub fn num_alive_tasks(&self) -> usize {
        self.alive_tasks
    }

    /// Returns the number of tasks spawned so far. Unlike tokio's, this includes jobs of
    /// [`spawn_blocking`](crate::task::spawn_blocking).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.metrics().spawned_tasks_count(), 1);
    /// ```
    pub fn spawned_tasks_count(&self) -> u64 {
        self.spawned_tasks
    }

    /// Returns in how many periods of a CPU quota the kernel has stopped threads of this process's
    /// control group, because the quota was used up. Zero without a quota.
    ///
    /// The kernel counts since the group was made, which may have other processes, too.
    pub fn throttled_periods(&self) -> u64 {
        self.throttled.periods
    }

    /// Returns for how long the kernel has stopped threads in these
    /// [periods](RuntimeMetrics::throttled_periods): the sum over all cores.
    pub fn throttled_duration(&self) -> Duration {
        Duration::from_nanos(self.throttled.ns)
    }

    /// Returns the number of threads for [`spawn_blocking`](crate::task::spawn_blocking), including
    /// idle ones.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// assert_eq!(runtime.metrics().num_blocking_threads(), 0);
    /// let job = runtime.spawn_blocking(|| ());
    /// assert_eq!(runtime.metrics().num_blocking_threads(), 1);
    /// # runtime.block_on(job).unwrap();
    /// ```
    pub fn num_blocking_threads(&self) -> usize {
        self.blocking.threads
    }

    /// Returns the number of idle threads for [`spawn_blocking`](crate::task::spawn_blocking).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// assert_eq!(runtime.metrics().num_idle_blocking_threads(), 0);
    /// ```
    pub fn num_idle_blocking_threads(&self) -> usize {
        self.blocking.idle
    }

    /// Returns the number of jobs that wait for a blocking thread, or for others of their group to
    /// end.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
    /// ```
    pub fn blocking_queue_depth(&self) -> usize {
        self.blocking.queued
    }

    /// Returns the number of jobs of [`spawn_blocking`](crate::task::spawn_blocking) that were
    /// dropped before they ran, because the time limit of
    /// [`shutdown_timeout`](crate::Runtime::shutdown_timeout) or
    /// [`shutdown_graceful`](crate::Runtime::shutdown_graceful) had passed.
    ///
    /// Jobs that were aborted, or refused when they were spawned, do not count.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let handle = runtime.handle().clone();
    /// drop(runtime.spawn_blocking(|| println!("the last write")));
    /// assert!(runtime.shutdown_timeout(Duration::from_secs(600)));
    /// assert_eq!(handle.metrics().blocking_dropped_count(), 0);
    /// ```
    pub fn blocking_dropped_count(&self) -> u64 {
        self.blocking.dropped
    }
}

/// Implements methods that return a number of one worker, as tokio's metrics have them.
macro_rules! of_workers {
    (|$worker:ident| $($(#[$doc:meta])* $name:ident() -> $Type:ty = $number:expr;)*) => {
        impl RuntimeMetrics {
            $(
                $(#[$doc])*
                ///
                /// # Panics
                ///
                /// Panics if the worker does not exist, like tokio's method.
                #[track_caller]
                pub fn $name(&self, worker: usize) -> $Type {
                    let $worker = &self.workers[worker];
                    $number
                }
            )*
        }
    };
}

of_workers! {
    |worker|

    /// Returns the total time a worker was awake, as of its last turn of the loop. A running job
    /// counts once it ends.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 was busy for {:?}", runtime.metrics().worker_total_busy_duration(0));
    /// ```
    worker_total_busy_duration() -> Duration = worker.counts.busy();

    /// Returns the number of times a worker slept.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 slept {} times", runtime.metrics().worker_park_count(0));
    /// ```
    worker_park_count() -> u64 = worker.counts.parks;

    /// Returns the number of jobs that a worker stole from other queues. See
    /// [`Counts::jobs_stolen`].
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 stole {} jobs", runtime.metrics().worker_steal_count(0));
    /// ```
    worker_steal_count() -> u64 = worker.counts.jobs_stolen;

    /// Returns the number of times a worker stole from another queue.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 stole {} times", runtime.metrics().worker_steal_operations(0));
    /// ```
    worker_steal_operations() -> u64 = worker.counts.steal_operations;

    /// Returns the number of times a worker polled a task.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// let metrics = runtime.metrics();
    /// let polls = (0..metrics.num_workers()).map(|worker| metrics.worker_poll_count(worker));
    /// assert_eq!(polls.sum::<u64>(), 1);
    /// ```
    worker_poll_count() -> u64 = worker.counts.polls;

    /// Returns the number of jobs in a worker's queue.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("{} jobs wait for worker 0", runtime.metrics().worker_local_queue_depth(0));
    /// ```
    worker_local_queue_depth() -> usize = worker.queue_depth;
}
