//! Who waits until a callback has returned for the last time.
//!
//! Few ever wait, so nodes have no room for it: the shard keeps a list, and the claim word a mark.
//!
//! **No wake-up is lost.** Who waits puts its waker into the list first, then sets the mark by a
//! compare-exchange, which fails if the timer is over by then. Who ends the timer swaps the word; if
//! the mark was there, so was the waker, and it takes it from the list.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use crate::{
    claim::Watch,
    foreign::each,
    node::NodeRef,
    owner::Owner,
    running,
    sync::{Mutex, lock},
};

/// The wakers of those that wait for nodes of one shard, by the nodes' addresses.
pub(crate) struct Watchers(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    tickets: u64,
    /// No list is empty.
    by_node: HashMap<usize, Vec<Entry>>,
}

struct Entry {
    ticket: u64,
    waker: Waker,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Lists::default()))
    }

    /// Keeps a waker, in the place of the one that `ticket` stands for.
    fn add(&self, node: usize, ticket: &mut Option<u64>, waker: &Waker) {
        // Cloned outside of the lock, as it is dropped: a waker is foreign code.
        let mut waker = waker.clone();
        let mut lists = lock(&self.0);
        lists.tickets += 1;
        let next = lists.tickets;
        let list = lists.by_node.entry(node).or_default();
        let old = list
            .iter_mut()
            .find(|entry| ticket.is_some_and(|ticket| ticket == entry.ticket));
        match old {
            Some(entry) => std::mem::swap(&mut entry.waker, &mut waker),
            None => {
                *ticket = Some(next);
                let ticket = next;
                list.push(Entry { ticket, waker });
                return;
            }
        }
        drop(lists);
        drop(waker);
    }

    fn remove(&self, node: usize, ticket: u64) {
        let mut lists = lock(&self.0);
        let Some(list) = lists.by_node.get_mut(&node) else {
            return;
        };
        let at = list.iter().position(|entry| entry.ticket == ticket);
        let gone = at.map(|at| list.swap_remove(at));
        if list.is_empty() {
            lists.by_node.remove(&node);
        }
        drop(lists);
        drop(gone);
    }

    /// Wakes those that wait for the node at this address.
    pub(crate) fn wake(&self, node: usize) {
        let woken = lock(&self.0).by_node.remove(&node);
        each(woken.unwrap_or_default(), |entry| entry.waker.wake());
    }
}

/// Waits until the callback of a timer that ends runs no more: see
/// [`Timer::ended`](crate::Timer::ended).
#[must_use = "futures do nothing unless polled"]
pub struct Ended<O: Owner> {
    node: NodeRef<O>,
    ticket: Option<u64>,
}

/// The calling thread is inside of the callback for whose end it would wait.
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

    fn forget(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            let node = self.node.address();
            self.node.home.watchers().remove(node, ticket);
        }
    }
}

impl<O: Owner> Future for Ended<O> {
    /// An error if it was polled inside of the callback.
    type Output = Result<(), InsideCallback>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let node = &this.node;
        if !node.is_ending() {
            this.forget();
            return Poll::Ready(Ok(()));
        }
        if running::is_inside(node) {
            return Poll::Ready(Err(InsideCallback));
        }
        let watchers = node.home.watchers();
        watchers.add(node.address(), &mut this.ticket, cx.waker());
        match node.claim.watch(node.recurs()) {
            Watch::Marked => Poll::Pending,
            Watch::Nothing => {
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

impl<O: Owner> std::fmt::Debug for Ended<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ended")
            .field(&self.node.claim.load())
            .finish()
    }
}
