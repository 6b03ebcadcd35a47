//! Counters: one set a worker, written by that worker alone (plain loads and stores), and one for
//! what happens on other threads.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use crossbeam::utils::CachePadded;
use tourbillon_shards::Outcome;

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// For the counter's one writer.
    #[inline]
    pub(crate) fn add_alone(&self, n: u64) {
        self.0.store(self.0.load(Relaxed) + n, Relaxed);
    }

    /// For any thread.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The counters of one writer.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        /// What a worker, or all of them, have done so far. Counts only grow; each is exact by
        /// itself, but they are not read at one moment.
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

counters! {
    /// Timers armed, sleeps not counted.
    armed,
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
    /// Times that this worker took work from another.
    steals,
    /// Times that this worker slept.
    parks,
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
    /// News that other threads brought to this worker without having to wake it.
    tickles_skipped,
    /// Times that this worker was woken to search for work.
    search_wakes,
}

impl Counters {
    /// The counter of timers that ended so.
    pub(crate) fn over(&self, how: Outcome) -> &Counter {
        match how {
            Outcome::Fired => &self.fired,
            Outcome::Cancelled => &self.cancelled,
            _ => &self.shut_down,
        }
    }
}

/// The counters of a worker.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    /// Written by the worker.
    pub(crate) own: CachePadded<Counters>,
    /// Written by other threads.
    foreign: Stripes,
}

/// Counters that many threads write at once: several sets, so that few threads write the same one. The line
/// of a counter that two threads write goes to and fro between them with each timer that they arm.
type Stripes = [CachePadded<Counters>; STRIPES];

const STRIPES: usize = 4;

/// Which of the sets is the calling thread's.
fn stripe() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
    STRIPE.with(|stripe| {
        if stripe.get() == usize::MAX {
            stripe.set(THREADS.fetch_add(1, Relaxed) % STRIPES);
        }
        stripe.get()
    })
}

impl WorkerCounters {
    pub(crate) fn read(&self) -> Counts {
        let mut counts = self.own.read();
        for stripe in &self.foreign {
            counts += &stripe.read();
        }
        counts
    }

    /// The counters for the calling thread, which is another than the worker.
    pub(crate) fn foreign(&self) -> &Counters {
        &self.foreign[stripe()]
    }
}

/// A look at a runtime's workers: see [`Handle::metrics`](crate::runtime::Handle::metrics).
#[derive(Clone, Debug)]
pub struct RuntimeMetrics {
    pub(crate) workers: Vec<WorkerMetrics>,
    pub(crate) injector_depth: usize,
    pub(crate) blocking: BlockingMetrics,
    pub(crate) helpers: HelperMetrics,
}

/// A look at the blocking threads.
#[derive(Clone, Debug)]
pub(crate) struct BlockingMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) queued: usize,
}

/// A look at the helpers.
#[derive(Clone, Debug)]
pub(crate) struct HelperMetrics {
    pub(crate) threads: usize,
    pub(crate) idle: usize,
    pub(crate) started: u64,
    /// What they have done, those that have ended included.
    pub(crate) counts: Counts,
}

/// A look at one worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// What it has done.
    pub counts: Counts,
    /// Timers that stand in its store.
    pub stored: usize,
    /// Timers cancelled from other threads of which its store has not heard: at most 64 or a quarter of
    /// the pending ones, whichever is more, even while the worker is blocked, and what was cancelled
    /// while somebody was at the shard. Those that are being swept, 256 at a time, count until all are:
    /// that may be a hundredth more.
    pub garbage: usize,
    /// Jobs in its deque.
    pub queue_depth: usize,
    /// Tasks that are [pinned](crate::task::spawn_pinned) to it and have not ended, those that
    /// [`spawn_local`](crate::task::spawn_local) made included.
    pub pinned_tasks: usize,
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

    /// What all workers together have done, and the helpers.
    pub fn total(&self) -> Counts {
        let mut sum = self.helpers.counts.clone();
        for worker in &self.workers {
            sum += &worker.counts;
        }
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

    /// What helpers have done, those that have ended included.
    pub fn helper_counts(&self) -> &Counts {
        &self.helpers.counts
    }

    /// Jobs that came from outside and wait for a worker.
    pub fn global_queue_depth(&self) -> usize {
        self.injector_depth
    }

    /// How many threads there are for [`spawn_blocking`](crate::task::spawn_blocking), idle ones
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
    pub fn num_idle_blocking_threads(&self) -> usize {
        self.blocking.idle
    }

    /// How many jobs wait for one of them.
    pub fn blocking_queue_depth(&self) -> usize {
        self.blocking.queued
    }
}
