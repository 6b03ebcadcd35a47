//! `Instant`: a moment on the runtime's clock.

use std::{
    ops::{Add, AddAssign, Sub, SubAssign},
    time::{Duration, Instant as StdInstant},
};

use crate::{
    clock::{current::with_clock, looked, runtime_clock as clock, runtime_clock::Clock},
    sys,
    util::nanos::nanos,
};

/// A moment of the monotonic clock, like [`std::time::Instant`] but in a type of the runtime, as in
/// tokio.
///
/// Convert with [`from_std`](Instant::from_std) and [`into_std`](Instant::into_std). Conversions
/// are exact for moments within 292 years of the start of the machine; other moments are out of
/// range.
///
/// In the context of a runtime whose clock is or was [paused](crate::time::paused::pause), it is a
/// moment of that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(
    /// Nanoseconds of the kernel's clock. One number, because arming each timer calculates with it.
    i64,
);

/// Returns a duration in ns, or `None` if that does not fit.
#[inline]
fn signed(duration: Duration) -> Option<i64> {
    // Not `as_nanos`, which calculates in 128 bits.
    let secs = i64::try_from(duration.as_secs()).ok()?;
    let secs = secs.checked_mul(1_000_000_000)?;
    secs.checked_add(duration.subsec_nanos().into())
}

impl Instant {
    /// The zero of the kernel's monotonic clock.
    pub(crate) const ZERO: Self = Self(0);

    /// Returns the current time of the clock of the runtime that the calling thread is in. That is
    /// the monotonic clock, unless the runtime's clock was [paused](crate::time::paused::pause).
    #[inline]
    pub fn now() -> Self {
        // Read the time first, then the flag: see the head of `runtime_clock.rs`.
        let now = Self::from_kernel(sys::clock::monotonic());
        if clock::any_warped() {
            return Self::warped_now(now);
        }
        now
    }

    /// Returns [`now`](Instant::now) or a little later, for calculating deadlines: see
    /// [`sys::ticks`].
    #[inline]
    pub(crate) fn now_for_deadline() -> Self {
        let now = Self::from_kernel(sys::ticks::now_for_deadline());
        if clock::any_warped() {
            // A clock that was paused is read exactly, so that tests depend on the program alone.
            return Self::now();
        }
        now
    }

    /// Returns whether this moment is no later than [`now`](Instant::now). That is cheaper to tell
    /// than the time, if this moment is well ahead. On a worker the answer may also be `false` if
    /// the moment has passed [since its last look](looked) at its timers.
    #[inline]
    pub(crate) fn has_passed(self) -> bool {
        let passed = looked::has_passed(self.0);
        if clock::any_warped() {
            return self <= Self::now();
        }
        passed
    }

    /// Converts a reading of the kernel's monotonic clock, in ns.
    #[inline]
    pub(crate) fn from_kernel(nanos: u64) -> Self {
        // The cast is exact until a machine has been up for 292 years.
        Self(nanos as i64)
    }

    /// Returns this moment as the kernel's monotonic clock counts it, in ns. Moments before its
    /// zero are negative.
    #[inline]
    pub(crate) fn kernel(self) -> i64 {
        self.0
    }

    #[cold]
    fn warped_now(real: Self) -> Self {
        // Some clock was paused, but not the one of this thread, or the thread is in no runtime.
        with_clock(Clock::warped_instant).flatten().unwrap_or(real)
    }

    /// Returns whether this thread reads a clock that may differ from the clock of the runtime that
    /// will use the time: the thread is in no runtime, and some runtime's clock was paused.
    #[inline]
    pub(crate) fn is_adrift() -> bool {
        // In a runtime, both the reading and the timer follow that runtime's clock.
        clock::any_warped() && with_clock(|_| ()).is_none()
    }

    /// Converts a moment of the standard library.
    pub fn from_std(instant: StdInstant) -> Self {
        instant.into()
    }

