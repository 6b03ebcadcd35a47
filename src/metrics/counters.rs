//! Counters, and what they said when somebody looked.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tourbillon_shards::Outcome;

/// One counter. (With `--cfg tourbillon_no_metrics` it stays zero: for the measurement of what counting costs.)
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the counter's one writer.
    #[inline(always)]
    pub(crate) fn add_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// For the one writer of a sum: it stays at the most that there is room for.
    #[inline(always)]
    pub(crate) fn add_up_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0
                .store(self.0.load(Relaxed).saturating_add(n), Relaxed);
        }
    }

    /// Not a count, but what there is now. For the one writer.
    #[inline(always)]
    pub(crate) fn set_alone(&self, n: u64) {
        if !cfg!(tourbillon_no_metrics) {
            self.0.store(n, Relaxed);
        }
    }

    /// For any thread.
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
        /// The counters of one writer. As they stand here: those that are written together are beside each other.
        #[derive(Debug, Default)]
        #[repr(C)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What a worker, or the helpers, or all of them, have done so far. Counts only grow; each is exact by
        /// itself, but they are not read at one moment.
        ///
        /// Once all timers of a runtime are over, as many were [armed](Counts::armed) as are
        /// [over](Counts::over), in its [total](crate::metrics::RuntimeMetrics::total): whoever armed them and
        /// whatever ended them, on all clocks.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Counts {
            /// All of them, by their names, in the order in which they are declared.
            ///
            /// ```
            /// let runtime = tourbillon::Runtime::new().unwrap();
            /// let total = runtime.metrics().total();
            /// assert!(total.iter().any(|(name, count)| name == "polls" && count == total.polls));
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

// What a timer counts on its way comes first, within one line of the cache.
counters! {
    /// Timers armed in this worker's shard by the worker itself: callbacks, those that were built and not
    /// started included, and sleeps, each time that one begins to wait.
    armed_local,
    /// Timers armed in this worker's shard by other threads, likewise.
    armed_remote,
    /// Moves of timers that wait, or recur: [`refresh`](crate::timer::Timer::refresh),
    /// [`reset`](crate::timer::Timer::reset) and its kind, and those of sleeps.
    refreshed,
    /// Timers over because they ran: callbacks, counted where they ran, and sleeps.
    fired,
    /// Timers cancelled, dropped sleeps included.
    cancelled,
    /// Timers ended by the shutdown of the runtime.
    shut_down,
    /// Runs of callbacks. A recurring timer counts for each run.
    callbacks,
    /// Polls of tasks.
    polls,
    /// Callbacks and tasks that panicked.
    panics,
    /// Jobs that kept this worker for too long: see
    /// [`Builder::stall_threshold`](crate::runtime::Builder::stall_threshold).
    stalls,
    /// Times that this worker took jobs from another's queue.
    steal_operations,
    /// Jobs that it took at that; where a third took some of them away from it at the same moment, perhaps
    /// fewer.
    jobs_stolen,
    /// Times that this worker slept.
    parks,
    /// Times that this worker asked the kernel for events, with or without waiting.
    epoll_waits,
    /// How long this worker was awake, in ns, by the real clock, as of when it last was in its loop.
    busy_ns,
    /// Times that this worker was called because another had not come back in time.
    alarms,
    /// Those that were for nothing: the other was asleep by then, with nothing due.
    false_alarms,
    /// Timers that came due on another worker, which was busy, and were taken by this one.
    rescued_timers,
    /// Tasks of another worker, which was busy, that were woken by this one because their sockets were ready,
    /// or taken because they were next.
    rescued_tasks,
    /// Times that this worker was woken for a deadline or news, by a write to its eventfd.
    tickles_written,
    /// News that other threads brought to this worker without having to wake it. (A timer that was to be armed while the
    /// worker was awake, and had to wake it since it went to sleep that moment, is among them, too.)
    tickles_skipped,
    /// Times that this worker was woken to search for work.
    search_wakes,
    /// Times that the kernel woke this worker before the deadline that it slept for, or that of a stuck worker which it was
    /// called for, so that it waited for it awake: see
    /// [`Builder::timer_advance`](crate::runtime::Builder::timer_advance) and
    /// [`spin_before`](crate::runtime::Builder::spin_before).
    early_wakes,
}

impl Counters {
    /// The counter of timers that ended so.
    #[inline]
    pub(crate) fn over(&self, how: Outcome) -> &Counter {
        match how {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            _ => &self.shut_down,
        }
    }
}

impl Counts {
    /// Timers armed, by whichever thread.
    pub fn armed(&self) -> u64 {
        self.armed_local + self.armed_remote
    }

    /// Timers that are over, however they ended.
    pub fn over(&self) -> u64 {
        self.fired + self.cancelled + self.shut_down
    }

    /// [`busy_ns`](Counts::busy_ns) as a duration.
    pub fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_ns)
    }
}
