//! What a runtime has done, and what it is at: counters, how late timers were, and what waits.
//!
//! | file | what is there |
//! |---|---|
//! | `counters` | counters, and what they said when somebody looked |
//! | `histogram` | how late timers were |
//! | `activity` | what a worker is at |
//! | `prometheus` | what Prometheus is told |
//! | `text` | how that is written |
//! | `recorder` | where the threads of a runtime write down what they do |
//!
//! Each worker has a set of counters, and of histograms, that it writes alone, with plain loads and stores;
//! what happens on other threads they count in sets that few of them share.

pub(crate) mod activity;
pub(crate) mod counters;
pub(crate) mod histogram;
pub(crate) mod prometheus;
pub(crate) mod recorder;
pub(crate) mod text;

use std::time::Duration;

use crate::metrics::recorder::Record;
pub use crate::metrics::{
    activity::{Activity, JobName},
    counters::Counts,
    histogram::{Bucket, LatenessHistogram},
};

/// A look at a runtime: see [`Handle::metrics`](crate::runtime::Handle::metrics). Each figure is exact by itself,
/// or says how far it is not; they are not read at one moment.
///
/// The methods that tokio has, too, have its names and its answers.
#[derive(Clone, Debug)]
pub struct RuntimeMetrics {
    pub(crate) workers: Vec<WorkerMetrics>,
    /// What the workers have done, those of a runtime that has ended included.
    pub(crate) done: Record,
    pub(crate) helpers: HelperMetrics,
    pub(crate) wall_clock: ClockMetrics,
    pub(crate) boot_clock: ClockMetrics,
    pub(crate) injector_depth: usize,
    pub(crate) alive_tasks: usize,
    pub(crate) spawned_tasks: u64,
    pub(crate) blocking: BlockingMetrics,
}

/// A look at the blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct BlockingMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) queued: usize,
    pub(crate) dropped: u64,
}

/// A look at the helpers.
#[derive(Clone, Debug)]
pub(crate) struct HelperMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) started: u64,
    /// What they have done, those that have ended included.
    pub(crate) record: Record,
}

/// A look at one worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// What it has done.
    pub counts: Counts,
    /// Timers that stand in its store.
    pub stored: usize,
    /// Timers and sleeps that wait, but for those that came from other threads and have not been read: see
    /// [`TimerCounts::pending`](crate::timer::look::TimerCounts::pending).
    pub pending: usize,
    /// Timers cancelled from other threads of which its store has not heard: at most 64 or a quarter of
    /// the pending ones, whichever is more, even while the worker is blocked, and what was cancelled
    /// while somebody was at the shard. Those that are being swept, 256 at a time, count until all are:
    /// that may be a hundredth more.
    pub garbage: usize,
    /// Jobs in its deque.
    pub queue_depth: usize,
    /// Tasks that are [pinned](crate::task::local::pinned::spawn_pinned) to it and have not ended, those that
    /// [`spawn_local`](crate::task::local::spawn_local) made included.
    pub pinned_tasks: usize,
    /// Times that somebody took what other threads had left in its inbox, where there was something.
    pub sweeps: u64,
    /// How late timers were, sleeps included, when this worker took them from the store, from their deadlines
    /// on: each of them, also what it took from others that were busy. A timer with a
    /// [tolerance](crate::timer::builder::TimerBuilder::tolerance) may be late by intent; one whose deadline had passed when it
    /// was armed is late from that deadline on, though nobody could have been in time. On a clock that was ever paused nothing
    /// is late.
    pub wake_lateness: LatenessHistogram,
    /// How much later, after it was taken from a store, a callback began to run on this worker, or a task that
    /// had slept was polled here and found that its time had come. Of one in about 16, to 1 µs. What takes longer than
    /// 9 minutes is not noted, such as a sleep that fired in a branch of a `select!` that nobody polled any more: when
    /// it was taken is known for some time only. Nor is a sleep that was polled so long after its deadline.
    pub queue_lateness: LatenessHistogram,
    /// Of what is in `wake_lateness`: those that this worker took from another that was busy.
    pub rescued_lateness: LatenessHistogram,
    /// By how much earlier than the deadline its last sleep until one was to end, by what it has learned of the kernel:
    /// see [`Builder::timer_advance`](crate::runtime::Builder::timer_advance).
    pub timer_advance: Duration,
    /// Jobs that it took from the queue of each worker, by their numbers.
    pub steals_from: Vec<u64>,
    /// Timers and tasks that it took from each worker that was busy, by their numbers.
    pub rescued_from: Vec<u64>,
    /// The core that it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// What it is at.
    pub activity: Activity,
    /// The job that it is at, if it is at one.
    pub job: Option<JobName>,
}

