//! Wait for the end of a timer: until its callback has returned for the last time.
//!
//! Few timers are waited for, so nodes have no space for a waker. The shard keeps lists of wakers,
//! and a mark in the claim word says that the node has a list.
//!
//! **No wake-up is lost.** A waiting thread first adds its waker to the list, and then sets the
//! mark by a compare-exchange, which fails if the timer is over. The thread that ends the timer
//! swaps the word. If it finds the mark, the waker is in the list, and it takes the waker from
//! there. See "Waiting for the end" in `PROTOCOLS.md`.

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

/// Wakers of all tasks that wait for the end of timers of one shard, by the address of the node.
pub(crate) struct Watchers(Mutex<Lists>);

/// Lists of wakers, under the mutex.
#[derive(Default)]
struct Lists {
    /// Ticket of the last entry. Tickets are unique within a shard.
    tickets: u64,
    /// Lists of wakers. No list is empty.
    by_node: HashMap<usize, Vec<Entry>>,
}

/// One waker of a list.
struct Entry {
    ticket: u64,
    waker: Waker,
}

impl Watchers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Lists::default()))
    }

    /// Adds a waker to the list of `node`, or replaces the one that `ticket` stands for. Sets
    /// `ticket` to that of a new entry.
    fn add(&self, node: usize, ticket: &mut Option<u64>, waker: &Waker) {
        // Clone and drop wakers without the lock, because they call user code.
        let mut waker = waker.clone();
        let mut lists = lock(&self.0);
        lists.tickets += 1;
        let next = lists.tickets;
        let list = lists.by_node.entry(node).or_default();
        // A future that is polled again replaces its waker.
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

    /// Removes the waker of `ticket`, if it is still there, and the list if it is empty then.
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
        // Drop the waker after unlocking.
        drop(lists);
        drop(gone);
    }

    /// Wakes all tasks that wait for the node at this address.
    pub(crate) fn wake(&self, node: usize) {
        // Take the list out first: wakers are user code, and run without the lock.
        let woken = lock(&self.0).by_node.remove(&node);
        each(woken.unwrap_or_default(), |entry| entry.waker.wake());
    }
}

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
            self.node.home.watchers().remove(node, ticket);
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
        if running::is_inside(node) {
            return Poll::Ready(Err(InsideCallback));
        }
        let watchers = node.home.watchers();
        // The waker first, then the mark. Otherwise the end could come between the two and wake no
        // task.
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
