//! A moment on the runtime's clock.

use std::{
    ops::{Add, AddAssign, Sub, SubAssign},
    time::{Duration, Instant as StdInstant},
};

use super::clock::{self, Clock};
use crate::runtime::with_clock;

/// A moment of the monotonic clock: [`std::time::Instant`], in a type of the runtime's own, as
/// tokio has it. Convert with `into` and [`into_std`](Instant::into_std).
///
/// In the context of a runtime whose clock is, or was, [paused](super::pause), it is a moment of that
/// clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(StdInstant);

impl Instant {
    /// The present, by the clock of the runtime that the calling thread is in. That is the monotonic
    /// clock, unless it was [paused](super::pause).
    #[inline]
    pub fn now() -> Self {
        // In this order: see `clock.rs`.
        let now = Self(StdInstant::now());
        if clock::any_warped() {
            return Self::warped_now(now);
        }
        now
    }

    #[cold]
    fn warped_now(real: Self) -> Self {
        with_clock(Clock::warped_instant).flatten().unwrap_or(real)
    }

    /// Whether the time that is read here may not be that of who will use it: outside of any runtime,
    /// while there is one whose clock differs.
    #[inline]
    pub(super) fn is_adrift() -> bool {
        clock::any_warped() && with_clock(|_| ()).is_none()
    }

    /// The standard library's instant.
    pub fn into_std(self) -> StdInstant {
        self.0
    }

    /// How much later this is than `earlier`, or zero.
    #[inline]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How much later this is than `earlier`, or `None` if it is not.
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// How much later this is than `earlier`, or zero.
    #[inline]
    pub fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How long ago this was, or zero.
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// This plus a duration, unless the clock does not reach that far.
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Self)
    }

    /// This less a duration, unless the clock does not reach that far back.
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Self)
    }

    /// This plus a duration, or a moment that no runtime lives to see.
    pub(crate) fn saturating_add(self, duration: Duration) -> Instant {
        self.checked_add(duration).unwrap_or_else(Self::far_future)
    }

    /// A moment beyond [`NEVER`](tourbillon_shards::NEVER) of any runtime that exists.
    pub(crate) fn far_future() -> Instant {
        // Well within what the kernel's 63 bits of seconds allow.
        Self::now() + Duration::from_secs(1 << 40)
    }
}

impl From<StdInstant> for Instant {
    fn from(instant: StdInstant) -> Self {
        Self(instant)
    }
}

impl From<Instant> for StdInstant {
    fn from(instant: Instant) -> Self {
        instant.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// If the clock does not reach that far, as the standard library's does.
    fn add(self, duration: Duration) -> Instant {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// If the clock does not reach that far back, as the standard library's does.
    fn sub(self, duration: Duration) -> Instant {
        Self(self.0 - duration)
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
