//! The books: slots, each of which has one timer after another, and what became of each.
//!
//! A slot's *word* has the number of its timer, its generation, and the ends that this timer came to: runs, answers
//! that it was cancelled, and outcomes that its callback was told. Whoever notes an end says of which generation it is;
//! so an end that comes when the slot has its next timer already is found out, too. One end, and the slot is free:
//! who noted it arms the next.
//!
//! The deadline that a timer has by rights stands under the slot's lock, which is held by who moves the timer until
//! the runtime has answered. A callback takes the lock before it judges whether it is early: so it knows whether a
//! move that was under way was granted. Cancelling needs no lock, and races with all else.

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
/// The callback takes an outcome: if the timer is cancelled it is told so, which belongs to its end.
const TOLD: u64 = 1 << 31;
/// Generations count from here.
const GENERATION: u64 = 1 << 32;

/// How a timer ended, or a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Its callback ran, as it was due.
    Run,
    /// The runtime answered that it was cancelled.
    Cancelled,
    /// Its callback was told that it was cancelled.
    Told,
    /// Its callback was told of the shutdown.
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

/// What noting an end came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// The timer is over with it.
    Over,
    /// Another part of its end is still to come.
    Partly,
    /// It was over.
    Twice,
    /// It was over, and the slot has another timer.
    Stray,
}

/// What a slot's timer is to do, by rights.
#[derive(Debug, Default)]
pub(super) struct Held {
    pub(super) timer: Option<Arc<Timer>>,
    /// Which of the slot's timers it is.
    pub(super) generation: u32,
    /// The moment before which it may not run, in ns.
    pub(super) due: u64,
    /// From when on it is late, in ns.
    pub(super) late_from: u64,
    /// For how long it waits, in ns, where that is known exactly.
    pub(super) wait: Option<u64>,
}

/// A slot.
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
    if word & TOLD == 0 {
        runs + cancels + shutdowns > 0
    } else {
        runs + shutdowns > 0 || (cancels > 0 && tells > 0)
    }
}

fn is_well(word: u64) -> bool {
    let (runs, cancels) = (part(word, RUN), part(word, CANCEL));
    let (tells, shutdowns) = (part(word, TELL), part(word, SHUTDOWN));
    runs + cancels + shutdowns <= 1
        && tells <= 1
        && (tells == 0 || (word & TOLD != 0 && runs + shutdowns == 0))
}

impl Slot {
    /// What its timer is to do.
    pub(super) fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the next generation, for who owns the slot while it is free.
    pub(super) fn open(&self, told: bool) -> u32 {
        let last = self.word.load(Acquire) / GENERATION;
        let generation = (last as u32).wrapping_add(1);
        let kind = if told { TOLD } else { 0 };
        let word = u64::from(generation) * GENERATION + kind;
        self.word.store(word, Release);
        generation
    }

    fn change(&self, generation: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        let is_of_it = |word: u64| word / GENERATION == u64::from(generation);
        let update = |word| is_of_it(word).then(|| change(word));
        self.word.fetch_update(AcqRel, Acquire, update).ok()
    }

    /// Notes an end of the timer of this generation.
    pub(super) fn note(&self, generation: u32, end: End) -> Noted {
        // A timer that ends again and again does not count into the next field.
        let room = |word| part(word, end.unit()) < 15;
        let add = |word| if room(word) { word + end.unit() } else { word };
        match self.change(generation, add) {
            None => Noted::Stray,
            Some(before) if !is_well(add(before)) || is_over(before) => Noted::Twice,
            Some(before) if is_over(add(before)) => Noted::Over,
            Some(_) => Noted::Partly,
        }
    }

    /// The callback of this generation was dropped.
    pub(super) fn dropped(&self, generation: u32) {
        self.change(generation, |word| word | DROPPED);
    }

    /// Whether the callback of this generation, as long as it is the slot's, was dropped.
    pub(super) fn is_dropped(&self, generation: u32) -> bool {
        let word = self.word.load(Acquire);
        word / GENERATION != u64::from(generation) || word & DROPPED != 0
    }

    /// Whether it takes an outcome.
    pub(super) fn is_told(&self) -> bool {
        self.word.load(Acquire) & TOLD != 0
    }

    /// Whether it has a timer that is not over.
    pub(super) fn is_open(&self) -> bool {
        let word = self.word.load(Acquire);
        word / GENERATION != 0 && !is_over(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(told: bool) -> (Slot, u32) {
        let slot = Slot::default();
        assert!(!slot.is_open());
        let generation = slot.open(told);
        assert!(slot.is_open());
        (slot, generation)
    }

    #[test]
    fn one_end_is_well_and_frees_the_slot() {
        for end in [End::Run, End::Cancelled] {
            let (slot, generation) = slot(false);
            assert_eq!(slot.note(generation, end), Noted::Over);
            assert!(!slot.is_open());
            assert_eq!(slot.open(false), generation + 1);
        }
    }

    #[test]
    fn who_takes_an_outcome_is_cancelled_and_told() {
        for ends in [[End::Cancelled, End::Told], [End::Told, End::Cancelled]] {
            let (slot, generation) = slot(true);
            assert_eq!(slot.note(generation, ends[0]), Noted::Partly);
            assert!(slot.is_open(), "it would be lost without the other part");
            assert_eq!(slot.note(generation, ends[1]), Noted::Over);
            assert!(!slot.is_open());
        }
        let (slot, generation) = slot(true);
        assert_eq!(slot.note(generation, End::Shutdown), Noted::Over);
    }

    #[test]
    fn any_second_end_is_found() {
        let all = [End::Run, End::Cancelled, End::Told, End::Shutdown];
        for told in [false, true] {
            for first in [End::Run, End::Shutdown] {
                for second in all {
                    let (slot, generation) = slot(told);
                    assert_eq!(slot.note(generation, first), Noted::Over);
                    let noted = slot.note(generation, second);
                    assert_eq!(noted, Noted::Twice, "{told} {first:?} {second:?}");
                }
            }
        }
        let (slot, generation) = slot(true);
        slot.note(generation, End::Cancelled);
        assert_eq!(slot.note(generation, End::Run), Noted::Twice);
        let (slot, generation) = self::slot(true);
        slot.note(generation, End::Told);
        assert_eq!(slot.note(generation, End::Told), Noted::Twice);
        // Told, though it takes no outcome.
        let (slot, generation) = self::slot(false);
        assert_eq!(slot.note(generation, End::Told), Noted::Twice);
    }

    #[test]
    fn an_end_of_the_last_timer_is_a_stray() {
        let (slot, generation) = slot(false);
        slot.note(generation, End::Run);
        let next = slot.open(true);
        assert_eq!(slot.note(generation, End::Run), Noted::Stray);
        assert!(slot.is_open(), "it is none of the next timer's");
        assert_eq!(slot.note(next, End::Run), Noted::Over);
    }

    #[test]
    fn ends_without_number_are_not_taken_for_others() {
        let (slot, generation) = slot(true);
        slot.note(generation, End::Run);
        for _ in 0..1_000 {
            assert_eq!(slot.note(generation, End::Run), Noted::Twice);
        }
        assert_eq!(part(slot.word.load(Acquire), CANCEL), 0);
    }

    #[test]
    fn a_callback_that_was_dropped_is_known() {
        let (slot, generation) = slot(false);
        assert!(!slot.is_dropped(generation));
        slot.dropped(generation);
        assert!(slot.is_dropped(generation));
        slot.note(generation, End::Run);
        let next = slot.open(false);
        slot.dropped(generation);
        assert!(!slot.is_dropped(next), "that was the last one's");
    }
}
