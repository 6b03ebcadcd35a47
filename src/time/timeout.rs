//! Futures with a time limit.

use std::{
    error::Error,
    fmt,
    future::{Future, IntoFuture},
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use crate::{
    clock::instant::Instant,
    time::{
        sleep,
        sleep::{Sleep, sleep_until},
    },
};

/// Runs a future for at most `duration`. If it is not ready by then, returns an error and drops it.
///
/// The timer is armed only if the future is not ready at its first poll. If the runtime is shut
/// down, the time limit ends early, as a [`sleep`](crate::time::sleep) does.
///
/// # Errors
///
/// The [`Timeout`]'s output is `Err(Elapsed)` if `duration` has passed before the future is ready.
///
/// # Panics
///
/// Like a sleep, the [`Timeout`] panics if it has to wait and is polled outside of a runtime.
///
/// ```
/// use std::{future, time::Duration};
/// use tourbillon::time::timeout;
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let brief = Duration::from_millis(1);
/// assert_eq!(timeout(brief, async { 7 }).await, Ok(7));
/// assert!(timeout(brief, future::pending::<()>()).await.is_err());
/// # });
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        sleep: sleep(duration),
    }
}

/// Runs a future until `deadline` at most. If it is not ready by then, returns an error and drops
/// it.
///
/// It is otherwise like [`timeout`].
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: future.into_future(),
        sleep: sleep_until(deadline),
    }
}

/// The future of [`timeout`] and [`timeout_at`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

impl<F> Timeout<F> {
    /// Returns a reference to the inner future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns a mutable reference to the inner future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Removes the time limit, and returns the inner future.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned whenever `self` is: it is never moved out of a pinned
        // `Timeout`, there is no Drop, and Unpin is derived from the fields. `sleep` is Unpin.
        let (future, sleep) = unsafe {
            let this = self.get_unchecked_mut();
            (
                Pin::new_unchecked(&mut this.future),
                Pin::new(&mut this.sleep),
            )
        };
        // The future comes first: if it is ready when the time is up, its output counts.
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The error of a future that was not ready in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
