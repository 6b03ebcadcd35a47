//! What happened, and how late: counts that few threads share, and what was found to be wrong.

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

/// The end of the scale of lateness, in ns: a day. What is later counts as that.
const SCALE: u64 = 86_400_000_000_000;
/// So many threads count without disturbing each other.
const STRIPES: usize = 32;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Count { $($(#[$doc])* $name,)* }

        /// What each is called in the report.
        const NAMES: &[(Count, &str)] = &[$((Count::$name, $text),)*];
    };
}

counts! {
    /// Timers of the ledger, whoever armed them.
    Armed = "armed",
    /// Those that ran.
    Fired = "fired",
    /// Those that were cancelled.
    Cancelled = "cancelled",
    /// Those that the shutdown ended.
    ShutDown = "shut_down",
    /// Of those that were armed: by a callback.
    ByCallback = "armed_by_callbacks",
    /// By a task.
    ByTask = "armed_by_tasks",
    /// By a thread outside of the runtime.
    ByThread = "armed_by_threads",
    /// Refreshed or reset.
    Moved = "moved",
    /// Was to be cancelled or moved, and ran already or was over.
    TooLate = "too_late",
    /// Callbacks that were made: each has to be dropped.
    Made = "callbacks_made",
    /// Callbacks that were dropped.
    Dropped = "callbacks_dropped",
    /// Runs of callbacks, of those that recur or are told as well.
    Runs = "callback_runs",
    /// Panics of callbacks, tasks and jobs, all meant.
    Panics = "panics",
    /// Recurring timers.
    Recurring = "recurring",
    /// Tasks that slept.
    Sleeps = "sleeps",
    /// Timeouts that elapsed, or not.
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
    /// Runtimes that were built and dropped beside this one.
    Beside = "runtimes_beside",
}

/// The counts of few threads.
#[repr(align(128))]
struct Stripe {
    counts: [AtomicU64; NAMES.len()],
    late: Mutex<Histogram<u64>>,
}

/// All counts.
pub(super) struct Tally(Box<[Stripe]>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An empty histogram of lateness, in ns.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_max(SCALE, 2).expect("the scale is a valid one")
}

impl Tally {
    pub(super) fn new() -> Self {
        let stripes = (0..STRIPES).map(|_| Stripe {
            counts: [const { AtomicU64::new(0) }; NAMES.len()],
            late: Mutex::new(histogram()),
        });
        Self(stripes.collect())
    }

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

    /// Counts one.
    pub(super) fn count(&self, what: Count) {
        self.add(what, 1);
    }

    /// Counts several.
    pub(super) fn add(&self, what: Count, n: u64) {
        self.stripe().counts[what as usize].fetch_add(n, Relaxed);
    }

    /// What was counted.
    pub(super) fn get(&self, what: Count) -> u64 {
        let counts = self
            .0
            .iter()
            .map(|it| it.counts[what as usize].load(Relaxed));
        counts.sum()
    }

    /// All that was counted, by name.
    pub(super) fn all(&self) -> BTreeMap<&'static str, u64> {
        NAMES
            .iter()
            .map(|&(what, name)| (name, self.get(what)))
            .collect()
    }

    /// A timer was late by so much, in ns.
    pub(super) fn late(&self, ns: u64) {
        lock(&self.stripe().late).saturating_record(ns);
    }

    /// How late timers were since this was last asked.
    pub(super) fn take_lateness(&self) -> Histogram<u64> {
        let mut sum = histogram();
        for stripe in &self.0 {
            let mut late = lock(&stripe.late);
            sum.add(&*late).expect("all are of one scale");
            late.reset();
        }
        sum
    }
}

/// Something that should not have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Fault {
    pub(super) what: &'static str,
    pub(super) times: u64,
    /// What there was to say the first time.
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

/// All that should not have happened.
#[derive(Default)]
pub(super) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Notes one more.
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

    /// Notes one more, unless it is as it should be.
    pub(super) fn unless(&self, so: bool, what: &'static str, detail: impl fmt::Display) {
        if !so {
            self.add(what, detail);
        }
    }

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
    fn names_stand_where_their_counts_are() {
        for (i, &(what, _)) in NAMES.iter().enumerate() {
            assert_eq!(what as usize, i);
        }
    }

    #[test]
    fn faults_are_counted_by_what_they_are() {
        let faults = Faults::default();
        faults.unless(true, "early", "never");
        assert_eq!(faults.all(), []);
        faults.unless(false, "early", "by 3 ns");
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
