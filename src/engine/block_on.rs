//! `block_on`: runs a future on a thread that is not a worker.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
};

use crate::{engine::shared::Shared, util::budget};

/// Runs a future to completion on the calling thread. Between polls the thread sleeps, as a member
/// of `shared`'s quiescence protocol: see `paused/quiescence.rs`.
pub(crate) fn drive<F: Future>(shared: &Shared, future: F) -> F::Output {
    let output = drive_unless(shared, pin!(future), |_| Some(()), || false);
    output.expect("only the future ends it")
}

/// Runs a future as [`drive`] does, but returns `None` if something else comes first. `register`
/// gets the waker of the thread, and returns `None` if that has come already. Its result is kept
/// meanwhile. When that comes, the thread is woken, and then `is_over` returns `true`.
pub(crate) fn drive_unless<F: Future, R>(
    shared: &Shared,
    mut future: Pin<&mut F>,
    register: impl FnOnce(&Waker) -> Option<R>,
    is_over: impl Fn() -> bool,
) -> Option<F::Output> {
    // List the thread before the first poll: a paused clock must not advance while the future runs.
    let thread = shared.quiescence.enter(shared);
    let waker = thread.waker();
    let _registered = register(&waker)?;
    let mut cx = Context::from_waker(&waker);
    shared.around_polls(|| {
        loop {
            if let Poll::Ready(output) = budget::limited(|| future.as_mut().poll(&mut cx)) {
                return Some(output);
            }
            if is_over() {
                return None;
            }
            // A wake-up during the poll is not lost: it has changed the word that this looks at.
            thread.wait();
        }
    })
}
