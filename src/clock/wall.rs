//! Wall-clock times and boot-time instants, in the ns that shards count in.

use std::{
    ops::{Add, Sub},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tourbillon_shards::NEVER;

use crate::{
    clock::{current::with_clock, other::OtherClock, runtime_clock as clock},
    sys,
};

/// 2020-01-01, the zero of wall-clock shards. Earlier times are due at once. The range ends in
/// 2093.
const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// Converts a wall-clock time to ns of a shard. Times before the epoch become zero, times out of
/// range become [`NEVER`].
pub(crate) fn nanos(time: SystemTime) -> u64 {
    // Times before 1970 have no duration. They count as passed, like all times before the epoch.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let nanos = since.saturating_sub(EPOCH).as_nanos();
    u64::try_from(nanos).unwrap_or(NEVER).min(NEVER)
}

/// Converts a shard's ns to a wall-clock time.
pub(crate) fn time(nanos: u64) -> SystemTime {
    UNIX_EPOCH + EPOCH + Duration::from_nanos(nanos)
}

/// Converts a shard's ns to the kernel's `CLOCK_REALTIME`, as a duration since the Unix epoch.
pub(crate) fn since_unix(nanos: u64) -> Duration {
    EPOCH + Duration::from_nanos(nanos)
}

/// A moment of the clock that counts from the start of the machine, including the time that it was
/// suspended (`CLOCK_BOOTTIME`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootInstant(u64);

impl BootInstant {
    /// Returns the current boot time.
    ///
    /// In the context of a runtime whose clock is or was [paused](crate::time::paused::pause), the
    /// boot time advances with that clock.
    pub fn now() -> Self {
        // Look for the runtime only if some clock was paused: the search reads thread-locals.
        let shown = clock::any_warped().then(|| with_clock(|clock| clock.other(OtherClock::Boot)));
        Self::from_nanos(shown.flatten().unwrap_or_else(sys::clock::boot))
    }

    pub(crate) fn from_nanos(nanos: u64) -> Self {
        Self(nanos.min(NEVER))
    }

    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    pub fn duration_since(self, earlier: BootInstant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;

    /// Adds a duration. A result of more than 73 years since the start of the machine means never.
    fn add(self, duration: Duration) -> BootInstant {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(NEVER);
        Self::from_nanos(self.0.saturating_add(nanos))
    }
}

impl Sub for BootInstant {
    type Output = Duration;

    /// Returns the time from `earlier` to this moment, or zero if `earlier` is later.
    fn sub(self, earlier: BootInstant) -> Duration {
        self.duration_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_translate_exactly_and_saturate() {
        let epoch = UNIX_EPOCH + EPOCH;
        assert_eq!(nanos(epoch), 0);
        assert_eq!(nanos(epoch + Duration::new(3, 7)), 3_000_000_007);
        assert_eq!(time(3_000_000_007), epoch + Duration::new(3, 7));
        assert_eq!(nanos(UNIX_EPOCH), 0);
        assert_eq!(nanos(UNIX_EPOCH - Duration::from_secs(1)), 0);
        let century = epoch + Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(nanos(century), NEVER);
        assert_eq!(since_unix(1), EPOCH + Duration::from_nanos(1));
    }

    #[test]
    fn boot_instants_add_and_subtract() {
        let start = BootInstant::now();
        let later = start + Duration::from_secs(1);
        assert_eq!(later - start, Duration::from_secs(1));
        assert_eq!(start - later, Duration::ZERO);
        assert!(BootInstant::now() >= start);
        assert_eq!((start + Duration::MAX).nanos(), NEVER);
    }
}