/// A look at the timers of a clock that no worker goes by: see [`RuntimeMetrics::wall_clock`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClockMetrics {
    /// What was done with its timers, where no worker did it; and all that were armed.
    pub counts: Counts,
    /// Timers that stand in its store.
    pub stored: usize,
    /// Timers that wait: see [`TimerCounts::pending`](crate::timer::look::TimerCounts::pending).
    pub pending: usize,
    /// Cancelled timers of which its store has not heard.
    pub garbage: usize,
    /// See [`WorkerMetrics::sweeps`].
    pub sweeps: u64,
}

impl RuntimeMetrics {
    /// How many workers the runtime has; zero once it has been shut down.
    pub fn num_workers(&self) -> usize {
        self.workers.len()
    }

    /// The workers, by their numbers.
    pub fn workers(&self) -> &[WorkerMetrics] {
        &self.workers
    }

    /// What all workers together have done, and the helpers, and what was done for the other clocks. It stays when
    /// the runtime has ended.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let handle = runtime.handle().clone();
    /// runtime.after(Duration::from_secs(60), || ());
    /// drop(runtime);
    /// let total = handle.metrics().total();
    /// assert_eq!((total.armed(), total.shut_down), (1, 1));
    /// ```
    pub fn total(&self) -> Counts {
        let mut sum = self.helpers.record.counts.clone();
        sum += &self.done.counts;
        sum += &self.clock_counts();
        sum
    }

