//! Snapshots of the parts of a runtime: its workers, its groups of tasks, and the clocks that belong
//! to no worker.

use std::{sync::Arc, time::Duration};

use crate::metrics::{Activity, Counts, JobName, LatenessHistogram};

/// A snapshot of one [group](crate::task::Group) of tasks. It counts from the moment at which the
/// first group of the runtime was made.
#[derive(Clone, Debug)]
pub struct GroupMetrics {
    pub(crate) name: Arc<str>,
    pub(crate) shares: u32,
    pub(crate) jobs: u64,
    pub(crate) busy_ns: u64,
    pub(crate) queued: usize,
}

impl GroupMetrics {
    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shares of the group.
    pub fn shares(&self) -> u32 {
        self.shares
    }

    /// Returns how many jobs of the group have run: polls of its tasks. Those of the default group
    /// include callbacks.
    pub fn jobs(&self) -> u64 {
        self.jobs
    }

    /// Returns how long these jobs have run, without those that were in
    /// [`block_in_place`](crate::task::block_in_place).
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }

    /// Returns how many jobs of the group wait for a worker. That of the default group has neither
    /// the tasks in the workers' LIFO slots nor pinned tasks.
    pub fn queued(&self) -> usize {
        self.queued
    }
}

/// A snapshot of one worker.
#[derive(Clone, Debug)]
pub struct WorkerMetrics {
    pub(crate) counts: Counts,
    pub(crate) stored: usize,
    pub(crate) pending: usize,
    pub(crate) garbage: usize,
    pub(crate) queue_depth: usize,
    pub(crate) pinned_tasks: usize,
    pub(crate) sweeps: u64,
    pub(crate) wake_lateness: LatenessHistogram,
    pub(crate) queue_lateness: LatenessHistogram,
    pub(crate) rescued_lateness: LatenessHistogram,
    pub(crate) timer_advance: Duration,
    pub(crate) steals_from: Vec<u64>,
    pub(crate) rescued_from: Vec<u64>,
    pub(crate) cpu: Option<usize>,
    pub(crate) activity: Activity,
    pub(crate) job: Option<JobName>,
}

impl WorkerMetrics {
    /// Returns the worker's counters.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of timers in the worker's store.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the number of timers and sleeps that wait, except those that other threads have
    /// inserted and the worker has not read yet. See
    /// [`TimerCounts::pending`](crate::timer::TimerCounts::pending).
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the number of timers that other threads have cancelled and that are still in the
    /// inbox or the store.
    ///
    /// This is at most 64 or a quarter of the pending timers, whichever is more, even while the
    /// worker is blocked, plus those cancelled while another thread used the shard. A sweep removes
    /// 256 timers at a time, and they count until the sweep ends: this can raise the count by one
    /// percent.
    pub fn garbage(&self) -> usize {
        self.garbage
    }

    /// Returns the number of jobs in the worker's deque.
    pub fn queue_depth(&self) -> usize {
        self.queue_depth
    }

    /// Returns the number of tasks [pinned](crate::task::spawn_pinned) to the worker that have not
    /// ended, including those of [`spawn_local`](crate::task::spawn_local).
    pub fn pinned_tasks(&self) -> usize {
        self.pinned_tasks
    }

    /// Returns the number of times that the worker's inbox was emptied when it was not empty.
    pub fn sweeps(&self) -> u64 {
        self.sweeps
    }

    /// Returns the lateness of timers and sleeps, measured from their deadlines until this worker
    /// took them from a store. Includes those that it took from stuck workers.
    ///
    /// A timer with a [tolerance](crate::timer::TimerBuilder::tolerance) may be late intentionally.
    /// A timer armed with a past deadline is late from that deadline on. On a clock that was ever
    /// paused, no timer is late.
    pub fn wake_lateness(&self) -> &LatenessHistogram {
        &self.wake_lateness
    }

    /// Returns the further delay from being taken from a store until a callback ran on this worker,
    /// or until a woken task was polled here.
    ///
    /// About one in 16 timers is sampled, to 1 µs. Delays over 9 minutes are not recorded, for
    /// example of a sleep in a branch of a `select!` that is no longer polled: the time at which a
    /// timer was taken is known for a limited time.
    pub fn queue_lateness(&self) -> &LatenessHistogram {
        &self.queue_lateness
    }

    /// Returns the part of `wake_lateness` that belongs to timers taken from stuck workers.
    pub fn rescued_lateness(&self) -> &LatenessHistogram {
        &self.rescued_lateness
    }

    /// Returns the current wake-up latency compensation: how long before its deadline the worker's
    /// last sleep was set to end. See
    /// [`Builder::timer_advance`](crate::runtime::Builder::timer_advance).
    pub fn timer_advance(&self) -> Duration {
        self.timer_advance
    }

    /// Returns the number of jobs stolen from each worker's queue, by worker number.
    pub fn steals_from(&self) -> &[u64] {
        &self.steals_from
    }

    /// Returns the number of timers and tasks taken from each stuck worker, by worker number.
    pub fn rescued_from(&self) -> &[u64] {
        &self.rescued_from
    }

    /// Returns the core that the worker is pinned to, if any.
    pub fn cpu(&self) -> Option<usize> {
        self.cpu
    }

    /// Returns the current activity.
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Returns the current job, if any.
    pub fn job(&self) -> Option<JobName> {
        self.job
    }
}

/// A snapshot of the timers of a clock that belongs to no worker. See
/// [`RuntimeMetrics::wall_clock`](crate::metrics::RuntimeMetrics::wall_clock).
#[derive(Clone, Debug, Default)]
pub struct ClockMetrics {
    pub(crate) counts: Counts,
    pub(crate) stored: usize,
    pub(crate) pending: usize,
    pub(crate) garbage: usize,
    pub(crate) sweeps: u64,
}

impl ClockMetrics {
    /// Returns the counters: all timers armed on this clock, and the operations on them by threads
    /// other than workers.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Returns the number of timers in the store.
    pub fn stored(&self) -> usize {
        self.stored
    }

    /// Returns the number of timers that wait. See
    /// [`TimerCounts::pending`](crate::timer::TimerCounts::pending).
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Returns the number of cancelled timers that are still in the store.
    pub fn garbage(&self) -> usize {
        self.garbage
    }

    /// Returns the number of times that the inbox was emptied. See [`WorkerMetrics::sweeps`].
    pub fn sweeps(&self) -> u64 {
        self.sweeps
    }
}
