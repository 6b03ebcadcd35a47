//! Giving way.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

/// Lets the worker's other jobs run first: the calling task goes to the end of its queue.
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
        // Woken while it runs, a task is queued last.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
