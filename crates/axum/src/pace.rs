//! The minimum speed of clients.

use std::time::Duration;

use tourbillon_hyper::TolerantSleep;

/// A time limit, and the number of bytes that restarts it.
///
/// A client could evade a limit on silence by sending a byte now and then. A limit on the whole
/// transfer would cut off large ones. So a client must transfer `least` bytes, or everything that
/// is pending, in each period of `limit`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// `None`: no limit.
    pub(crate) limit: Option<Duration>,
    /// How late the limit may be. `None`: derived from it.
    tolerance: Option<Duration>,
    /// At least one.
    pub(crate) least: u64,
}

impl Pace {
    /// Creates the pace for `rate` bytes per second over each period of `limit`, which may be late
    /// by `tolerance`.
    pub(crate) fn new(limit: Option<Duration>, tolerance: Option<Duration>, rate: u32) -> Self {
        let nanos = limit.unwrap_or(Duration::ZERO).as_nanos();
        let least = nanos.saturating_mul(u128::from(rate)) / 1_000_000_000;
        Self {
            limit,
            tolerance,
            least: u64::try_from(least).unwrap_or(u64::MAX).max(1),
        }
    }

    /// Returns a sleep of `left`, a part of the limit or all of it.
    pub(crate) fn wait(&self, left: Duration) -> TolerantSleep {
        TolerantSleep::new(left).tolerance(self.tolerance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_is_the_rate_over_the_limit_and_at_least_one() {
        let least = |limit, rate| Pace::new(limit, None, rate).least;
        assert_eq!(least(Some(Duration::from_secs(30)), 240), 7_200);
        assert_eq!(least(Some(Duration::from_millis(150)), 240), 36);
        assert_eq!(least(Some(Duration::from_secs(30)), 0), 1);
        assert_eq!(least(Some(Duration::ZERO), 240), 1);
        assert_eq!(least(None, 240), 1);
        assert_eq!(least(Some(Duration::MAX), u32::MAX), u64::MAX);
    }
}
