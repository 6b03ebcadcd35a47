//! Time limits, which need not be exact and share wake-ups.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon::time::{Instant, Sleep, WithTolerance, sleep, sleep_until, with_tolerance};

/// The part of a limit by which it may be late, as a divisor.
const PART: u32 = 32;
/// The largest tolerance that nobody asked for.
const MOST: Duration = Duration::from_millis(250);

/// A sleep for a time limit. It may be late, so that the limits of many connections share wake-ups.
/// It is never early.
///
/// ```
/// use std::time::Duration;
/// use tourbillon_hyper::TolerantSleep;
///
/// # async fn example() {
/// // Late by at most 937 ms / 32, some 29 ms.
/// TolerantSleep::new(Duration::from_millis(937), None).await;
/// // Late by at most 5 ms.
/// TolerantSleep::new(Duration::from_millis(937), Some(Duration::from_millis(5))).await;
/// # }
/// ```
#[derive(Debug)]
pub struct TolerantSleep(WithTolerance<Sleep>);

impl TolerantSleep {
    /// Returns a sleep of `limit` that may be late by `tolerance`. `None` is the
    /// [default](TolerantSleep::default_tolerance) of this limit. With zero the sleep is exact.
    ///
    /// # Panics
    ///
    /// Its first poll panics outside of a runtime.
    pub fn new(limit: Duration, tolerance: Option<Duration>) -> Self {
        let tolerance = tolerance.unwrap_or_else(|| Self::default_tolerance(limit));
        Self(with_tolerance(tolerance, sleep(limit)))
    }

    /// Returns a sleep until `deadline`. Otherwise like [`new`](TolerantSleep::new): the default
    /// tolerance is that of the time that is left.
    pub fn until(deadline: Instant, tolerance: Option<Duration>) -> Self {
        let limit = deadline.saturating_duration_since(Instant::now());
        let tolerance = tolerance.unwrap_or_else(|| Self::default_tolerance(limit));
        Self(with_tolerance(tolerance, sleep_until(deadline)))
    }

    /// Returns how late a limit may be by default: a 32nd of it, at most 250 ms.
    pub fn default_tolerance(limit: Duration) -> Duration {
        (limit / PART).min(MOST)
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.0.get_ref().deadline()
    }

    /// Returns whether the deadline was reached. A sleep that is complete but not elapsed was ended
    /// by the shutdown of its runtime.
    pub fn is_elapsed(&self) -> bool {
        self.0.get_ref().is_elapsed()
    }

    /// Sets the deadline. The sleep keeps its tolerance, and can be awaited again.
    pub fn set_deadline(&mut self, deadline: Instant) {
        Pin::new(self.0.get_mut()).reset(deadline);
    }
}

impl Future for TolerantSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The poll arms the timer.
        Pin::new(&mut self.0).poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_may_be_late_by_a_32nd_and_at_most_250_ms() {
        let of = |limit| TolerantSleep::default_tolerance(Duration::from_millis(limit));
        assert_eq!(of(0), Duration::ZERO);
        assert_eq!(of(10), Duration::from_nanos(312_500));
        assert_eq!(of(5_000), Duration::from_micros(156_250));
        assert_eq!(of(8_000), MOST);
        assert_eq!(of(30_000), MOST);
        assert_eq!(of(u64::MAX), MOST);
    }
}
