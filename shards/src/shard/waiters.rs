//! Wakers of the tasks that wait for the end of a timer.
//!
//! Few timers are waited for, so nodes have no space for a waker. The shard keeps lists of wakers,
//! and a mark in the claim word says that the node has a list.
//!
//! **No wake-up is lost.** A waiting thread first adds its waker to the list, and then sets the
//! mark by a compare-exchange, which fails if the timer is over. The thread that ends the timer
//! swaps the word. If it finds the mark, the waker is in the list, and it takes the waker from
//! there. See "Waiting for the end" in `PROTOCOLS.md`.

use std::{collections::HashMap, task::Waker};

use tourbillon_sync::{Mutex, foreign::each, lock};

/// Wakers of all tasks that wait for the end of timers of one shard, by the address of the node.
pub(crate) struct Waiters(Mutex<Lists>);

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

impl Waiters {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Lists::default()))
    }

    /// Adds a waker to the list of the node at this address, or replaces the one that `ticket`
    /// stands for. Sets `ticket` to that of a new entry.
    pub(crate) fn add(&self, node: usize, ticket: &mut Option<u64>, waker: &Waker) {
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
    pub(crate) fn remove(&self, node: usize, ticket: u64) {
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