    /// Converts this moment to the standard library's `Instant`.
    pub fn into_std(self) -> StdInstant {
        let zero = sys::clock::zero();
        let nanos = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 >= 0 {
            return zero + nanos;
        }
        // A moment that the standard library cannot represent becomes the clock's zero: both have
        // passed.
        zero.checked_sub(nanos).unwrap_or(zero)
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    #[inline]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.checked_duration_since(earlier).unwrap_or_default()
    }

    /// Returns the time from `earlier` to this moment, or `None` if `earlier` is later.
    #[inline]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        (self.0 >= earlier.0).then(|| Duration::from_nanos(self.0.abs_diff(earlier.0)))
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    #[inline]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }

    /// Returns the time from this moment to now, or zero if this moment is in the future.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// Returns this moment plus `duration`, or `None` if that is out of range.
    #[inline]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(signed(duration)?).map(Self)
    }

    /// Returns this moment minus `duration`, or `None` if that is out of range.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(signed(duration)?).map(Self)
    }

    /// Returns this moment plus `duration`, or [`far_future`](Instant::far_future) if that is out
    /// of range.
    #[inline]
    pub(crate) fn saturating_add(self, duration: Duration) -> Instant {
        self.checked_add(duration).unwrap_or_else(Self::far_future)
    }

    /// Returns a moment that is later than [`NEVER`](tourbillon_shards::NEVER) on the clock of
    /// every existing runtime.
    #[cold]
    pub(crate) fn far_future() -> Instant {
        // 2^62 ns is twice `NEVER`, and half of the range.
        Self(Self::now().0.saturating_add(1 << 62))
    }
}

impl From<StdInstant> for Instant {
    #[inline]
    fn from(instant: StdInstant) -> Self {
        Self(sys::clock::since_zero(instant))
    }
}

impl From<Instant> for StdInstant {
    fn from(instant: Instant) -> Self {
        instant.into_std()
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Adds a duration. A result that is out of range saturates: the last moment is 292 years after
    /// the start of the machine. (The standard library's instants reach further, and panic beyond
    /// their range.)
    #[inline]
    fn add(self, duration: Duration) -> Instant {
        Self(self.0.saturating_add_unsigned(nanos(duration)))
    }
}

impl AddAssign<Duration> for Instant {
    #[inline]
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// Subtracts a duration. A result that is out of range saturates: the first moment is 292 years
    /// before the start of the machine.
    fn sub(self, duration: Duration) -> Instant {
        Self(self.0.saturating_sub_unsigned(nanos(duration)))
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub for Instant {
    type Output = Duration;

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_exact_both_ways() {
        let std = StdInstant::now();
        for offset in [0, 1, 999_999_999, 1_000_000_001, 86_400_000_000_007] {
            let offset = Duration::from_nanos(offset);
            assert_eq!(Instant::from_std(std + offset).into_std(), std + offset);
            assert_eq!(Instant::from(std + offset), Instant::from(std) + offset);
            if let Some(before) = std.checked_sub(offset) {
                assert_eq!(Instant::from(before).into_std(), before);
            }
        }
    }

    #[test]
    fn instants_agree_with_the_standard_library() {
        for _ in 0..1_000 {
            let before = StdInstant::now();
            let ours = Instant::now();
            let after = StdInstant::now();
            assert!(before <= ours.into_std() && ours.into_std() <= after);
        }
    }

    #[test]
    fn results_out_of_range_saturate_or_are_none() {
        let now = Instant::now();
        let far = Instant::far_future();
        assert!(far > now + Duration::from_secs(100 * 365 * 86_400));
        assert!(
            far.checked_add(Duration::from_secs(100 * 365 * 86_400))
                .is_some()
        );
        assert_eq!(now.checked_add(Duration::MAX), None);
        assert_eq!(now.checked_sub(Duration::MAX), None);
        assert!(now.saturating_add(Duration::MAX) > now);
        assert_eq!(now + Duration::MAX, Instant(i64::MAX));
        assert_eq!(now - Duration::MAX, Instant(i64::MIN));
        let ages = StdInstant::now() + Duration::from_secs(1_000 * 365 * 86_400);
        assert!(Instant::from(ages) > far);
        assert!(now.duration_since(far).is_zero());
    }
}
