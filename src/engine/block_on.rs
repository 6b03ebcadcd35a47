//! Running a future on a thread that is no worker.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

use crate::{engine::shared::Shared, util::budget};

/// Runs a future to its end on the calling thread, which waits for what `shared` does.
pub(crate) fn drive<F: Future>(shared: &Shared, future: F) -> F::Output {
    let thread = shared.quiescence.enter(shared);
    let mut future = pin!(future);
    let waker = thread.waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = budget::limited(|| future.as_mut().poll(&mut cx)) {
            return output;
        }
        thread.wait();
    }
}
