//! The ledger of a load test: what the runtime granted to each timer, and how the timer ended.
//!
//! The storm and the soak keep it; what they do to the timers is their own. The rules are here:
//!
//! - A timer ends once ([`Ends`]). An [`Entry`] counts its ends, whichever threads record them.
//! - A timer never fires before the deadline that the runtime [granted](Granted) last.

mod ends;

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Release},
    },
    time::Duration,
};

use hdrhistogram::Histogram;
use tourbillon::{Timer, time::Instant, timer::Reset};

pub use self::ends::{End, Ends};

/// The clock of a ledger, which counts ns from its start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Returns a clock that starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start, in ns.
    #[inline]
    pub fn now(&self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Converts a time of this clock to an instant.
    pub fn instant(&self, nanos: u64) -> Instant {
        self.0 + Duration::from_nanos(nanos)
    }
}

/// What the runtime granted to a timer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// The timer must not fire before this time, in ns.
    pub due: u64,
    /// The delay from the start of the wait, in ns, if known exactly.
    pub wait: Option<u64>,
}

/// A move of a timer to another deadline.
#[derive(Clone, Copy, Debug)]
pub enum Move {
    /// Refresh the timer, of which the wait is known.
    Refresh,
    /// Reset it by a delay from now, in ns.
    After(u64),
    /// Reset it by a delay from the start of its wait, which is known, in ns.
    FromStart(u64),
    /// Reset it to a time, in ns.
    At(u64),
}

impl Granted {
    /// Returns what the runtime grants to a timer that is armed by this delay, in ns.
    ///
    /// Read the clock, by this function, before the call that arms the timer: the runtime reads it
    /// later, so the true deadline is never earlier than the recorded one.
    pub fn after(clock: Clock, delay: u64) -> Self {
        Self {
            due: clock.now() + delay,
            wait: Some(delay),
        }
    }

    /// Returns what the runtime grants to a timer that is armed for this time, in ns. The start of
    /// its wait is not known.
    pub fn at(due: u64) -> Self {
        Self { due, wait: None }
    }

    /// Moves a timer to which the runtime has granted this. Returns the runtime's answer, and what
    /// it has granted with the answer [`Reset::Pending`].
    ///
    /// Only one thread at a time may move a timer, so that it knows the last deadline.
    ///
    /// # Panics
    ///
    /// Panics if the move needs to know the wait, and it is not known.
    pub fn moved(self, timer: &Timer, by: Move, clock: Clock) -> (Reset, Self) {
        let known = || self.wait.expect("the wait is known");
        match by {
            Move::Refresh => {
                let granted = Self::after(clock, known());
                (timer.refresh(), granted)
            }
            Move::After(delay) => {
                let granted = Self::after(clock, delay);
                (timer.reset_after(Duration::from_nanos(delay)), granted)
            }
            Move::FromStart(wait) => {
                // By this clock the wait began a little earlier than by the runtime's.
                let granted = Self {
                    due: self.due - known() + wait,
                    wait: Some(wait),
                };
                (timer.reset_from_start(Duration::from_nanos(wait)), granted)
            }
            Move::At(due) => (timer.reset_at(clock.instant(due)), Self::at(due)),
        }
    }
}

/// Returns an empty histogram of lateness, in ns, with this many significant digits. More than a
/// day counts as one day.
pub fn histogram(digits: u8) -> Histogram<u64> {
    let day = 86_400_000_000_000;
    Histogram::new_with_max(day, digits).expect("the scale is a valid one")
}

/// What the record of an end says about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// The timer is over: its end is complete.
    Over,
    /// The end is incomplete: another part is still missing.
    Partly,
    /// The timer was already over, or it may not end like this.
    Twice,
    /// The timer was already over, and the entry has another timer.
    Stray,
}

/// The callback was dropped.
const DROPPED: u64 = 1 << 30;
/// The unit of the generation.
const GENERATION: u64 = 1 << 32;

/// The ends of one timer after another.
///
/// The word contains the generation, which numbers the timers, and the ends of the current one. An
/// end is recorded with the generation of its timer. So an end is also detected as wrong when the
/// entry already has another timer. A new entry has a timer of generation 0, whose callback takes
/// no outcome.
#[derive(Default)]
pub struct Entry(AtomicU64);

fn ends(word: u64) -> Ends {
    // The generation is in the upper half.
    Ends((word & !DROPPED) as u32)
}

impl Entry {
    /// Starts the next generation. Only the thread that knows the last timer to be over calls it.
    pub fn open(&self, takes_outcome: bool) -> u32 {
        let last = self.0.load(Acquire) / GENERATION;
        let generation = (last as u32).wrapping_add(1);
        let word = u64::from(generation) * GENERATION + u64::from(Ends::new(takes_outcome).0);
        self.0.store(word, Release);
        generation
    }

    fn change(&self, generation: u32, change: impl Fn(u64) -> u64) -> Option<u64> {
        let is_of_it = |word: u64| word / GENERATION == u64::from(generation);
        let update = |word| is_of_it(word).then(|| change(word));
        self.0.fetch_update(AcqRel, Acquire, update).ok()
    }

