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
