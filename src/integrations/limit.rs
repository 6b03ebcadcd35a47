//! Time limits of connections, which need not be exact and share wake-ups.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon_shards::Tolerance;

use crate::{
    clock::instant::Instant,
    engine::context::tolerance::within,
    time::{sleep, sleep::Sleep, sleep_until},
    util::nanos::nanos,
};

/// The part of a limit by which it may be late, as a divisor.
const PART: u32 = 32;
/// The largest tolerance that nobody asked for.
const MOST: Duration = Duration::from_millis(250);

/// Returns the tolerance of `limit`: what the user has set, or a 32nd of it, at most 250 ms.
pub(crate) fn tolerance_of(limit: Duration, set: Option<Duration>) -> Tolerance {
    let tolerance = set.unwrap_or_else(|| (limit / PART).min(MOST));
    Tolerance::new(nanos(tolerance))
}

/// A sleep for a time limit.
pub(crate) struct Limit {
    sleep: Sleep,
    tolerance: Tolerance,
}

impl Limit {
    /// Returns a sleep of `limit`, with the tolerance that the user has `set`, if any.
    pub(crate) fn new(limit: Duration, set: Option<Duration>) -> Self {
        Self {
            sleep: sleep(limit),
            tolerance: tolerance_of(limit, set),
        }
    }

    /// Returns a sleep until `deadline`. Otherwise like [`new`](Limit::new).
    pub(crate) fn until(deadline: Instant, set: Option<Duration>) -> Self {
        let limit = deadline.saturating_duration_since(Instant::now());
        Self {
            sleep: sleep_until(deadline),
            tolerance: tolerance_of(limit, set),
        }
    }

    #[cfg(feature = "axum")]
    pub(crate) fn deadline(&self) -> Instant {
        self.sleep.deadline()
    }

    #[cfg(feature = "axum")]
    pub(crate) fn is_elapsed(&self) -> bool {
        self.sleep.is_elapsed()
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.sleep.set_deadline(deadline);
    }
}

impl Future for Limit {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The poll arms the timer.
        within(self.tolerance, || Pin::new(&mut self.sleep).poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_be_late_by_a_32nd_and_at_most_250_ms() {
        let ms = |limit| tolerance_of(Duration::from_millis(limit), None).ns() / 1_000_000;
        // A tolerance is rounded down by less than a fifth.
        assert!(
            (250..=312).contains(&(tolerance_of(Duration::from_millis(10), None).ns() / 1_000))
        );
        assert!((125..=156).contains(&ms(5_000)));
        assert!((200..=250).contains(&ms(30_000)));
        assert!((200..=250).contains(&ms(u64::MAX)));
    }

    #[test]
    fn the_tolerance_of_the_user_counts() {
        let set = |set| tolerance_of(Duration::from_secs(30), Some(set));
        assert!(set(Duration::ZERO).is_exact());
        assert!(set(Duration::from_secs(2)).ns() > 1_600_000_000);
    }
}
