//! Yielding to other tasks.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::util::budget;

/// Yields to the worker's other jobs: the calling task goes to the end of its worker's queue.
///
/// A current-thread runtime looks at its sockets and timers before the task runs again, as tokio's
/// does. A worker of a multi-thread runtime does so after
/// [`event_interval`](crate::runtime::Builder::event_interval) jobs at the latest.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// tourbillon::task::yield_now().await;
/// # });
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        budget::yield_to_others(cx);
        Poll::Pending
    }
}
