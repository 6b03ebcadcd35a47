//! How much a task may do before it lets others run.
//!
//! A task whose sockets, timers and tasks are always ready would never return from its poll. So each
//! poll has a budget, which our futures spend: one for each time that they are ready. When it is used
//! up they wake the task and wait, as if they were not ready: it goes to the end of its worker's queue.
//!
//! The budget is a word of the thread. Outside of a poll by us there is none, and nothing is counted.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
};

/// How often our futures are ready within one poll of a task.
const BUDGET: i32 = 128;

/// No budget: nothing is counted.
const UNLIMITED: i32 = i32::MAX;

/// How often in one poll they refuse before there is a budget again. Whoever asks that often does not
/// return from its poll for it: an executor that is run inside of the task, say, which takes the wake-up
/// for its own and asks again. It must get on.
const REFUSALS: i32 = 1024;

thread_local! {
    /// What is left; when it is used up, zero less what was refused since.
    static LEFT: Cell<i32> = const { Cell::new(UNLIMITED) };
}

/// Runs `f` with so much left, and with what there was again after it, or its panic.
fn with<R>(left: i32, f: impl FnOnce() -> R) -> R {
    struct Restore(i32);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(left));
    f()
}

/// From here to [`end`] there is a whole budget, for a task. For a worker, which polls no task within
/// another: two stores, where [`limited`] makes a ping-pong
/// of two tasks slower by 2 ns of 66.
#[inline]
pub(crate) fn begin() {
    LEFT.set(BUDGET);
}

/// There is no budget any more.
#[inline]
pub(crate) fn end() {
    LEFT.set(UNLIMITED);
}

/// Runs `f`, which polls a future, with a whole budget.
#[inline]
pub(crate) fn limited<R>(f: impl FnOnce() -> R) -> R {
    with(BUDGET, f)
}

/// Whether a future may go on. If not, its task is woken, to be polled when others have run.
#[inline]
pub(crate) fn check(cx: &Context<'_>) -> Poll<()> {
    if LEFT.get() > 0 {
        return Poll::Ready(());
    }
    refuse(cx)
}

#[cold]
fn refuse(cx: &Context<'_>) -> Poll<()> {
    let left = LEFT.get() - 1;
    if left <= -REFUSALS {
        LEFT.set(BUDGET);
        return Poll::Ready(());
    }
    LEFT.set(left);
    // Woken while it runs, a task is queued last.
    cx.waker().wake_by_ref();
    Poll::Pending
}

/// A future is ready.
#[inline]
pub(crate) fn spend() {
    let left = LEFT.get();
    if left != UNLIMITED {
        // (Below zero it is one more refusal.)
        LEFT.set(left - 1);
    }
}

/// Spends one of the 128 operations that a task has before it lets others run, and lets them if there
/// is none left.
///
/// Sockets, sleeps, intervals, delay queues, signals, [`Notify`](crate::sync::notify::Notify), join handles and join
/// sets do so by themselves.
/// This is for a loop that would go on for long without any of them, as
/// [`yield_now`](crate::task::yield_now) is, at a fraction of its price. Where there is no budget, outside of
/// tasks and `block_on`, it does nothing.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut sum = 0_u64;
/// for n in 0..10_000 {
///     sum += n * n;
///     tourbillon::task::consume_budget().await;
/// }
/// assert_eq!(sum, 333_283_335_000);
/// # });
/// ```
pub async fn consume_budget() {
    poll_fn(|cx| {
        ready!(check(cx));
        spend();
        Poll::Ready(())
    })
    .await;
}

/// Runs a future without a budget: as long as it is ready to go on, it does not let others run.
///
/// Whatever else its worker owns waits meanwhile: timers, sockets, tasks (those that are queued may be
/// stolen).
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// use tourbillon::task::{consume_budget, unconstrained};
///
/// unconstrained(async {
///     for _ in 0..10_000 {
///         consume_budget().await; // never waits
///     }
/// })
/// .await;
/// # });
/// ```
pub fn unconstrained<F>(future: F) -> Unconstrained<F> {
    Unconstrained(future)
}

/// The future of [`unconstrained`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Unconstrained<F>(F);

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is pinned whenever `self` is: nothing moves it, there is no Drop, and
        // Unpin is derived from it.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        with(UNLIMITED, || future.poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    fn may_go_on() -> bool {
        let ready = check(&Context::from_waker(Waker::noop())).is_ready();
        if ready {
            spend();
        }
        ready
    }

    #[test]
    fn a_poll_has_128_operations_and_outside_of_polls_nothing_is_counted() {
        assert!((0..100_000).all(|_| may_go_on()));
        for _ in 0..2 {
            limited(|| {
                assert!((0..BUDGET).all(|_| may_go_on()));
                assert!((1..REFUSALS).all(|_| !may_go_on()));
                assert!(may_go_on(), "who asks that often gets on");
            });
        }
        assert!((0..100_000).all(|_| may_go_on()));
    }
}
