//! Time limits, which need not be exact and share wake-ups.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon::time::{Instant, Sleep, sleep, sleep_until, tolerant};

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
/// TolerantSleep::new(Duration::from_millis(937)).await;
/// // Late by at most 5 ms.
/// TolerantSleep::new(Duration::from_millis(937)).tolerance(Duration::from_millis(5)).await;
/// # }
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct TolerantSleep {
    sleep: Sleep,
    tolerance: Duration,
}

impl TolerantSleep {
    /// Returns a sleep of `limit` with the [default tolerance](TolerantSleep::default_tolerance) of
    /// this limit.
    ///
    /// # Panics
    ///
    /// Its first poll panics outside of a runtime.
    pub fn new(limit: Duration) -> Self {
        Self {
            sleep: sleep(limit),
            tolerance: Self::default_tolerance(limit),
        }
    }

    /// Returns a sleep until `deadline`. Otherwise like [`new`](TolerantSleep::new): the default
    /// tolerance is that of the time that is left.
    pub fn until(deadline: Instant) -> Self {
        let limit = deadline.saturating_duration_since(Instant::now());
        Self {
            sleep: sleep_until(deadline),
            tolerance: Self::default_tolerance(limit),
        }
    }

    /// Sets how late the sleep may be. With zero it is exact. `None` changes nothing, so an option
    /// of a program can be passed on.
    pub fn tolerance(mut self, tolerance: impl Into<Option<Duration>>) -> Self {
        self.tolerance = tolerance.into().unwrap_or(self.tolerance);
        self
    }

    /// Returns how late a limit may be by default: a 32nd of it, at most 250 ms.
    pub fn default_tolerance(limit: Duration) -> Duration {
        (limit / PART).min(MOST)
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.sleep.deadline()
    }

    /// Returns whether the deadline was reached. A sleep that is complete but not elapsed was ended
    /// by the shutdown of its runtime.
    pub fn is_elapsed(&self) -> bool {
        self.sleep.is_elapsed()
    }

    /// Sets the deadline. The sleep keeps its tolerance, and can be awaited again.
    pub fn set_deadline(&mut self, deadline: Instant) {
        Pin::new(&mut self.sleep).reset(deadline);
    }
}

impl Future for TolerantSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // The poll arms the timer.
        tolerant(self.tolerance, || Pin::new(&mut self.sleep).poll(cx))
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