    /// Records an end of the timer of this generation.
    pub fn note(&self, generation: u32, end: End) -> Noted {
        let add = |word| word - u64::from(ends(word).0) + u64::from(ends(word).with(end, 1).0);
        let Some(before) = self.change(generation, add).map(ends) else {
            return Noted::Stray;
        };
        match before.with(end, 1) {
            now if before.is_over() || !now.are_right() => Noted::Twice,
            now if now.is_over() => Noted::Over,
            _ => Noted::Partly,
        }
    }

    /// Returns the ends of the current timer.
    pub fn ends(&self) -> Ends {
        ends(self.0.load(Acquire))
    }

    /// Records that the callback of this generation was dropped.
    pub fn dropped(&self, generation: u32) {
        self.change(generation, |word| word | DROPPED);
    }

    /// Returns whether the callback of this generation was dropped. A past generation counts as
    /// dropped.
    pub fn is_dropped(&self, generation: u32) -> bool {
        let word = self.0.load(Acquire);
        word / GENERATION != u64::from(generation) || word & DROPPED != 0
    }

    /// Returns whether a timer was opened that is not over.
    pub fn is_open(&self) -> bool {
        let word = self.0.load(Acquire);
        word / GENERATION != 0 && !ends(word).is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(takes_outcome: bool) -> (Entry, u32) {
        let entry = Entry::default();
        assert!(!entry.is_open());
        let generation = entry.open(takes_outcome);
        assert!(entry.is_open());
        (entry, generation)
    }

    #[test]
    fn one_end_is_correct_and_frees_the_entry() {
        for end in [End::Run, End::Cancelled] {
            let (entry, generation) = entry(false);
            assert_eq!(entry.note(generation, end), Noted::Over);
            assert!(!entry.is_open() && entry.ends().has(end));
            assert_eq!(entry.open(false), generation + 1);
        }
    }

    #[test]
    fn a_new_entry_has_a_timer() {
        let entry = Entry::default();
        assert!(!entry.ends().is_over());
        assert_eq!(entry.note(0, End::Run), Noted::Over);
        assert!(entry.ends().are_right());
        assert_eq!(entry.note(0, End::Cancelled), Noted::Twice);
        assert!(!entry.ends().are_right());
    }

    #[test]
    fn a_callback_that_takes_outcomes_ends_with_the_cancel_and_the_outcome() {
        for ends in [[End::Cancelled, End::Told], [End::Told, End::Cancelled]] {
            let (entry, generation) = entry(true);
            assert_eq!(entry.note(generation, ends[0]), Noted::Partly);
            assert!(entry.is_open(), "the end is incomplete");
            assert_eq!(entry.note(generation, ends[1]), Noted::Over);
            assert!(!entry.is_open());
        }
        let (entry, generation) = entry(true);
        assert_eq!(entry.note(generation, End::Shutdown), Noted::Over);
    }

    #[test]
    fn a_second_end_is_detected() {
        let all = [End::Run, End::Cancelled, End::Told, End::Shutdown];
        for (takes_outcome, first) in [
            (false, End::Run),
            (false, End::Cancelled),
            (true, End::Run),
            (true, End::Shutdown),
        ] {
            for second in all {
                let (entry, generation) = entry(takes_outcome);
                assert_eq!(entry.note(generation, first), Noted::Over);
                let noted = entry.note(generation, second);
                assert_eq!(noted, Noted::Twice, "{takes_outcome} {first:?} {second:?}");
            }
        }
        let (entry, generation) = entry(true);
        entry.note(generation, End::Cancelled);
        assert_eq!(entry.note(generation, End::Run), Noted::Twice);
        let (entry, generation) = self::entry(true);
        entry.note(generation, End::Told);
        assert_eq!(entry.note(generation, End::Told), Noted::Twice);
    }

    #[test]
    fn an_outcome_of_a_callback_that_takes_none_is_detected() {
        for outcome in [End::Told, End::Shutdown] {
            let (entry, generation) = entry(false);
            assert_eq!(entry.note(generation, outcome), Noted::Twice);
        }
    }

    #[test]
    fn an_end_of_the_previous_timer_is_stray() {
        let (entry, generation) = entry(false);
        entry.note(generation, End::Run);
        let next = entry.open(true);
        assert_eq!(entry.note(generation, End::Run), Noted::Stray);
        assert!(entry.is_open(), "it does not end the next timer");
        assert_eq!(entry.note(next, End::Run), Noted::Over);
    }

    #[test]
    fn many_ends_do_not_overflow_into_the_next_field() {
        let (entry, generation) = entry(true);
        entry.note(generation, End::Run);
        for _ in 0..1_000 {
            assert_eq!(entry.note(generation, End::Run), Noted::Twice);
        }
        assert!(!entry.ends().has(End::Cancelled));
    }

    #[test]
    fn a_dropped_callback_is_recorded() {
        let (entry, generation) = entry(false);
        assert!(!entry.is_dropped(generation));
        entry.dropped(generation);
        assert!(entry.is_dropped(generation));
        assert_eq!(entry.note(generation, End::Run), Noted::Over);
        let next = entry.open(false);
        entry.dropped(generation);
        assert!(
            !entry.is_dropped(next),
            "the drop belongs to the previous generation"
        );
    }
}
