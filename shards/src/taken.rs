//! When a timer was taken from its store, in the room that there is for it.

/// When a timer was taken from its store because it was due: to 1.024 µs, and modulo 18 minutes. It stands in
/// the node where otherwise the timer's slot does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken(u32);

impl Taken {
    /// How many bits it has.
    pub(crate) const BITS: u32 = 30;
    const MASK: u32 = (1 << Self::BITS) - 1;
    /// What a unit is, in ns, as a power of two.
    const UNIT: u32 = 10;

    /// At `now`, in ns.
    #[inline]
    pub fn at(now: u64) -> Self {
        Self::from_bits((now >> Self::UNIT) as u32)
    }

    /// Bits above those that it has are ignored.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// After so long, in ns, some 18 minutes, it begins anew.
    pub const WRAP: u64 = 1 << (Self::BITS + Self::UNIT);

    /// How long it is since then, in ns, at `now` by the shard's clock: too short or too long by 1.024 µs at most,
    /// and exact on the average. Of what is longer than 18 minutes: what is left of it after the last 18.
    #[inline]
    pub fn elapsed(self, now: u64) -> u64 {
        u64::from(Self::at(now).0.wrapping_sub(self.0) & Self::MASK) << Self::UNIT
    }

    /// Whether this is one of those to be looked at, of `1 << bits` moments, by its lowest bits: which costs
    /// nothing, and is fair to all that have nothing to do with the clock's last microseconds.
    #[inline]
    pub fn is_one_of(self, bits: u32) -> bool {
        self.0.trailing_zeros() >= bits
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_passed_since_is_known_for_18_minutes() {
        let wrap = Taken::WRAP;
        assert_eq!(Duration::from_nanos(wrap).as_secs(), 18 * 60 + 19);
        for begin in [0, 1_023, 1_024, wrap - 1, wrap, 123_456_789_012_345] {
            let taken = Taken::at(begin);
            for passed in [0, 1, 1_024, 5_000_000, 17 * 60 * 1_000_000_000] {
                let elapsed = taken.elapsed(begin + passed);
                assert!(elapsed.abs_diff(passed) < 1_024, "{elapsed}, {passed}");
            }
            assert_eq!(taken.elapsed(begin + wrap), 0);
        }
    }

    #[test]
    fn one_in_sixteen_is_in_a_sample() {
        let sampled = (0..1_600).filter(|at| Taken::at(at << Taken::UNIT).is_one_of(4));
        assert_eq!(sampled.count(), 100);
    }
}
