//! Compact record of when a timer was taken from its store.

/// Time at which a due timer was taken from its store, in units of 1.024 µs and modulo some 18
/// minutes.
///
/// It has 30 bits, and shares the word in which a waiting timer keeps its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken(u32);

impl Taken {
    /// Number of bits.
    pub(crate) const BITS: u32 = 30;
    const MASK: u32 = (1 << Self::BITS) - 1;
    /// Length of a unit in ns, as a power of two.
    const UNIT: u32 = 10;

    /// Creates the record for `now`, in ns.
    #[inline]
    pub fn at(now: u64) -> Self {
        Self::from_bits((now >> Self::UNIT) as u32)
    }

    /// Creates a record from its bits. Higher bits are ignored.
    #[inline]
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & Self::MASK)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Time after which the record wraps around, in ns: some 18 minutes.
    pub const WRAP: u64 = 1 << (Self::BITS + Self::UNIT);

    /// Returns how much time has passed until `now` by the shard's clock, both in ns.
    ///
    /// The error is at most 1.024 µs, and zero on average. Longer times are returned modulo
    /// [`WRAP`](Taken::WRAP).
    #[inline]
    pub fn elapsed(self, now: u64) -> u64 {
        u64::from(Self::at(now).0.wrapping_sub(self.0) & Self::MASK) << Self::UNIT
    }

    /// Returns whether this time is in a sample of one in `1 << bits`.
    ///
    /// The lowest bits decide, which is cheap. The sample is fair as long as what is measured does
    /// not depend on the last microseconds of the clock.
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
    fn elapsed_time_is_exact_for_18_minutes() {
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
    fn a_sample_of_four_bits_has_one_in_sixteen() {
        let sampled = (0..1_600).filter(|at| Taken::at(at << Taken::UNIT).is_one_of(4));
        assert_eq!(sampled.count(), 100);
    }
}
