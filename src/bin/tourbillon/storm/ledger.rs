//! The books: for each timer what was asked for, and what happened.
//!
//! Who writes what: the deadline that a timer has by rights is written by who armed it, and from
//! then on by the one meddler that moves it, when the runtime has answered that it was moved. A
//! callback writes when it ran, by a clock read there and then, and that it ran. No judgement is
//! passed before all of them are through: a deadline that is being moved while the timer comes due
//! would be judged by what it was, or what it was going to be. The runtime's answer says which.

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

/// What is known of one timer. Two of them share a cache line.
#[repr(align(32))]
struct Record {
    /// The moment before which it may not run, in ns: the last that was asked for and granted.
    due: AtomicU64,
    /// Its wait, in ns, where that is known exactly.
    wait: AtomicU64,
    /// When it ran for the first time, in ns.
    ran_at: AtomicU64,
    /// How often it ran, in the low half, and how often it was said to be cancelled, in the high.
    ends: AtomicU32,
}

const RUN: u32 = 1;
const CANCEL: u32 = 1 << 16;

/// The end of the scale of lateness, in ns: a day. What is later counts as that.
const SCALE: u64 = 86_400_000_000_000;

/// The books.
pub(super) struct Ledger {
    origin: Instant,
    records: Box<[Record]>,
    timers: Box<[OnceLock<Timer>]>,
}

/// What the books say when all is over.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) armed: u64,
    pub(super) fired: u64,
    pub(super) cancelled: u64,
    /// Timers that neither ran nor were cancelled.
    pub(super) lost: u64,
    /// Timers that ran twice, were cancelled twice, or were cancelled and ran.
    pub(super) duplicated: u64,
    /// Timers that ran before their deadlines.
    pub(super) early: u64,
    /// Of the timers that ran: how long after their deadlines, in ns.
    pub(super) lateness: Histogram<u64>,
}

impl Ledger {
    /// Books for so many timers. Their memory is there already, and will not be mistaken for the
    /// timers' own.
    pub(super) fn new(timers: u32) -> Self {
        let records = (0..timers).map(|_| Record {
            due: AtomicU64::new(u64::MAX),
            wait: AtomicU64::new(0),
            ran_at: AtomicU64::new(0),
            ends: AtomicU32::new(0),
        });
        // What is zero all over might be taken from the system untouched, were it not for the box.
        let handles = (0..timers).map(|_| black_box(OnceLock::new()));
        Self {
            origin: Instant::now(),
            records: records.collect(),
            timers: handles.collect(),
        }
    }

    /// The present, in ns.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// A moment of this clock.
    pub(super) fn instant(&self, nanos: u64) -> Instant {
        self.origin + Duration::from_nanos(nanos)
    }

    /// The callback of each timer.
    #[inline]
    pub(super) fn ran(&self, index: u32) {
        let now = self.now();
        if self.end(index, RUN) % CANCEL == 0 {
            self.records[index as usize].ran_at.store(now, Relaxed);
        }
        lanes::count(|lane| &lane.fired);
    }

    /// A timer was armed.
    pub(super) fn enter(&self, index: u32, timer: Timer) {
        let entered = self.timers[index as usize].set(timer);
        debug_assert!(entered.is_ok(), "timer {index} was armed twice");
        lanes::count(|lane| &lane.armed);
    }

    /// The timer, once it is armed.
    pub(super) fn timer(&self, index: u32) -> Option<&Timer> {
        self.timers[index as usize].get()
    }

    /// A timer is due at `due`, as was asked for and granted.
    pub(super) fn granted(&self, index: u32, due: u64) {
        self.records[index as usize].due.store(due, Relaxed);
    }

    /// A timer's wait is `wait`, as was asked for and granted.
    pub(super) fn granted_wait(&self, index: u32, wait: u64) {
        self.records[index as usize].wait.store(wait, Relaxed);
    }

    /// The deadline and the wait of a timer. For who arms or moves it.
    pub(super) fn asked(&self, index: u32) -> (u64, u64) {
        let record = &self.records[index as usize];
        (record.due.load(Relaxed), record.wait.load(Relaxed))
    }

    /// A timer was cancelled: so the runtime says.
    pub(super) fn cancelled(&self, index: u32) {
        self.end(index, CANCEL);
    }

    /// Notes one end of a timer, which should be the only one; answers those before.
    fn end(&self, index: u32, how: u32) -> u32 {
        let before = self.records[index as usize].ends.fetch_add(how, Relaxed);
        if before == 0 {
            lanes::count(|lane| &lane.ended);
        }
        before
    }

    /// What the books say. For when nobody writes them any more.
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
            verdict.duplicated += u64::from(runs + cancels > 1);
            if runs > 0 {
                let (ran_at, due) = (record.ran_at.load(Relaxed), record.due.load(Relaxed));
                verdict.early += u64::from(ran_at < due);
                verdict
                    .lateness
                    .saturating_record(ran_at.saturating_sub(due));
            }
        }
        verdict
    }
}
