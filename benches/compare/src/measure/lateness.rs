//! How late things came that had a deadline.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{Acquire, Release},
    },
    time::Instant,
};

/// It has not begun to wait.
const NEW: u64 = 0;
/// It has begun to wait.
const WAITS: u64 = 1;
/// It came; the bits below are by how many ns it was late.
const CAME: u64 = 1 << 62;
/// With [`CAME`]: it was early, and by so much.
const EARLY: u64 = 1 << 63;

/// Where one timer notes how late it was: a word of its own, so that noting costs the same for all systems,
/// and next to nothing.
#[derive(Debug)]
pub struct Slot(AtomicU64);

impl Slot {
    /// It begins to wait.
    pub fn waits(&self) {
        self.0.store(WAITS, Release);
    }

    /// It has come: to be called first of all.
    pub fn came(&self, deadline: Instant) {
        let now = Instant::now();
        let word = match now.checked_duration_since(deadline) {
            Some(late) => CAME | late.as_nanos() as u64,
            None => CAME | EARLY | deadline.duration_since(now).as_nanos() as u64,
        };
        self.0.store(word, Release);
    }

    pub fn is_waiting(&self) -> bool {
        self.0.load(Acquire) != NEW
    }

    pub fn has_come(&self) -> bool {
        self.0.load(Acquire) & CAME != 0
    }
}

/// Slots for so many timers. Their memory has been written to, so that no page fault is billed to a timer; it
/// lives as long as the process, so that a task needs no more than a reference.
pub fn slots(count: usize) -> &'static [Slot] {
    (0..count)
        .map(|_| Slot(AtomicU64::new(NEW)))
        .collect::<Vec<_>>()
        .leak()
}

/// All slots, of which those at the beginning that are over need not be looked at again.
#[derive(Debug)]
pub struct Left(&'static [Slot]);

impl Left {
    pub fn of(slots: &'static [Slot]) -> Self {
        Self(slots)
    }

    /// True if all slots are `over`.
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

/// The lateness of all of them together.
#[derive(Debug)]
pub struct Lateness {
    /// In ns, in order.
    sorted: Vec<u64>,
    pub early: usize,
}

impl Lateness {
    /// All of these have come. Those that were early count as not late at all.
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

    /// In µs: the lateness that so many percent do not exceed.
    pub fn percentile(&self, percent: f64) -> f64 {
        let at = (self.sorted.len() as f64 * percent / 100.0) as usize;
        let at = at.min(self.sorted.len() - 1);
        self.sorted[at] as f64 / 1e3
    }
}

/// The middle one; of an even number the upper of two.
pub fn median(figures: impl IntoIterator<Item = f64>) -> f64 {
    let mut figures: Vec<_> = figures.into_iter().collect();
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}
