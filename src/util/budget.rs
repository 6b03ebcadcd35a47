//! The budget of a task: how many operations it may do before it must let other tasks run.
//!
//! A task whose sockets, timers and tasks are always ready would never return from its poll. So
//! each poll of a task has a budget, and our futures spend one unit each time they are ready. When
//! the budget is used up, they wake the task and return `Pending`, as if they were not ready: the
//! task goes to the end of its worker's queue.
//!
//! The budget is a thread-local number. Outside of a poll by the runtime there is no limit, and
//! nothing is counted.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    marker::PhantomData,
    pin::Pin,
    task::{Context, Poll, ready},
};

/// How many times futures of the runtime may be ready in one poll of a task.
const BUDGET: i32 = 128;

/// The value that means "no budget": nothing is counted.
const UNLIMITED: i32 = i32::MAX;

/// After how many refusals in one poll the task gets a new budget. A caller that polls again and
/// again without returning from its own poll must make progress. An executor that runs inside of a
/// task does so: it takes the wake-up as its own, and polls the future again.
const MAX_REFUSALS: i32 = 1024;

thread_local! {
    /// The units that are left. Below zero: minus the number of refusals since the budget was used
    /// up.
    static LEFT: Cell<i32> = const { Cell::new(UNLIMITED) };
}

/// Runs `f` with `left` units, and restores the previous number afterwards, also on a panic.
fn with_left<R>(left: i32, f: impl FnOnce() -> R) -> R {
    struct Restore(i32);
    impl Drop for Restore {
        fn drop(&mut self) {
            LEFT.set(self.0);
        }
    }
    let _restore = Restore(LEFT.replace(left));
    f()
}

/// Gives this thread a whole budget, until [`end`], which does not restore the previous one. It is
/// for a worker, whose loop runs outside of polls: two stores. [`limited`] restores the previous
/// budget instead, which makes a ping-pong of two tasks slower by 2 ns of 66.
#[inline]
pub(crate) fn begin() {
    LEFT.set(BUDGET);
    refill_tokio();
}

/// Removes the limit that [`begin`] set.
#[inline]
pub(crate) fn end() {
    LEFT.set(UNLIMITED);
}

/// Runs `f`, which polls a future, with a whole budget.
#[inline]
pub(crate) fn limited<R>(f: impl FnOnce() -> R) -> R {
    refill_tokio();
    with_left(BUDGET, f)
}

/// Runs `f`, in which [`limited`] and [`begin`] give a budget of tokio, too, if this runtime stands
/// in the place of tokio.
#[inline]
pub(crate) fn around_polls<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(feature = "facade")]
    return super::budget_hooks::with_budget(f);
    #[cfg(not(feature = "facade"))]
    f()
}

/// Gives the next poll a whole budget of tokio, too, if this runtime stands in the place of tokio.
#[inline]
fn refill_tokio() {
    #[cfg(feature = "facade")]
    super::budget_hooks::refill();
}

/// Runs `f`, which runs a worker's loop within a poll of another runtime, without a budget.
/// Restores the budget of that poll afterwards.
pub(crate) fn apart<R>(f: impl FnOnce() -> R) -> R {
    with_left(UNLIMITED, f)
}

/// Runs `f`, which is not a poll of a task, without tokio's budget.
#[inline]
pub(crate) fn outside_polls<R>(f: impl FnOnce() -> R) -> R {
    #[cfg(feature = "facade")]
    let f = || super::budget_hooks::unlimited(f);
    f()
}

/// Returns `Ready` if a future may make progress. Otherwise wakes its task, which is then polled
/// after other tasks.
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
    // The caller polls again and again within one poll of its task. A refusal without an end would
    // be an endless loop.
    if left <= -MAX_REFUSALS {
        LEFT.set(BUDGET);
        return Poll::Ready(());
    }
    LEFT.set(left);
    #[cfg(all(feature = "facade", tokio_unstable))]
    if left == -1 {
        super::budget_hooks::refused();
    }
    yield_to_others(cx);
    Poll::Pending
}

thread_local! {
    /// Whether a task has yielded since [`took_yield`] asked.
    static YIELDED: Cell<bool> = const { Cell::new(false) };
}

/// Queues the calling task behind all others, though it is ready.
#[inline]
pub(crate) fn yield_to_others(cx: &Context<'_>) {
    YIELDED.set(true);
    // A task that is woken while it runs is queued last.
    cx.waker().wake_by_ref();
}

/// Runs `f`, and returns whether a task has yielded in it.
#[inline]
pub(crate) fn yields(f: impl FnOnce()) -> bool {
    let before = YIELDED.replace(false);
    f();
    let yielded = YIELDED.get();
    YIELDED.set(before || yielded);
    yielded
}

/// Returns whether a task has yielded on this thread since the last call.
#[inline]
pub(crate) fn took_yield() -> bool {
    YIELDED.replace(false)
}

/// Spends one unit: a future is ready.
#[inline]
pub(crate) fn spend() {
    let left = LEFT.get();
    if left != UNLIMITED {
        // The number is at or below zero if several futures became ready after one check. It counts
        // refusals then, and this adds one: the task only gets its next budget a little sooner.
        LEFT.set(left - 1);
    }
}

