//! tokio's budget in polls by this runtime.
//!
//! tokio has a budget of its own, beside that of Tourbillon: a thread-local number that its
//! channels, sockets and timers spend. It gives a whole budget only to its own tasks, and has no
//! function by which another runtime does. This module builds one from two documented properties:
//!
//! - `poll_proceed` returns a [`RestoreOnPending`], which sets the budget back to the value before
//!   that call when it is dropped.
//! - [`unconstrained`] sets the budget back to the value before its poll.
//!
//! A thread gets one [`RestoreOnPending`], from a task that a `LocalSet` polls with a whole budget.
//! Dropping a copy of it before each poll fills the budget.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    mem::ManuallyDrop,
    pin::pin,
    ptr,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use real::task::{
    LocalSet,
    coop::{RestoreOnPending, poll_proceed, unconstrained},
};

thread_local! {
    /// Whether polls on this thread have tokio's budget.
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    /// Sets the budget of this thread to a whole one when a copy of it is dropped. `None` if tokio
    /// gives no budget.
    static WHOLE: ManuallyDrop<Option<RestoreOnPending>> = ManuallyDrop::new(first());
}

// A value of two bytes has no place for a pointer: it owns nothing that a copy would free again.
const _: () = assert!(size_of::<RestoreOnPending>() == 2);

/// Runs `f`, in which [`refill`] gives a whole budget.
pub(crate) fn with_budget<R>(f: impl FnOnce() -> R) -> R {
    /// Sets the variable back to what it was. (A `block_on` may run within another.)
    struct Reset(bool);
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_ON.set(self.0);
        }
    }
    // At its end this sets the thread's budget back.
    without_limit(|| {
        let _reset = Reset(IS_ON.replace(true));
        f()
    })
}

/// Gives the next poll a whole budget.
#[inline]
pub(crate) fn refill() {
    if IS_ON.get() {
        fill();
    }
}

#[cold]
#[inline(never)]
fn fill() {
    WHOLE.with(|whole| {
        if let Some(whole) = &**whole {
            // SAFETY: it is two bytes in the thread that they belong to, and owns nothing, so the
            // copy may be dropped.
            drop(unsafe { ptr::read(whole) });
        }
    });
}

/// Runs `f`, which is no poll, without a budget. An executor in a callback would never get a new
/// budget, and would poll a future for ever that finds the last one used up.
#[inline]
pub(crate) fn unlimited<R>(f: impl FnOnce() -> R) -> R {
    if IS_ON.get() { without_limit(f) } else { f() }
}

/// Runs `f` without a budget, and sets the budget back afterwards.
#[cold]
#[inline(never)]
fn without_limit<R>(f: impl FnOnce() -> R) -> R {
    let mut f = Some(f);
    let once = poll_fn(|_| match f.take() {
        Some(f) => Poll::Ready(f()),
        None => Poll::Pending,
    });
    match pin!(unconstrained(once)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("the future is polled once"),
    }
}

/// Returns what sets the budget of this thread to a whole one, or `None` if tokio gives none.
fn first() -> Option<RestoreOnPending> {
    // tokio-console does not list the task.
    #[cfg(all(tokio_unstable, feature = "tracing"))]
    let _unseen = {
        use tourbillon::facade::tracing::subscriber::{NoSubscriber, set_default};
        set_default(NoSubscriber::new())
    };
    let found = Rc::new(Cell::new(None));
    let local = LocalSet::new();
    local.spawn_local({
        let found = found.clone();
        poll_fn(move |cx| {
            if let Poll::Ready(restore) = poll_proceed(cx) {
                found.set(Some(restore));
            }
            Poll::Ready(())
        })
    });
    _ = pin!(local).poll(&mut Context::from_waker(Waker::noop()));
    found.take()
}
