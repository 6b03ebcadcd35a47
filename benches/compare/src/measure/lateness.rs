//! Lateness of timers: how long after its deadline each one came.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::Instant,
};

/// State of a slot whose timer has not begun to wait. It is not zero: the allocator gives zeroed
/// memory without a write, and the first timer of each page would then meet a page fault.
const NEW: u64 = 1;
/// State of a slot whose timer waits.
const WAITS: u64 = 2;
/// Flag of a slot whose timer has come. The bits below the flag hold the lateness in ns.
const CAME: u64 = 1 << 62;
/// Flag beside [`CAME`]: the timer came before its deadline. The low bits hold how early, in ns.
const EARLY: u64 = 1 << 63;

/// The word in which one timer records its lateness.
///
/// No two timers share a word, so a record is one store. It costs almost nothing, and the same on
/// all systems.
#[derive(Debug)]
pub struct Slot(AtomicU64);

impl Slot {
    /// Records that the timer begins to wait.
    pub fn waits(&self) {
        self.0.store(WAITS, Release);
    }

    /// Records that the timer has come, and how long after `deadline`.
    ///
    /// The task or callback must call this first, because any work before it adds to the lateness.
    pub fn came(&self, deadline: Instant) {
        let now = Instant::now();
        let word = match now.checked_duration_since(deadline) {
            Some(late) => CAME | late.as_nanos() as u64,
            None => CAME | EARLY | deadline.duration_since(now).as_nanos() as u64,
        };
        self.0.store(word, Release);
    }

    /// Returns whether the timer has begun to wait. This stays true after it has come.
    pub fn is_waiting(&self) -> bool {
        self.0.load(Acquire) != NEW
    }

    /// Returns whether the timer has come, early or late.
    pub fn has_come(&self) -> bool {
        self.0.load(Acquire) & CAME != 0
    }
}

/// Returns new slots for `count` timers.
///
/// This function writes to their memory, so that no timer pays for a page fault. It leaks the
/// memory, so that each task needs only a `'static` reference.
pub fn slots(count: usize) -> &'static [Slot] {
    (0..count)
        .map(|_| Slot(AtomicU64::new(NEW)))
        .collect::<Vec<_>>()
        .leak()
}

/// Slots that a task or thread still has to check, while it waits for all of them.
#[derive(Debug)]
pub struct Left(&'static [Slot]);

impl Left {
    /// Begins with all `slots`.
    pub fn of(slots: &'static [Slot]) -> Self {
        Self(slots)
    }

    /// Returns whether `over` is true of all slots.
    ///
    /// The slots at the front for which `over` is true are not checked again. So once `over` is
    /// true of a slot, it must stay true.
    pub fn is_over(&mut self, over: fn(&Slot) -> bool) -> bool {
        while let [slot, rest @ ..] = self.0 {
            if !over(slot) {
                return false;
            }
            self.0 = rest;
        }
        true
    }
}

/// The distribution of the lateness of many timers.
#[derive(Debug)]
pub struct Lateness {
    /// Lateness of each timer in ns, in ascending order. A timer that was early counts as 0.
    sorted: Vec<u64>,
    /// Number of timers that came before their deadline.
    pub early: usize,
}

impl Lateness {
    /// Collects the lateness of all `slots`.
    ///
    /// # Panics
    ///
    /// Panics if one of the timers has not come.
    pub fn of(slots: &[Slot]) -> Self {
        let words = slots.iter().map(|slot| slot.0.load(Acquire));
        let words = words.inspect(|word| assert!(word & CAME != 0, "it has not come yet"));
        let mut early = 0;
        let mut sorted: Vec<_> = words
            .map(|word| {
                if word & EARLY != 0 {
                    early += 1;
                    0
                } else {
                    word & !CAME
                }
            })
            .collect();
        sorted.sort_unstable();
        Self { sorted, early }
    }

    /// Returns the lateness that `percent` percent of the timers do not exceed, in µs.
    ///
    /// # Panics
    ///
    /// Panics if there are no timers.
    pub fn percentile(&self, percent: f64) -> f64 {
        let at = (self.sorted.len() as f64 * percent / 100.0) as usize;
        let at = at.min(self.sorted.len() - 1);
        self.sorted[at] as f64 / 1e3
    }
}