/// Spends one unit of the calling task's budget, and yields to other tasks if the budget is used
/// up.
///
/// Each poll of a task has a budget of 128 operations. Sockets, sleeps, intervals, delay queues,
/// signals, [`Notify`](crate::sync::notify::Notify), join handles and join sets spend it by
/// themselves. Use this in a long loop that awaits none of them. It costs a fraction of what
/// [`yield_now`](crate::task::yield_now) costs. Outside of tasks and `block_on` it does nothing.
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

/// Runs a future without a budget: while it is ready to make progress, it does not yield to other
/// tasks.
///
/// Everything else that its worker owns waits meanwhile: timers, sockets and tasks. (Peers may
/// steal tasks that are queued.)
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
        // SAFETY: the inner future is pinned whenever `self` is: nothing moves it, there is no
        // Drop, and Unpin is derived from it.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        with_left(UNLIMITED, || future.poll(cx))
    }
}

/// Returns whether the calling task has units of its budget left. Outside of tasks and `block_on`
/// it returns `true`.
///
/// A future that polls others can use this to tell why one of them is pending. So can a limit on
/// another future: if that future has used up the budget, the limit must be polled
/// [without a budget](unconstrained).
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// use tourbillon::task::{coop::has_budget_remaining, consume_budget, yield_now};
///
/// while has_budget_remaining() {
///     consume_budget().await;
/// }
/// yield_now().await;
/// assert!(has_budget_remaining());
/// # });
/// ```
#[inline]
pub fn has_budget_remaining() -> bool {
    LEFT.get() > 0
}

/// Takes one unit of the calling task's budget. If the budget is used up, wakes the task and
/// returns `Pending`.
///
/// The unit goes back when the returned value is dropped, unless
/// [`made_progress`](RestoreOnPending::made_progress) was called before. So call it if the future
/// is ready, and drop the value if it is pending.
///
/// ```
/// use std::{pin::Pin, task::{Context, Poll, ready}};
/// use futures_core::Stream;
/// use tourbillon::task::coop::poll_proceed;
///
/// /// A stream of another crate that spends the budget.
/// struct Spending<S>(S);
///
/// impl<S: Stream + Unpin> Stream for Spending<S> {
///     type Item = S::Item;
///
///     fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<S::Item>> {
///         let unit = ready!(poll_proceed(cx));
///         let item = ready!(Pin::new(&mut self.0).poll_next(cx));
///         unit.made_progress();
///         Poll::Ready(item)
///     }
/// }
/// ```
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<RestoreOnPending> {
    ready!(check(cx));
    let before = Cell::new(LEFT.get());
    spend();
    Poll::Ready(RestoreOnPending(before, PhantomData))
}

/// A unit of a task's budget, taken by [`poll_proceed`]. It goes back when this is dropped.
///
/// The budget is then as it was before `poll_proceed`: what was spent in between goes back, too.
#[derive(Debug)]
#[must_use = "the unit goes back at once if this is dropped"]
pub struct RestoreOnPending(
    /// The units before, or `UNLIMITED` if none goes back.
    Cell<i32>,
    /// The budget is that of the thread, so this must stay on it.
    PhantomData<*mut ()>,
);

impl RestoreOnPending {
    /// Spends the unit for good: the future is ready.
    pub fn made_progress(&self) {
        self.0.set(UNLIMITED);
    }
}

impl Drop for RestoreOnPending {
    fn drop(&mut self) {
        // Outside of the poll in which the unit was taken, there may be no limit to restore.
        if self.0.get() != UNLIMITED && LEFT.get() != UNLIMITED {
            LEFT.set(self.0.get());
        }
    }
}

/// Makes a future spend the budget: it takes one unit when it is ready, and does not run while the
/// budget is used up.
///
/// Use it for the futures of other crates, which do not spend the budget by themselves.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// use futures::{StreamExt, channel::mpsc::unbounded};
/// use tourbillon::task::coop::cooperative;
///
/// let (sender, mut receiver) = unbounded();
/// sender.unbounded_send(42).unwrap();
/// assert_eq!(cooperative(receiver.next()).await, Some(42));
/// # });
/// ```
pub fn cooperative<F: Future>(future: F) -> Coop<F> {
    Coop(future)
}

/// The future of [`cooperative`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Coop<F>(F);

impl<F: Future> Future for Coop<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let unit = ready!(poll_proceed(cx));
        // SAFETY: the inner future is pinned whenever `self` is: nothing moves it, there is no
        // Drop, and Unpin is derived from it.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.0) };
        let output = ready!(future.poll(cx));
        unit.made_progress();
        Poll::Ready(output)
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
    fn a_poll_has_128_operations_and_nothing_is_counted_outside() {
        assert!((0..100_000).all(|_| may_go_on()));
        for _ in 0..2 {
            limited(|| {
                assert!((0..BUDGET).all(|_| may_go_on()));
                assert!((1..MAX_REFUSALS).all(|_| !may_go_on()));
                assert!(may_go_on(), "a caller that polls that often makes progress");
            });
        }
        assert!((0..100_000).all(|_| may_go_on()));
    }
}
