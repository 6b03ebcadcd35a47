//! [`Tolerance`]: how late a timer may run, in one byte, and the key that follows from it.

use crate::node::claim::NEVER;

/// How late a timer may run, in order to share a wake-up with others.
///
/// It takes one byte in each timer. So a duration is rounded down, by less than a fifth, to one of
/// four steps for each power of two.
///
/// ```
/// use tourbillon_shards::Tolerance;
///
/// assert_eq!(Tolerance::EXACT.ns(), 0);
/// assert_eq!(Tolerance::new(1_000_000).ns(), 917_504);
/// assert!(Tolerance::new(0).is_exact());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tolerance(u8);

/// The number of bits of a code that give the step within a power of two.
const STEP_BITS: u32 = 2;
const STEPS: u64 = 1 << STEP_BITS;

impl Tolerance {
    /// The timer is due at its deadline.
    pub const EXACT: Self = Self(0);

    /// Returns the greatest tolerance that is at most `ns`, and at most [`NEVER`].
    pub const fn new(ns: u64) -> Self {
        let ns = if ns < NEVER { ns } else { NEVER };
        if ns < STEPS {
            // As it is: the first steps are one ns apart. (It is below 4.)
            return Self(ns as u8);
        }
        // The code is the exponent, and the two bits below the highest one.
        let exponent = ns.ilog2() - STEP_BITS;
        let step = (ns >> exponent) - STEPS;
        Self((((exponent + 1) << STEP_BITS) as u64 + step) as u8)
    }

    /// Returns the tolerance of a [code](Tolerance::code).
    #[inline]
    pub const fn from_code(code: u8) -> Self {
        Self(code)
    }

    /// Returns the byte that stands for this tolerance. Zero stands for [`EXACT`](Self::EXACT). A
    /// larger tolerance has a larger code, of at most 240.
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
    #[inline]
    pub const fn ns(self) -> u64 {
        let (exponent, step) = (self.0 as u32 >> STEP_BITS, self.0 as u64 % STEPS);
        match exponent {
            0 => step,
            _ => (STEPS + step) << (exponent - 1),
        }
    }

    /// Returns the moment in `deadline ..= deadline + tolerance` whose binary number ends in the
    /// most zeros.
    ///
    /// Timers of about the same tolerance get the same moment without any coordination, as with
    /// Linux's timer slack (`apply_slack`) and systemd's accuracy.
    pub(crate) fn coalesced(self, deadline: u64) -> u64 {
        if self.is_exact() || deadline == 0 || deadline == NEVER {
            return deadline;
        }
        let last = deadline.saturating_add(self.ns()).min(NEVER - 1);
        // In the highest bit in which `deadline - 1` and `last` differ, `last` has a one. That is
        // the lowest one bit that the result needs.
        let differ = (deadline - 1) ^ last;
        let below = (1_u64 << (63 - differ.leading_zeros())) - 1;
        last & !below
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_rounded_down_by_less_than_a_fifth() {
        for bits in 0..62 {
            for near in [-1_i64, 0, 1, 12_345] {
                let ns = (1_u64 << bits).saturating_add_signed(near);
                let rounded = Tolerance::new(ns).ns();
                let most = ns.min(NEVER);
                assert!(rounded <= most, "{rounded} for {ns}");
                assert!(most - rounded <= most / 5, "{rounded} for {ns}");
            }
        }
        assert!((0..8).all(|ns| Tolerance::new(ns).ns() == ns));
        assert_eq!(Tolerance::new(u64::MAX), Tolerance::new(NEVER));
    }

    #[test]
    fn codes_grow_with_tolerances_and_lead_back_to_them() {
        let last = Tolerance::new(NEVER).code();
        for code in 0..=last {
            let tolerance = Tolerance::from_code(code);
            assert_eq!(Tolerance::new(tolerance.ns()), tolerance);
            assert!(code == 0 || Tolerance::from_code(code - 1).ns() < tolerance.ns());
        }
        // A thread can keep one more value in a byte.
        assert!(last <= 240);
    }

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
        assert_eq!(coalesced(NEVER, 5), NEVER, "NEVER is not moved");
        assert!(coalesced(NEVER - 3, u64::MAX) < NEVER, "still below NEVER");
    }

    #[test]
    fn coalescing_agrees_with_a_search_through_the_window() {
        for deadline in 1..200_u64 {
            for tolerance in (0..80).map(Tolerance::new) {
                let window = || deadline..=deadline + tolerance.ns();
                let best = window()
                    .max_by_key(|at| at.trailing_zeros())
                    .expect("the window is not empty");
                let found = tolerance.coalesced(deadline);
                assert!(window().contains(&found));
                assert_eq!(found.trailing_zeros(), best.trailing_zeros());
            }
        }
    }

    #[test]
    fn keys_grow_with_deadlines() {
        for tolerance in (0..80).map(Tolerance::new) {
            let keys = (1..400).map(|deadline| tolerance.coalesced(deadline));
            assert!(keys.is_sorted());
        }
    }
}
