//! `block_on`: runs a future on a thread that is not a worker.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

use crate::{engine::shared::Shared, util::budget};

/// Runs a future to completion on the calling thread. Between polls the thread sleeps, as a member
/// of `shared`'s quiescence protocol: see `paused/quiescence.rs`.
pub(crate) fn drive<F: Future>(shared: &Shared, future: F) -> F::Output {
    // List the thread before the first poll: a paused clock must not advance while the future runs.
    let thread = shared.quiescence.enter(shared);
    let mut future = pin!(future);
    let waker = thread.waker();
    let mut cx = Context::from_waker(&waker);
    shared.companion.with_budget(|| {
        loop {
            if let Poll::Ready(output) = budget::limited(|| future.as_mut().poll(&mut cx)) {
                return output;
            }
            // A wake-up during the poll is not lost: it has changed the word that this looks at.
            thread.wait();
        }
    })
}
