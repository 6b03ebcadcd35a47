//! Waiting no longer than until a moment.

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

/// Runs a future for `duration` at most, and drops it then.
///
/// The timer is armed only if the future is not ready when it is first polled. As a sleep does, it
/// ends early if its runtime is shut down. Like a sleep, it panics when it has to wait outside of a
/// runtime.
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

/// Runs a future until `deadline` at most, and drops it then.
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
    /// The future that is being timed.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// The future that is being timed.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// The future that is being timed, no longer so.
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
        if let Poll::Ready(output) = future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        sleep.poll(cx).map(|()| Err(Elapsed(())))
    }
}

/// The time was over before the future was ready.
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
