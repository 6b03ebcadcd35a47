//! Running a future on a thread that is no worker.

use std::{
    future::Future,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use super::{context, handle::Handle};

/// Wakes a thread that blocks on a future.
struct Unpark {
    thread: Thread,
    /// Whether it was woken since it last looked.
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

#[track_caller]
pub(super) fn block_on<F: Future>(handle: &Handle, future: F) -> F::Output {
    assert!(
        !context::is_worker(),
        "`block_on` was called on a worker of a Tourbillon runtime, where it would stop everything \
         that the worker has to do: `.await` the future there, or spawn it"
    );
    let _entered = handle.enter();
    drive(future)
}

/// Runs a future to its end on the calling thread, whatever that is.
pub(crate) fn drive<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark {
        thread: thread::current(),
        woken: AtomicBool::new(false),
    });
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        // Others may unpark this thread for reasons of their own.
        while !unpark.woken.swap(false, Ordering::AcqRel) {
            thread::park();
        }
    }
}
