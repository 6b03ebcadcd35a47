//! [`Tolerance`]: how late a timer may run, in one byte, and the key that follows from it.
//!
//! A tolerance of some µs or more counts in units of 15,625 ns, of which 64 are a ms. So timers
//! that may be late by 1 ms meet once in each ms, and those of 2 ms at every other such moment.

use crate::node::claim::NEVER;

/// How late a timer may run, in order to share a wake-up with others.
///
/// It takes one byte in each timer. So a duration is rounded down, by less than a fifth, to one of
/// four steps for each doubling. 1 ms, 2 ms, 5 ms and their halves and doubles are such steps.
///
/// ```
/// use tourbillon_shards::Tolerance;
///
/// assert_eq!(Tolerance::EXACT.ns(), 0);
/// assert_eq!(Tolerance::new(1_000_000).ns(), 1_000_000);
/// assert_eq!(Tolerance::new(9_000_000).ns(), 8_000_000);
/// assert!(Tolerance::new(0).is_exact());
/// assert_eq!((Tolerance::STRICT.ns(), Tolerance::stated(0)), (0, Tolerance::STRICT));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tolerance(u8);

/// The unit of tolerances that are no shorter, in ns. A shorter one counts in ns.
const UNIT: u64 = 15_625;
/// The steps of each doubling are four, five, six and seven quarters.
const STEPS: u64 = 4;
/// The code of one unit. The codes below it stand for 1, 2 and 3 ns, and for steps from 4 ns on.
const CODE_OF_UNIT: u8 = 52;

impl Tolerance {
    /// The timer is due at its deadline. An owner that [defers](crate::Shard::defer) its wake-ups
    /// may sleep on for a while all the same.
    pub const EXACT: Self = Self(0);

    /// The timer is due at its deadline, and the owner wakes up for it, even if it defers other
    /// wake-ups.
    pub const STRICT: Self = Self(254);

    /// Returns the greatest tolerance that is at most `ns`, and at most [`NEVER`].
    pub const fn new(ns: u64) -> Self {
        let ns = if ns < NEVER { ns } else { NEVER };
        // The code of the doubling's first step, and the doubling, in quarters of its length.
        let (first, quarters) = match ns {
            0..STEPS => return Self(ns as u8),
            STEPS..UNIT => {
                let doubling = ns.ilog2() - STEPS.ilog2();
                (STEPS as u32 * (doubling + 1), ns >> doubling)
            }
            _ => {
                let doubling = (ns / UNIT).ilog2();
                // The most whose duration, rounded down to whole ns, is at most `ns`.
                let quarters = (STEPS * (ns + 1) - 1) / (UNIT << doubling);
                (CODE_OF_UNIT as u32 + STEPS as u32 * doubling, quarters)
            }
        };
        Self(first as u8 + (quarters - STEPS) as u8)
    }

    /// Returns the tolerance that somebody has asked for, in ns: [`STRICT`](Self::STRICT) for zero,
    /// [`new`](Self::new) for others. For a timer with such a tolerance the owner defers no wake-up.
    pub const fn stated(ns: u64) -> Self {
        match ns {
            0 => Self::STRICT,
            _ => Self::new(ns),
        }
    }

    /// Returns the tolerance of a [code](Tolerance::code).
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// Returns the byte that stands for this tolerance. Zero stands for [`EXACT`](Self::EXACT). A
    /// larger tolerance has a larger code, which is below 250. [`STRICT`](Self::STRICT) has a code of
    /// its own, below 255.
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Returns whether this is [`EXACT`](Self::EXACT).
    #[inline]
    pub const fn is_exact(self) -> bool {
        self.0 == 0
    }

    /// Returns the tolerance in ns.
    pub const fn ns(self) -> u64 {
        if self.0 == Self::STRICT.0 {
            return 0;
        }
        let steps = STEPS as u8;
        let quarters = STEPS + (self.0 % steps) as u64;
        if self.0 < steps {
            self.0 as u64
        } else if self.0 < CODE_OF_UNIT {
            quarters << (self.0 / steps - 1)
        } else {
            // The product fits: the greatest tolerance is at most `NEVER`, which has 61 bits.
            let doubling = (self.0 - CODE_OF_UNIT) / steps;
            ((quarters * UNIT) << doubling) / STEPS
        }
    }

