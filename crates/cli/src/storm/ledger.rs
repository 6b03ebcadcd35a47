//! The ledger: the granted deadline of each timer, and what happened to it.
//!
//! The arming thread writes the deadline. Afterwards only the timer's one meddler writes it, once
//! the runtime has answered that the timer was moved. The callback reads the clock and writes when
//! it ran, and that it ran. The ledger is evaluated only after all of them have finished. While a
//! deadline is being moved and the timer fires at the same time, only the runtime's answer says
//! which deadline counts.

use std::{
    hint::black_box,
    sync::{
        OnceLock,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use hdrhistogram::Histogram;
use tourbillon::{Timer, time::Instant};

use super::lanes;

/// One timer's record. Two of them share a cache line.
#[repr(align(32))]
struct Record {
    /// The last granted deadline, in ns. The timer must not fire before it.
    due: AtomicU64,
    /// The delay from the start of the wait, in ns, if known exactly.
    wait: AtomicU64,
    /// When it first ran, in ns.
    ran_at: AtomicU64,
    /// Number of runs in the low half, number of successful cancels in the high half.
    ends: AtomicU32,
}

const RUN: u32 = 1;
const CANCEL: u32 = 1 << 16;

/// Upper end of the lateness histogram, in ns: one day. Later timers count as one day.
const SCALE: u64 = 86_400_000_000_000;

/// The records and handles of all timers.
pub(super) struct Ledger {
    origin: Instant,
    records: Box<[Record]>,
    /// Set when the timer is armed. `None` for a task that sleeps.
    timers: Box<[OnceLock<Option<Timer>>]>,
}

/// The evaluated ledger.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) armed: u64,
    pub(super) fired: u64,
    pub(super) cancelled: u64,
    /// Timers that were armed but neither ran nor were cancelled.
    pub(super) lost: u64,
    /// Timers that ended more than once: two runs, two cancels, or both.
    pub(super) duplicated: u64,
    /// Timers that fired before their deadlines.
    pub(super) early: u64,
    /// Lateness of the timers that ran, in ns after their deadlines.
    pub(super) lateness: Histogram<u64>,
}

impl Ledger {
    /// Allocates a ledger. Its memory is resident before the storm, so that it does not count as
    /// the timers' memory.
    pub(super) fn new(timers: u32) -> Self {
        let records = (0..timers).map(|_| Record {
            due: AtomicU64::new(u64::MAX),
            wait: AtomicU64::new(0),
            ran_at: AtomicU64::new(0),
            ends: AtomicU32::new(0),
        });
        // `black_box` keeps the compiler from asking for zeroed pages, which would become resident
        // later.
        let handles = (0..timers).map(|_| black_box(OnceLock::new()));
        Self {
            origin: Instant::now(),
            records: records.collect(),
            timers: handles.collect(),
        }
    }

    /// Returns the time since the ledger was made, in ns.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Converts a time of this ledger to an instant.
    pub(super) fn instant(&self, nanos: u64) -> Instant {
        self.origin + Duration::from_nanos(nanos)
    }

    /// Records a run; each timer's callback calls it.
    #[inline]
    pub(super) fn ran(&self, index: u32) {
        let now = self.now();
        if self.end(index, RUN).is_multiple_of(CANCEL) {
            self.records[index as usize].ran_at.store(now, Relaxed);
        }
        lanes::count(|lane| &lane.fired);
    }

    /// Records that a timer was armed.
    pub(super) fn enter(&self, index: u32, timer: Option<Timer>) {
        let entered = self.timers[index as usize].set(timer);
        debug_assert!(entered.is_ok(), "timer {index} was armed twice");
        lanes::count(|lane| &lane.armed);
    }

    /// Returns the timer, once it is armed.
    pub(super) fn timer(&self, index: u32) -> Option<&Timer> {
        self.timers[index as usize].get()?.as_ref()
    }

    /// Records the deadline that the runtime granted.
    pub(super) fn granted(&self, index: u32, due: u64) {
        self.records[index as usize].due.store(due, Relaxed);
    }

    /// Records the delay that the runtime granted.
    pub(super) fn granted_wait(&self, index: u32, wait: u64) {
        self.records[index as usize].wait.store(wait, Relaxed);
    }

    /// Returns a timer's deadline and delay. Only the thread that arms or moves the timer calls it.
    pub(super) fn asked(&self, index: u32) -> (u64, u64) {
        let record = &self.records[index as usize];
        (record.due.load(Relaxed), record.wait.load(Relaxed))
    }

    /// Records that the runtime answered "cancelled".
    pub(super) fn cancelled(&self, index: u32) {
        self.end(index, CANCEL);
    }

    /// Adds an end to a timer's record. Returns the ends recorded before.
    fn end(&self, index: u32, how: u32) -> u32 {
        let before = self.records[index as usize].ends.fetch_add(how, Relaxed);
        if before == 0 {
            lanes::count(|lane| &lane.ended);
        }
        before
    }

    /// Evaluates the ledger, after the last write.
    pub(super) fn verdict(&self) -> Verdict {
        let mut verdict = Verdict {
            armed: 0,
            fired: 0,
            cancelled: 0,
            lost: 0,
            duplicated: 0,
            early: 0,
            lateness: Histogram::new_with_max(SCALE, 3).expect("the scale is a valid one"),
        };
        for (record, timer) in self.records.iter().zip(&self.timers) {
            let ends = record.ends.load(Relaxed);
            let (runs, cancels) = (ends % CANCEL, ends / CANCEL);
            verdict.armed += u64::from(timer.get().is_some());
            verdict.fired += u64::from(runs > 0);
            verdict.cancelled += u64::from(cancels > 0);
            verdict.lost += u64::from(timer.get().is_some() && ends == 0);
            // More than one end is a fault, in any combination.
            verdict.duplicated += u64::from(runs + cancels > 1);
            if runs > 0 {
                let (ran_at, due) = (record.ran_at.load(Relaxed), record.due.load(Relaxed));
                // Compare with the last granted deadline, which may be later than the first one.
                verdict.early += u64::from(ran_at < due);
                verdict
                    .lateness
                    .saturating_record(ran_at.saturating_sub(due));
            }
        }
        verdict
    }
}
