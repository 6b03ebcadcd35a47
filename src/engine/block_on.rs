//! Running a future on a thread that is no worker.

use std::{
    future::Future,
    pin::pin,
    task::{Context, Poll},
};

use crate::{
    api::handle::Handle,
    engine::{context, shared::Shared},
    util::budget,
};

#[track_caller]
pub(crate) fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    assert!(
        !context::is_worker(),
        "`block_on` was called on a worker of a Tourbillon runtime, where it would stop everything \
         that the worker has to do: `.await` the future there, or spawn it"
    );
    let _entered = handle.enter();
    drive(handle.shared(), future)
}

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
