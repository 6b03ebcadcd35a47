//! Wait for the end of a timer: until its callback has returned for the last time.
//!
//! `shard/waiters.rs` keeps the wakers. See "Waiting for the end" in `PROTOCOLS.md`.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::{
    node::{NodeRef, claim::Awaiting, running},
    owner::Owner,
};

/// Future that completes when the callback of a timer runs no more: see
/// [`Timer::ended`](crate::Timer::ended).
#[must_use = "futures do nothing unless polled"]
pub struct Ended<O: Owner> {
    node: NodeRef<O>,
    ticket: Option<u64>,
}

/// Error of [`Timer::ended`](crate::Timer::ended): a callback would wait for its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsideCallback;

impl std::fmt::Display for InsideCallback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a callback cannot wait for its own end: cancel the timer there, and wait elsewhere",
        )
    }
}

impl std::error::Error for InsideCallback {}

impl<O: Owner> Ended<O> {
    pub(crate) fn new(node: NodeRef<O>) -> Self {
        Self { node, ticket: None }
    }

    /// Removes this future's waker from the list.
    fn forget(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let node = self.node.address();
            self.node.home.waiters().remove(node, ticket);
        }
    }
}

impl<O: Owner> Future for Ended<O> {
    /// `Err` if the future was polled inside of the callback.
    type Output = Result<(), InsideCallback>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let node = &this.node;
        // Nothing runs for the last time, so there is nothing to wait for.
        if !node.is_ending() {
            this.forget();
            return Poll::Ready(Ok(()));
        }
        // The callback would wait for ever for its own return.
        if running::is_inside(node.address()) {
            return Poll::Ready(Err(InsideCallback));
        }
        let waiters = node.home.waiters();
        // The waker first, then the mark. Otherwise the end could come between the two and wake no
        // task.
        waiters.add(node.address(), &mut this.ticket, cx.waker());
        match node.claim.await_end(node.recurs()) {
            Awaiting::Marked => Poll::Pending,
            Awaiting::Nothing => {
                this.forget();
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl<O: Owner> Drop for Ended<O> {
    fn drop(&mut self) {
        self.forget();
    }
}

debug!(Ended, |ended| ended.node.claim.load());