    /// Returns the roundest moment in `deadline ..= deadline + tolerance`: the multiple of the unit
    /// whose binary number ends in the most zeros.
    ///
    /// Timers of about the same tolerance get the same moment without any coordination, as with
    /// Linux's timer slack (`apply_slack`) and systemd's accuracy.
    pub(crate) fn coalesced(self, deadline: u64) -> u64 {
        if self.ns() == 0 || deadline == 0 || deadline == NEVER {
            return deadline;
        }
        let last = deadline.saturating_add(self.ns()).min(NEVER - 1);
        if self.0 < CODE_OF_UNIT {
            return roundest(deadline - 1, last);
        }
        let (before, last_unit) = ((deadline - 1) / UNIT, last / UNIT);
        // Near the end of time the window may have no multiple of the unit.
        match before < last_unit {
            true => roundest(before, last_unit) * UNIT,
            false => last,
        }
    }
}

/// Returns the number in `before + 1 ..= last` whose binary form ends in the most zeros.
fn roundest(before: u64, last: u64) -> u64 {
    // In the highest bit in which the two differ, `last` has a one. That is the lowest one bit that
    // the result needs.
    let differ = before ^ last;
    let below = (1_u64 << (63 - differ.leading_zeros())) - 1;
    last & !below
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn coalescing_picks_the_roundest_moment_of_the_window() {
        let coalesced = |deadline, tolerance| Tolerance::new(tolerance).coalesced(deadline);
        assert_eq!(coalesced(1_000, 0), 1_000);
        assert_eq!(coalesced(1_000, 24), 1_024);
        assert_eq!(coalesced(1_000, 20), 1_008);
        assert_eq!(coalesced(1_024, 1_000), 1_024);
        assert_eq!(coalesced(1_025, 1_024), 2_048);
        assert_eq!(coalesced(0, 5), 0);
        assert_eq!(coalesced(1, 0), 1);
        const MS: u64 = 1_000_000;
        assert_eq!(coalesced(7 * MS + 1, MS), 8 * MS);
        assert_eq!(coalesced(8 * MS + 1, MS), 9 * MS);
        assert_eq!(coalesced(7 * MS, MS), 8 * MS);
        assert_eq!(coalesced(9 * MS, 2 * MS), 10 * MS);
        assert_eq!(coalesced(NEVER, 5), NEVER, "NEVER is not moved");
        for deadline in NEVER - 20_000..NEVER {
            let key = coalesced(deadline, u64::MAX);
            assert!((deadline..NEVER).contains(&key), "still below NEVER");
        }
    }

    #[test]
    fn timers_of_a_tolerance_meet_once_in_each_ms() {
        let tolerance = Tolerance::new(1_000_000);
        for deadline in (1..100_000_000).step_by(7_919) {
            assert_eq!(tolerance.coalesced(deadline) % 1_000_000, 0);
        }
    }

    /// Calls `check` with many windows: tolerances, and deadlines around a base.
    fn each_window(check: impl Fn(Tolerance, u64)) {
        for code in 0..90 {
            let tolerance = Tolerance::from_code(code);
            for base in [1, 1_000, UNIT - 50, 1_000_000_000, 1 << 40] {
                // In steps that grow with the tolerance, to pass some of its windows.
                let step = 1 + tolerance.ns() as usize / 10;
                (base..)
                    .step_by(step)
                    .take(60)
                    .for_each(|at| check(tolerance, at));
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "many long searches, without unsafe code")]
    fn coalescing_agrees_with_a_search_through_the_window() {
        each_window(|tolerance, deadline| {
            let unit = if tolerance.ns() < UNIT { 1 } else { UNIT };
            let last = deadline + tolerance.ns();
            let best = (deadline.div_ceil(unit)..=last / unit).max_by_key(|at| at.trailing_zeros());
            let best = best.expect("the window is not empty");
            let found = tolerance.coalesced(deadline);
            assert!((deadline..=last).contains(&found));
            assert_eq!(found % unit, 0);
            assert_eq!((found / unit).trailing_zeros(), best.trailing_zeros());
        });
    }

    #[test]
    fn keys_grow_with_deadlines() {
        each_window(|tolerance, deadline| {
            let later = deadline + 1 + tolerance.ns() / 3;
            assert!(tolerance.coalesced(deadline) <= tolerance.coalesced(deadline + 1));
            assert!(tolerance.coalesced(deadline) <= tolerance.coalesced(later));
        });
    }
}
