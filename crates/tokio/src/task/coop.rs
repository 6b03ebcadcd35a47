//! The budget of a task, in two parts: Tourbillon's sockets, timers and tasks spend one, and the
//! real tokio's channels the other. Each poll of a task has both, 128 units each. The functions
//! here spend both, and a task yields when either is used up.

use std::{
    future::poll_fn,
    task::{Context, Poll, ready},
};

use real::task::coop as channels;
use tourbillon::task::coop as ours;

/// Takes a unit of the calling task's budget, and yields if it is used up.
pub async fn consume_budget() {
    poll_fn(|cx| {
        ready!(poll_proceed(cx)).made_progress();
        Poll::Ready(())
    })
    .await;
}

/// Returns whether the calling task has budget left.
pub fn has_budget_remaining() -> bool {
    ours::has_budget_remaining() && channels::has_budget_remaining()
}

/// Takes a unit of the calling task's budget. If it is used up, wakes the task and is pending.
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<RestoreOnPending> {
    let our_unit = ready!(ours::poll_proceed(cx));
    let channel_unit = ready!(channels::poll_proceed(cx));
    Poll::Ready(RestoreOnPending(our_unit, channel_unit))
}

/// A unit of the budget, which goes back when this is dropped.
#[derive(Debug)]
#[must_use = "the unit goes back at once if this is dropped"]
pub struct RestoreOnPending(ours::RestoreOnPending, channels::RestoreOnPending);

impl RestoreOnPending {
    /// Spends the unit for good.
    pub fn made_progress(&self) {
        self.0.made_progress();
        self.1.made_progress();
    }
}

/// A future without a budget. See [`unconstrained`].
pub type Unconstrained<F> = ours::Unconstrained<channels::Unconstrained<F>>;

/// Runs a future without a budget.
pub fn unconstrained<F>(future: F) -> Unconstrained<F> {
    ours::unconstrained(channels::unconstrained(future))
}

/// A future that spends the budget. See [`cooperative`].
pub type Coop<F> = ours::Coop<channels::Coop<F>>;

/// Makes a future spend the budget: it takes a unit when it is ready.
pub fn cooperative<F: Future>(future: F) -> Coop<F> {
    ours::cooperative(channels::cooperative(future))
}
