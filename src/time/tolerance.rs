//! A tolerance for all timers that a future or a function arms.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tourbillon_shards::Tolerance;

use crate::{engine::context::tolerance::within, util::nanos::nanos};

/// Runs a future whose timers may be late by up to `tolerance`, so that they share wake-ups.
///
/// This holds for each timer that is armed while the future is polled: sleeps, time limits,
/// intervals, and callbacks. It holds in place of the runtime's
/// [`timer_tolerance`](crate::runtime::Builder::timer_tolerance), which has the details. With
/// [`Duration::ZERO`] the timers are exact. A callback with a tolerance [of its
/// own](crate::timer::builder::TimerBuilder::tolerance) keeps that.
///
/// A timer is armed when it is first polled, and keeps its tolerance when it is moved. Tasks that
/// the future spawns are not a part of it: wrap their futures, too.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, sleep, with_tolerance};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let start = Instant::now();
/// with_tolerance(Duration::from_millis(5), async {
///     for _ in 0..3 {
///         sleep(Duration::from_millis(2)).await;
///     }
/// })
/// .await;
/// assert!(start.elapsed() >= Duration::from_millis(6), "no sleep is early");
/// # });
/// ```
pub fn with_tolerance<F: IntoFuture>(
    tolerance: Duration,
    future: F,
) -> WithTolerance<F::IntoFuture> {
    WithTolerance {
        future: future.into_future(),
        tolerance: Tolerance::stated(nanos(tolerance)),
    }
}

/// Runs a function whose timers may be late by up to `tolerance`. It is [`with_tolerance`] without
/// a future, for code that polls timers by hand.
///
/// ```
/// use std::{future::{Future, poll_fn}, pin::Pin, time::Duration};
/// use tourbillon::time::{sleep, tolerant};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut limit = sleep(Duration::from_millis(10));
/// // The first poll arms the timer.
/// poll_fn(|cx| tolerant(Duration::from_millis(5), || Pin::new(&mut limit).poll(cx))).await;
/// # });
/// ```
pub fn tolerant<R>(tolerance: Duration, f: impl FnOnce() -> R) -> R {
    within(Tolerance::stated(nanos(tolerance)), f)
}

/// The future of [`with_tolerance`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct WithTolerance<F> {
    future: F,
    tolerance: Tolerance,
}

impl<F> WithTolerance<F> {
    /// Returns the future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns the future mutably, for example to move the deadline of a sleep.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }
}

impl<F: Future> Future for WithTolerance<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let tolerance = self.tolerance;
        // SAFETY: `future` is pinned whenever `self` is: it is never moved out of a pinned
        // `WithTolerance`, there is no Drop, and Unpin is derived from the fields.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        within(tolerance, || future.poll(cx))
    }
}
