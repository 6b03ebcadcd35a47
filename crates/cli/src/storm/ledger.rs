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
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use hdrhistogram::Histogram;
use tourbillon::Timer;

use super::lanes;
use crate::ledger::{Clock, End, Entry, Granted, Noted, histogram};

/// One timer's record. Two of them share a cache line.
#[repr(align(32))]
struct Record {
    /// The last granted deadline, in ns. The timer must not fire before it.
    due: AtomicU64,
    /// The delay from the start of the wait, in ns, or [`UNKNOWN`].
    wait: AtomicU64,
    /// When it ran, in ns.
    ran_at: AtomicU64,
    entry: Entry,
}

const UNKNOWN: u64 = u64::MAX;

/// The records and handles of all timers.
pub(super) struct Ledger {
    pub(super) clock: Clock,
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
            wait: AtomicU64::new(UNKNOWN),
            ran_at: AtomicU64::new(0),
            entry: Entry::default(),
        });
        // `black_box` keeps the compiler from asking for zeroed pages, which would become resident
        // later.
        let handles = (0..timers).map(|_| black_box(OnceLock::new()));
        Self {
            clock: Clock::start(),
            records: records.collect(),
            timers: handles.collect(),
        }
    }

    /// Records a run; each timer's callback calls it.
    #[inline]
    pub(super) fn ran(&self, index: u32) {
        let now = self.clock.now();
        if self.end(index, End::Run) {
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

    /// Records what the runtime granted.
    pub(super) fn grant(&self, index: u32, granted: Granted) {
        let record = &self.records[index as usize];
        record.due.store(granted.due, Relaxed);
        record.wait.store(granted.wait.unwrap_or(UNKNOWN), Relaxed);
    }

    /// Returns what the runtime granted. Only the thread that arms or moves the timer calls it.
    pub(super) fn granted(&self, index: u32) -> Granted {
        let record = &self.records[index as usize];
        let wait = record.wait.load(Relaxed);
        Granted {
            due: record.due.load(Relaxed),
            wait: (wait != UNKNOWN).then_some(wait),
        }
    }

    /// Records that the runtime answered "cancelled".
    pub(super) fn cancelled(&self, index: u32) {
        self.end(index, End::Cancelled);
    }

    /// Records an end of a timer. Returns whether it is the only one so far.
    fn end(&self, index: u32, end: End) -> bool {
        // Each record has one timer, the first one of its entry.
        let is_over = self.records[index as usize].entry.note(0, end) == Noted::Over;
        if is_over {
            lanes::count(|lane| &lane.ended);
        }
        is_over
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
            lateness: histogram(3),
        };
        for (record, timer) in self.records.iter().zip(&self.timers) {
            let (ends, is_armed) = (record.entry.ends(), timer.get().is_some());
            verdict.armed += u64::from(is_armed);
            verdict.fired += u64::from(ends.has(End::Run));
            verdict.cancelled += u64::from(ends.has(End::Cancelled));
            verdict.lost += u64::from(is_armed && !ends.is_over());
            verdict.duplicated += u64::from(!ends.are_right());
            if ends.has(End::Run) && ends.are_right() {
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
