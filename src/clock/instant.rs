//! A moment on the runtime's clock.

use std::{
    ops::{Add, AddAssign, Sub, SubAssign},
    time::{Duration, Instant as StdInstant},
};

use crate::{
    clock::{current::with_clock, runtime_clock as clock, runtime_clock::Clock},
    sys,
    util::nanos::nanos,
};

/// A moment of the monotonic clock: [`std::time::Instant`], in a type of the runtime's own, as
/// tokio has it. Convert with `into` and [`into_std`](Instant::into_std); that is exact, but for moments
/// more than 292 years from when the machine was started, beyond which this does not reach.
///
/// In the context of a runtime whose clock is, or was, [paused](crate::time::paused::pause), it is a moment of that
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(
    /// The kernel's ns: one number, since each timer that is armed calculates with it.
    i64,
);

/// A duration in ns, if they are few enough.
#[inline]
fn signed(duration: Duration) -> Option<i64> {
    // Not by `as_nanos`, which calculates in 128 bits.
    let secs = i64::try_from(duration.as_secs()).ok()?;
    let secs = secs.checked_mul(1_000_000_000)?;
    secs.checked_add(duration.subsec_nanos().into())
}

impl Instant {
    /// The zero of the kernel's clock.
    pub(crate) const ZERO: Self = Self(0);

    /// The present, by the clock of the runtime that the calling thread is in. That is the monotonic
    /// clock, unless it was [paused](crate::time::paused::pause).
    #[inline]
    pub fn now() -> Self {
        // In this order: see `clock.rs`.
        let now = Self::from_kernel(sys::clock::monotonic());
        if clock::any_warped() {
            return Self::warped_now(now);
        }
        now
    }

    /// As [`now`](Instant::now), or a little later, for a deadline that is calculated from it: see [`sys::ticks`].
    #[inline]
    pub(crate) fn now_for_deadline() -> Self {
        let now = Self::from_kernel(sys::ticks::now_for_deadline());
        if clock::any_warped() {
            return Self::warped_now(Self::now());
        }
        now
    }

    /// The moment at which the kernel's monotonic clock says so, in ns.
    #[inline]
    pub(crate) fn from_kernel(nanos: u64) -> Self {
        // A machine that has been up for 292 years is not looked after here.
        Self(nanos as i64)
    }

    /// What the kernel's monotonic clock says then, in ns; before its zero it would be less.
    #[inline]
    pub(crate) fn kernel(self) -> i64 {
        self.0
    }

    #[cold]
    fn warped_now(real: Self) -> Self {
        with_clock(Clock::warped_instant).flatten().unwrap_or(real)
    }

    /// Whether the time that is read here may not be that of who will use it: outside of any runtime,
    /// while there is one whose clock differs.
    #[inline]
    pub(crate) fn is_adrift() -> bool {
        clock::any_warped() && with_clock(|_| ()).is_none()
    }

    /// The standard library's instant.
    pub fn into_std(self) -> StdInstant {
        let zero = sys::clock::zero();
        let nanos = Duration::from_nanos(self.0.unsigned_abs());
        if self.0 >= 0 {
            return zero + nanos;
        }
        // What its clock does not reach back to has passed, as has its zero.
        zero.checked_sub(nanos).unwrap_or(zero)
    }

    /// How much later this is than `earlier`, or zero.
    #[inline]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.checked_duration_since(earlier).unwrap_or_default()
    }

    /// How much later this is than `earlier`, or `None` if it is not.
    #[inline]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        (self.0 >= earlier.0).then(|| Duration::from_nanos(self.0.abs_diff(earlier.0)))
    }

    /// How much later this is than `earlier`, or zero.
    #[inline]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }

    /// How long ago this was, or zero.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// This plus a duration, unless the clock does not reach that far.
    #[inline]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(signed(duration)?).map(Self)
    }

    /// This less a duration, unless the clock does not reach that far back.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(signed(duration)?).map(Self)
    }

    /// This plus a duration, or a moment that no runtime lives to see.
    #[inline]
    pub(crate) fn saturating_add(self, duration: Duration) -> Instant {
        self.checked_add(duration).unwrap_or_else(Self::far_future)
    }

    /// A moment beyond [`NEVER`](tourbillon_shards::NEVER) of any runtime that exists.
    #[cold]
    pub(crate) fn far_future() -> Instant {
        // Twice as far, and as far again from the last moment that there is.
        Self(Self::now().0.saturating_add(1 << 62))
    }
}

impl From<StdInstant> for Instant {
    #[inline]
    fn from(instant: StdInstant) -> Self {
        let zero = sys::clock::zero();
        let nanos = |since: Duration| {
            let secs = since.as_secs().saturating_mul(1_000_000_000);
            let nanos = secs.saturating_add(since.subsec_nanos().into());
            nanos.min(i64::MAX as u64) as i64
        };
        Self(match instant.checked_duration_since(zero) {
            Some(since) => nanos(since),
            None => -nanos(zero.duration_since(instant)),
        })
    }
}

impl From<Instant> for StdInstant {
    fn from(instant: Instant) -> Self {
        instant.into_std()
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// What is later than the last moment that there is, 292 years from the machine's start, is that moment. (The
    /// standard library's instants reach further, and panic then.)
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

    /// What is earlier than the first moment that there is, 292 years before the machine's start, is that moment.
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

    /// The duration between, or zero if `earlier` is later.
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
            assert_eq!(Instant::from(std + offset).into_std(), std + offset);
            assert_eq!(Instant::from(std + offset), Instant::from(std) + offset);
            if let Some(before) = std.checked_sub(offset) {
                assert_eq!(Instant::from(before).into_std(), before);
            }
        }
    }

    #[test]
    fn it_is_the_clock_of_the_standard_library() {
        for _ in 0..1_000 {
            let before = StdInstant::now();
            let ours = Instant::now();
            let after = StdInstant::now();
            assert!(before <= ours.into_std() && ours.into_std() <= after);
        }
    }

    #[test]
    fn what_is_too_far_saturates_or_is_refused() {
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
