//! The ledger: slots. Each slot holds one timer after another, and records how each ended.
//!
//! A slot's *word* contains the generation, which numbers the slot's timers, and counts the ends of
//! the current timer: runs, successful cancels, and outcomes that its callback took. An end is
//! recorded with the generation of its timer. So an end is also detected as wrong when the slot
//! already has another timer. The first complete end frees the slot. The thread that records it
//! arms the next timer or queues the slot.
//!
//! The granted deadline is in the slot, under its lock. A thread that moves the timer holds the
//! lock until the runtime has answered. A callback takes the lock before it checks whether it is
//! early, so it knows the result of a concurrent move. Cancelling needs no lock, and races with
//! everything else.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Release},
    },
};

use tourbillon::Timer;

const RUN: u64 = 1;
const CANCEL: u64 = 1 << 8;
const TELL: u64 = 1 << 16;
const SHUTDOWN: u64 = 1 << 24;
/// The callback was dropped.
const DROPPED: u64 = 1 << 30;
/// The callback takes an outcome: a cancelled timer ends with the cancel and the outcome.
const TAKES_OUTCOME: u64 = 1 << 31;
/// The unit of the generation.
const GENERATION: u64 = 1 << 32;

/// How a timer ended, or one part of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its callback ran at the deadline.
    Run,
    /// The runtime answered that the timer was cancelled.
    Cancelled,
    /// Its callback took the outcome "cancelled".
    Told,
    /// Its callback took the outcome "shutdown".
    Shutdown,
}

impl End {
    fn unit(self) -> u64 {
        match self {
            End::Run => RUN,
            End::Cancelled => CANCEL,
            End::Told => TELL,
            End::Shutdown => SHUTDOWN,
        }
    }
}

/// The result of recording an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The timer is over: its end is complete.
    Over,
    /// The end is incomplete: another part is still missing.
    Partly,
    /// The timer was already over: a second end.
    Twice,
    /// The timer was already over, and the slot has another timer.
    Stray,
}

/// The state of a slot's timer, as granted by the runtime.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) timer: Option<Arc<Timer>>,
    /// The generation of the timer.
    pub(super) generation: u32,
    /// The timer must not fire before this time, in ns.
    pub(super) due: u64,
    /// Lateness counts from this time, in ns.
    pub(super) late_from: u64,
    /// The delay from the start of the wait, in ns, if known exactly.
    pub(super) wait: Option<u64>,
}

/// A slot, which holds one timer at a time.
#[derive(Default)]
pub(super) struct Slot {
    word: AtomicU64,
    held: Mutex<Held>,
}

fn part(word: u64, unit: u64) -> u64 {
    word / unit % 32
}

fn is_over(word: u64) -> bool {
    let (runs, cancels) = (part(word, RUN), part(word, CANCEL));
    let (tells, shutdowns) = (part(word, TELL), part(word, SHUTDOWN));
    if word & TAKES_OUTCOME == 0 {
        runs + cancels + shutdowns > 0
    } else {
        runs + shutdowns > 0 || (cancels > 0 && tells > 0)
    }
}

fn is_valid(word: u64) -> bool {
    let (runs, cancels) = (part(word, RUN), part(word, CANCEL));
    let (tells, shutdowns) = (part(word, TELL), part(word, SHUTDOWN));
    runs + cancels + shutdowns <= 1
        && tells <= 1
        && (tells == 0 || (word & TAKES_OUTCOME != 0 && runs + shutdowns == 0))
}

impl Slot {
    /// Locks the slot and returns its timer's state.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the next generation. Only the thread that took the free slot calls it.
    pub(super) fn open(&self, takes_outcome: bool) -> u32 {
        let last = self.word.load(Acquire) / GENERATION;
        let generation = (last as u32).wrapping_add(1);
        let kind = if takes_outcome { TAKES_OUTCOME } else { 0 };
        let word = u64::from(generation) * GENERATION + kind;
        self.word.store(word, Release);
        generation
    }

    fn change(&self, generation: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        let is_of_it = |word: u64| word / GENERATION == u64::from(generation);
        let update = |word| is_of_it(word).then(|| change(word));
        self.word.fetch_update(AcqRel, Acquire, update).ok()
    }

    /// Records an end of the timer of this generation.
    pub(super) fn note(&self, generation: u32, end: End) -> Noted {
        // Stop at 15, so that repeated ends do not overflow into the next field.
        let room = |word| part(word, end.unit()) < 15;
        let add = |word| if room(word) { word + end.unit() } else { word };
        match self.change(generation, add) {
            None => Noted::Stray,
            Some(before) if !is_valid(add(before)) || is_over(before) => Noted::Twice,
            Some(before) if is_over(add(before)) => Noted::Over,
            Some(_) => Noted::Partly,
        }
    }

