//! hyper's executor and timer.

use std::{
    future::Future,
    pin::Pin,
    time::{Duration, Instant as StdInstant},
};

use hyper::rt;
use tourbillon::time::Instant;

use crate::TolerantSleep;

/// An executor for hyper that spawns tasks on the current runtime.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonExecutor;

impl TourbillonExecutor {
    /// Creates an executor.
    pub fn new() -> Self {
        Self
    }
}

impl<F> rt::Executor<F> for TourbillonExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(tourbillon::spawn(future));
    }
}

/// A timer for hyper that uses the timers of the current worker.
///
/// hyper uses it for time limits, which need not be exact. So its timers may be late by a 32nd of
/// their time, at most 250 ms, and share wake-ups. [`tolerance`](TourbillonTimer::tolerance) sets
/// another bound.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonTimer {
    tolerance: Option<Duration>,
}

impl TourbillonTimer {
    /// Creates a timer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how late hyper's timers may be, so that they share wake-ups. With zero they are exact.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hyper::server::conn::http1;
    /// use tourbillon_hyper::TourbillonTimer;
    ///
    /// let mut http = http1::Builder::new();
    /// http.timer(TourbillonTimer::new().tolerance(Duration::from_millis(20)))
    ///     .header_read_timeout(Duration::from_secs(1));
    /// ```
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Some(tolerance);
        self
    }
}

impl rt::Sleep for TolerantSleep {}

impl rt::Timer for TourbillonTimer {
    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(TolerantSleep::new(duration).tolerance(self.tolerance))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(TolerantSleep::until(deadline.into()).tolerance(self.tolerance))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<TolerantSleep>() {
            Some(ours) => ours.get_mut().set_deadline(Instant::from(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}
