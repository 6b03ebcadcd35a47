//! The clock of a runtime: nanoseconds since it was built, by the monotonic clock.

use std::time::Duration;

use tourbillon_shards::NEVER;

use super::Instant;

/// Translates between instants and the nanoseconds in which shards count.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
        }
    }

    /// The present, in ns. Never ahead of what an [`Instant`] read afterwards says.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        self.nanos(Instant::now())
    }

    /// An instant in ns: zero for what was before the runtime, [`NEVER`] for what it will not see.
    #[inline]
    pub(crate) fn nanos(&self, instant: Instant) -> u64 {
        let since = instant.saturating_duration_since(self.origin);
        let nanos = since.as_secs().saturating_mul(1_000_000_000);
        nanos.saturating_add(since.subsec_nanos().into()).min(NEVER)
    }

    /// The instant of a deadline.
    pub(crate) fn instant(&self, nanos: u64) -> Instant {
        self.origin + Duration::from_nanos(nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_translate_exactly_and_saturate() {
        let clock = Clock::new();
        let deadline = clock.origin + Duration::new(3, 7);
        assert_eq!(clock.nanos(deadline), 3_000_000_007);
        assert_eq!(clock.instant(3_000_000_007), deadline);
        if let Some(before) = clock.origin.checked_sub(Duration::from_millis(1)) {
            assert_eq!(clock.nanos(before), 0);
        }
        let century = clock.origin + Duration::from_secs(100 * 365 * 86_400);
        assert_eq!(clock.nanos(century), NEVER);
        assert_eq!(clock.nanos(Instant::far_future()), NEVER);
    }
}