    /// How late timers were when they were taken from their stores: see [`WorkerMetrics::wake_lateness`]. By
    /// whichever worker or helper; so in the following.
    pub fn wake_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.wake_lateness)
    }

    /// How much later they ran: see [`WorkerMetrics::queue_lateness`].
    pub fn queue_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.queue_lateness)
    }

    /// How late those were that were taken from workers that were busy: see [`WorkerMetrics::rescued_lateness`].
    pub fn rescued_lateness(&self) -> LatenessHistogram {
        self.lateness(|record| &record.rescued_lateness)
    }

    fn lateness(&self, of: impl Fn(&Record) -> &LatenessHistogram) -> LatenessHistogram {
        let mut sum = of(&self.done).clone();
        sum += of(&self.helpers.record);
        sum
    }

    /// How many [helpers](crate::runtime::Builder::helpers) there are, those that wait to be called
    /// included.
    pub fn num_helpers(&self) -> usize {
        self.helpers.threads
    }

    /// How many of them wait to be called.
    pub fn num_idle_helpers(&self) -> usize {
        self.helpers.idle
    }

    /// How many helpers were ever started.
    pub fn helpers_started(&self) -> u64 {
        self.helpers.started
    }

    /// What helpers have done, those that have ended included; so in the following. No timer is armed with a
    /// helper: it has no shard.
    pub fn helper_counts(&self) -> &Counts {
        &self.helpers.record.counts
    }

    /// See [`WorkerMetrics::wake_lateness`].
    pub fn helper_wake_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.wake_lateness
    }

    /// See [`WorkerMetrics::queue_lateness`].
    pub fn helper_queue_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.queue_lateness
    }

    /// See [`WorkerMetrics::rescued_lateness`].
    pub fn helper_rescued_lateness(&self) -> &LatenessHistogram {
        &self.helpers.record.rescued_lateness
    }

    /// See [`WorkerMetrics::steals_from`]. Empty until there has been a helper.
    pub fn helpers_steals_from(&self) -> &[u64] {
        &self.helpers.record.steals_from
    }

    /// See [`WorkerMetrics::rescued_from`]. Empty until there has been a helper.
    pub fn helpers_rescued_from(&self) -> &[u64] {
        &self.helpers.record.rescued_from
    }

    /// The timers that go by the time of day.
    pub fn wall_clock(&self) -> &ClockMetrics {
        &self.wall_clock
    }

    /// The timers that go on while the machine is suspended.
    pub fn boot_clock(&self) -> &ClockMetrics {
        &self.boot_clock
    }

    /// What was done with the timers of these two clocks where no worker did it, and all that were armed.
    pub fn clock_counts(&self) -> Counts {
        let mut sum = self.wall_clock.counts.clone();
        sum += &self.boot_clock.counts;
        sum
    }

    /// Jobs that came from outside and wait for a worker.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("{} jobs wait for a worker", runtime.metrics().global_queue_depth());
    /// ```
    pub fn global_queue_depth(&self) -> usize {
        self.injector_depth
    }

    /// How many tasks there are that have not ended, jobs of [`spawn_blocking`](crate::task::blocking::spawn_blocking) that wait
    /// or run included. (tokio's counts no such jobs.)
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

    /// How many tasks were ever spawned, jobs given to [`spawn_blocking`](crate::task::blocking::spawn_blocking) included. (tokio's
    /// counts no such jobs.)
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.metrics().spawned_tasks_count(), 1);
    /// ```
    pub fn spawned_tasks_count(&self) -> u64 {
        self.spawned_tasks
    }

    /// For how long a worker was awake, as of when it last was in its loop: a job that runs counts when it is over.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 was busy for {:?}", runtime.metrics().worker_total_busy_duration(0));
    /// ```
    ///
    /// # Panics
    ///
    /// If there is no such worker, as tokio's does. So in the following.
    #[track_caller]
    pub fn worker_total_busy_duration(&self, worker: usize) -> Duration {
        self.workers[worker].counts.busy()
    }

    /// How many times a worker slept.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 slept {} times", runtime.metrics().worker_park_count(0));
    /// ```
    #[track_caller]
    pub fn worker_park_count(&self, worker: usize) -> u64 {
        self.workers[worker].counts.parks
    }

    /// How many jobs a worker took from the queues of others: see [`Counts::jobs_stolen`].
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 stole {} jobs", runtime.metrics().worker_steal_count(0));
    /// ```
    #[track_caller]
    pub fn worker_steal_count(&self, worker: usize) -> u64 {
        self.workers[worker].counts.jobs_stolen
    }

    /// How many times a worker took jobs from the queue of another.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("worker 0 stole {} times", runtime.metrics().worker_steal_operations(0));
    /// ```
    #[track_caller]
    pub fn worker_steal_operations(&self, worker: usize) -> u64 {
        self.workers[worker].counts.steal_operations
    }

    /// How many times a worker polled a task.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// let metrics = runtime.metrics();
    /// let polls = (0..metrics.num_workers()).map(|worker| metrics.worker_poll_count(worker));
    /// assert_eq!(polls.sum::<u64>(), 1);
    /// ```
    #[track_caller]
    pub fn worker_poll_count(&self, worker: usize) -> u64 {
        self.workers[worker].counts.polls
    }

    /// How many jobs stand in the queue of a worker.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// println!("{} jobs wait for worker 0", runtime.metrics().worker_local_queue_depth(0));
    /// ```
    #[track_caller]
    pub fn worker_local_queue_depth(&self, worker: usize) -> usize {
        self.workers[worker].queue_depth
    }

    /// How many threads there are for [`spawn_blocking`](crate::task::blocking::spawn_blocking), idle ones
    /// included.
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

    /// How many of them have nothing to do.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// assert_eq!(runtime.metrics().num_idle_blocking_threads(), 0);
    /// ```
    pub fn num_idle_blocking_threads(&self) -> usize {
        self.blocking.idle
    }

    /// How many jobs wait for one of them.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
    /// ```
    pub fn blocking_queue_depth(&self) -> usize {
        self.blocking.queued
    }

    /// How many jobs of [`spawn_blocking`](crate::task::blocking::spawn_blocking) were dropped unrun, because
    /// the time of [`shutdown_timeout`](crate::runtime::Runtime::shutdown_timeout) or
    /// [`shutdown_graceful`](crate::runtime::Runtime::shutdown_graceful) was over. Jobs that were aborted,
    /// or refused when they were spawned, do not count.
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
