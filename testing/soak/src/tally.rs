//! Counters in stripes, the lateness of timers, and the faults that were found.

use std::{
    cell::Cell,
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

use hdrhistogram::Histogram;
use serde::Serialize;
use tourbillon_cli::ledger::histogram;

/// Number of stripes. Threads on different stripes do not contend.
const STRIPES: usize = 32;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// A counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Count { $($(#[$doc])* $name,)* }

        /// The counters' names in the report.
        const NAMES: &[(Count, &str)] = &[$((Count::$name, $text),)*];
    };
}

counts! {
    /// Timers of the ledger that were armed.
    Armed = "armed",
    /// Timers that fired.
    Fired = "fired",
    /// Timers that were cancelled.
    Cancelled = "cancelled",
    /// Timers that the shutdown ended.
    ShutDown = "shut_down",
    /// Timers that a callback armed.
    ByCallback = "armed_by_callbacks",
    /// Timers that a task armed.
    ByTask = "armed_by_tasks",
    /// Timers that a thread outside the runtime armed.
    ByThread = "armed_by_threads",
    /// Timers that were refreshed or reset.
    Moved = "moved",
    /// Cancels and moves that came after the timer fired.
    TooLate = "too_late",
    /// Callbacks that were made. Each must be dropped.
    Made = "callbacks_made",
    /// Callbacks that were dropped.
    Dropped = "callbacks_dropped",
    /// Runs of callbacks, including recurring ones and outcomes.
    Runs = "callback_runs",
    /// Deliberate panics of callbacks, tasks and jobs.
    Panics = "panics",
    /// Recurring timers.
    Recurring = "recurring",
    /// Tasks that slept.
    Sleeps = "sleeps",
    /// Timeouts, elapsed or not.
    Timeouts = "timeouts",
    /// Tasks that were aborted while they waited.
    Aborted = "aborted",
    /// Timers that were found by their names.
    Named = "named",
    /// Timers of the wall clock and the boot clock.
    Clocks = "other_clocks",
    /// Jobs on blocking threads.
    Blocking = "blocking_jobs",
    /// Messages that came back over TCP.
    Echoes = "echoes",
    /// Reads that timed out, as they should.
    ReadTimeouts = "read_timeouts",
    /// Workers that were blocked for a while.
    Blocked = "workers_blocked",
    /// Runtimes that were built and dropped beside the one under test.
    Beside = "runtimes_beside",
}

/// The counters of a few threads.
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; NAMES.len()],
    late: Mutex<Histogram<u64>>,
}

/// All counters.
pub(super) struct Tally(Box<[Stripe]>);

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Tally {
    pub(super) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Stripe {
            counts: [const { AtomicU64::new(0) }; NAMES.len()],
            late: Mutex::new(histogram(2)),
        });
        Self(stripes.collect())
    }

    /// Returns the calling thread's stripe.
    fn stripe(&self) -> &Stripe {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static NUMBER: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let number = NUMBER.get().unwrap_or_else(|| {
            let number = NEXT.fetch_add(1, Relaxed) % STRIPES;
            NUMBER.set(Some(number));
            number
        });
        &self.0[number]
    }

    /// Adds one to a counter.
    pub(super) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Adds `n` to a counter.
    pub(super) fn add(&self, what: Count, n: u64) {
        self.stripe().counts[what as usize].fetch_add(n, Relaxed);
    }

    /// Returns a counter, summed over all stripes.
    pub(super) fn get(&self, what: Count) -> u64 {
        let counts = self
            .0
            .iter()
            .map(|it| it.counts[what as usize].load(Relaxed));
        counts.sum()
    }

    /// Returns all counters by name.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        NAMES
            .iter()
            .map(|&(what, name)| (name, self.get(what)))
            .collect()
    }

    /// Records a timer's lateness, in ns.
    pub(super) fn late(&self, ns: u64) {
        lock(&self.stripe().late).saturating_record(ns);
    }

    /// Returns the lateness recorded since the last call.
    pub(super) fn take_lateness(&self) -> Histogram<u64> {
        let mut sum = histogram(2);
        for stripe in &self.0 {
            let mut late = lock(&stripe.late);
            sum.add(&*late).expect("all are of one scale");
            late.reset();
        }
        sum
    }
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) times: u64,
    /// Details of the first occurrence.
    pub(super) first: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.times == 1 { "" } else { "s" };
        write!(f, "{} time{plural}: {}", self.times, self.what)?;
        if self.first.is_empty() {
            return Ok(());
        }
        write!(f, ": {}", self.first)
    }
}

/// All faults so far.
#[derive(Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Records a fault. Faults of one kind are counted together.
    pub(super) fn add(&self, what: &'static str, detail: impl fmt::Display) {
        let mut faults = lock(&self.0);
        match faults.iter_mut().find(|fault| fault.what == what) {
            Some(fault) => fault.times += 1,
            None => faults.push(Fault {
                what,
                times: 1,
                first: detail.to_string(),
            }),
        }
    }

    /// Returns a copy of all faults.
    pub(super) fn all(&self) -> Vec<Fault> {
        lock(&self.0).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_all_threads_add_up() {
        let tally = Tally::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for late in 0..1_000 {
                        tally.count(Count::Fired);
                        tally.late(late);
                    }
                });
            }
        });
        assert_eq!(tally.get(Count::Fired), 4_000);
        assert_eq!(tally.all()["fired"], 4_000);
        assert_eq!(tally.all().len(), NAMES.len());
        assert_eq!(tally.take_lateness().len(), 4_000);
        assert_eq!(tally.take_lateness().len(), 0);
    }

    #[test]
    fn names_are_in_the_order_of_their_counters() {
        for (i, &(what, _)) in NAMES.iter().enumerate() {
            assert_eq!(what as usize, i);
        }
    }

    #[test]
    fn faults_are_counted_by_kind() {
        let faults = Faults::default();
        assert_eq!(faults.all(), []);
        faults.add("early", "by 3 ns");
        faults.add("early", "by 4 ns");
        faults.add("lost", 7);
        let fault = |what, times, first: &str| Fault {
            what,
            times,
            first: first.to_owned(),
        };
        let wanted = [fault("early", 2, "by 3 ns"), fault("lost", 1, "7")];
        assert_eq!(faults.all(), wanted);
        assert_eq!(wanted[0].to_string(), "2 times: early: by 3 ns");
        assert_eq!(fault("gone", 1, "").to_string(), "1 time: gone");
    }
}
