//! Counters, and their snapshots.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tourbillon_shards::Outcome;

/// A counter. With `--cfg tourbillon_no_metrics` it stays zero, to measure the cost of counting.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds `n`. For a counter with a single writer.
    #[inline(always)]
    pub(crate) fn add_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// Adds `n` and saturates at the maximum. For a sum with a single writer.
    #[inline(always)]
    pub(crate) fn add_up_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0
                .store(self.0.load(Relaxed).saturating_add(n), Relaxed);
        }
    }

    /// Sets a current value. For a single writer.
    #[inline(always)]
    pub(crate) fn set_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0.store(n, Relaxed);
        }
    }

    /// Adds `n`. For any thread.
    #[inline(always)]
    pub(crate) fn add(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0.fetch_add(n, Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one writer. `repr(C)` keeps counters that are written together next to
        /// each other.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// A snapshot of the counters of a worker, of the helpers, or of all of them.
        ///
        /// Counters only grow. Each is exact by itself, but they are not read at one moment.
        ///
        /// When no timer of a runtime is left, [armed](Counts::armed) equals [over](Counts::over)
        /// in the runtime's [total](crate::metrics::RuntimeMetrics::total). This holds across all
        /// threads, clocks and outcomes.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $(pub(crate) $name: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Counts {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.$name
                }
            )*

            /// Returns all counters with their names, in the order of declaration.
            ///
            /// ```
            /// let runtime = tourbillon::Runtime::new().unwrap();
            /// let total = runtime.metrics().total();
            /// let polls = total.iter().find(|(name, _)| *name == "polls");
            /// assert_eq!(polls, Some(("polls", total.polls())));
            /// ```
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign<&Counts> for Counts {
            fn add_assign(&mut self, other: &Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

// The counters of a timer's life come first, so that they share one cache line.
counters! {
    /// Timers that this worker armed in its own shard. Includes callbacks that were built and not
    /// started, and sleeps, each time one begins to wait.
    armed_local,
    /// Timers that other threads armed in this worker's shard. See `armed_local`.
    armed_remote,
    /// Resets of pending or recurring timers and sleeps: [`refresh`](crate::Timer::refresh),
    /// [`reset_after`](crate::Timer::reset_after) and similar methods.
    refreshed,
    /// Timers that ended because they fired: callbacks, counted where they ran, and sleeps.
    fired,
    /// Timers that were cancelled, including sleeps that were dropped.
    cancelled,
    /// Timers that ended because the runtime shut down.
    shut_down,
    /// Callback runs. A recurring timer counts each run.
    callbacks,
    /// Task polls.
    polls,
    /// Callbacks and tasks that panicked.
    panics,
    /// Jobs that ran on this worker for longer than the stall threshold. See
    /// [`Builder::stall_threshold`](crate::runtime::Builder::stall_threshold).
    stalls,
    /// Times that this worker took jobs from another queue.
    steal_operations,
    /// Jobs taken by these steals. May be a little too high if a third thread stole from this
    /// worker at the same moment.
    jobs_stolen,
    /// Times that this worker slept.
    parks,
    /// Times that this worker asked the kernel for events, with or without waiting.
    epoll_waits,
    /// Time that this worker was awake, in ns of the real clock, as of its last turn of the loop.
    busy_ns,
    /// Times that this worker was woken by a watchdog because another worker was overdue.
    alarms,
    /// The part of `alarms` that was unnecessary: the other worker was asleep by then, with nothing
    /// due.
    false_alarms,
    /// Timers that this worker took from another worker that was stuck when they came due.
    rescued_timers,
    /// Tasks of a stuck worker that this worker woke because their sockets were ready, or took
    /// because they were next.
    rescued_tasks,
    /// Times that another thread woke this worker by a write to its eventfd, for a deadline or an
    /// update.
    tickles_written,
    /// Updates that other threads brought to this worker without waking it. Includes a timer whose
    /// insertion found the worker awake and then had to wake it, because the worker went to sleep
    /// at that moment.
    tickles_skipped,
    /// Times that this worker was woken to search for work.
    search_wakes,
    /// Times that the kernel woke this worker early, so that it spun until the deadline. The
    /// deadline may belong to a stuck worker. See
    /// [`Builder::timer_advance`](crate::runtime::Builder::timer_advance) and
    /// [`spin_before`](crate::runtime::Builder::spin_before).
    early_wakes,
    /// Times that this worker slept past a deadline, because its budget did not pay for an earlier
    /// wake-up. See [`Builder::timer_budget`](crate::runtime::Builder::timer_budget).
    deferred_wakes,
    /// Times that this worker napped between two jobs, because the process had used more than its
    /// CPU quota pays for. See [`Builder::follow_limits`](crate::runtime::Builder::follow_limits).
    quota_naps,
    /// Timers that the runtime refused because it was full. They do not count as armed. See
    /// [`Builder::max_timers`](crate::runtime::Builder::max_timers).
    refused,
}

impl Counters {
    /// Returns the counter of timers that ended with `how`.
    #[inline]
    pub(crate) fn over(&self, how: Outcome) -> &Counter {
        match how {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            Outcome::Shutdown => &self.shut_down,
            Outcome::Refused => &self.refused,
        }
    }
}

impl Counts {
    /// Returns the number of timers armed, by any thread.
    pub fn armed(&self) -> u64 {
        self.armed_local + self.armed_remote
    }

    /// Returns the number of armed timers that ended, with any outcome.
    pub fn over(&self) -> u64 {
        self.fired + self.cancelled + self.shut_down
    }

    /// Returns [`busy_ns`](Counts::busy_ns) as a duration.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }
}