    /// Records that the callback of this generation was dropped.
    pub(super) fn dropped(&self, generation: u32) {
        self.change(generation, |word| word | DROPPED);
    }

    /// Returns whether the callback of this generation was dropped. A past generation counts as
    /// dropped.
    pub(super) fn is_dropped(&self, generation: u32) -> bool {
        let word = self.word.load(Acquire);
        word / GENERATION != u64::from(generation) || word & DROPPED != 0
    }

    /// Returns whether the callback takes an outcome.
    pub(super) fn takes_outcome(&self) -> bool {
        self.word.load(Acquire) & TAKES_OUTCOME != 0
    }

    /// Returns whether the slot has a timer that is not over.
    pub(super) fn is_open(&self) -> bool {
        let word = self.word.load(Acquire);
        word / GENERATION != 0 && !is_over(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(takes_outcome: bool) -> (Slot, u32) {
        let slot = Slot::default();
        assert!(!slot.is_open());
        let generation = slot.open(takes_outcome);
        assert!(slot.is_open());
        (slot, generation)
    }

    #[test]
    fn one_end_is_correct_and_frees_the_slot() {
        for end in [End::Run, End::Cancelled] {
            let (slot, generation) = slot(false);
            assert_eq!(slot.note(generation, end), Noted::Over);
            assert!(!slot.is_open());
            assert_eq!(slot.open(false), generation + 1);
        }
    }

    #[test]
    fn a_callback_that_takes_outcomes_ends_with_the_cancel_and_the_outcome() {
        for ends in [[End::Cancelled, End::Told], [End::Told, End::Cancelled]] {
            let (slot, generation) = slot(true);
            assert_eq!(slot.note(generation, ends[0]), Noted::Partly);
            assert!(slot.is_open(), "the end is incomplete");
            assert_eq!(slot.note(generation, ends[1]), Noted::Over);
            assert!(!slot.is_open());
        }
        let (slot, generation) = slot(true);
        assert_eq!(slot.note(generation, End::Shutdown), Noted::Over);
    }

    #[test]
    fn a_second_end_is_detected() {
        let all = [End::Run, End::Cancelled, End::Told, End::Shutdown];
        for takes_outcome in [false, true] {
            for first in [End::Run, End::Shutdown] {
                for second in all {
                    let (slot, generation) = slot(takes_outcome);
                    assert_eq!(slot.note(generation, first), Noted::Over);
                    let noted = slot.note(generation, second);
                    assert_eq!(noted, Noted::Twice, "{takes_outcome} {first:?} {second:?}");
                }
            }
        }
        let (slot, generation) = slot(true);
        slot.note(generation, End::Cancelled);
        assert_eq!(slot.note(generation, End::Run), Noted::Twice);
        let (slot, generation) = self::slot(true);
        slot.note(generation, End::Told);
        assert_eq!(slot.note(generation, End::Told), Noted::Twice);
        // An outcome, although the callback takes none.
        let (slot, generation) = self::slot(false);
        assert_eq!(slot.note(generation, End::Told), Noted::Twice);
    }

    #[test]
    fn an_end_of_the_previous_timer_is_stray() {
        let (slot, generation) = slot(false);
        slot.note(generation, End::Run);
        let next = slot.open(true);
        assert_eq!(slot.note(generation, End::Run), Noted::Stray);
        assert!(slot.is_open(), "it does not end the next timer");
        assert_eq!(slot.note(next, End::Run), Noted::Over);
    }

    #[test]
    fn many_ends_do_not_overflow_into_the_next_field() {
        let (slot, generation) = slot(true);
        slot.note(generation, End::Run);
        for _ in 0..1_000 {
            assert_eq!(slot.note(generation, End::Run), Noted::Twice);
        }
        assert_eq!(part(slot.word.load(Acquire), CANCEL), 0);
    }

    #[test]
    fn a_dropped_callback_is_recorded() {
        let (slot, generation) = slot(false);
        assert!(!slot.is_dropped(generation));
        slot.dropped(generation);
        assert!(slot.is_dropped(generation));
        slot.note(generation, End::Run);
        let next = slot.open(false);
        slot.dropped(generation);
        assert!(
            !slot.is_dropped(next),
            "the drop belongs to the previous generation"
        );
    }
}
