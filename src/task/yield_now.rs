//! Yielding to other tasks.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Yields to the worker's other jobs: the calling task goes to the end of its worker's queue.
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
        // A task that is woken while it runs is queued last.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
