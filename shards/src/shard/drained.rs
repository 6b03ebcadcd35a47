//! Timers that were drained from a shard when it was closed.

use tourbillon_sync::foreign::each;

use crate::{
    answer::Outcome,
    node::{NodeRef, ending::end},
    owner::{Notice, Owner},
};

/// Prefetch distance, in timers.
const AHEAD: usize = 8;

/// Timers that [`Shard::close`](crate::Shard::close) drained from a shard.
///
/// Dropping this ends each of them as [`Outcome::Shutdown`]. If ending one panics, the others are
/// ended all the same.
pub struct DrainedTimers<O: Owner>(Vec<NodeRef<O>>);

impl<O: Owner> DrainedTimers<O> {
    pub(crate) fn new(nodes: Vec<NodeRef<O>>) -> Self {
        Self(nodes)
    }

    /// Returns the number of timers, including those that were already over. A timer in the store
    /// that has an unread update counts twice.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there is no timer.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Ends one timer, but leaves the delivery of an outcome to the caller: if the callback takes
    /// outcomes, returns the notice, which the caller must run or queue. Returns the outer `None`
    /// if there was no timer.
    ///
    /// # Panics
    ///
    /// Panics if [`Owner::panicked`] does for the panic of a callback's destructor or a task's
    /// waker. The timer is over all the same.
    pub fn end_next(&mut self) -> Option<Option<Notice<O>>> {
        let node = self.0.pop()?;
        // Nodes are not in the cache after a long wait, so fetch a later one ahead of its turn.
        let ahead = self.0.len().checked_sub(AHEAD);
        if let Some(node) = ahead.and_then(|at| self.0.get(at)) {
            node.prefetch();
        }
        Some(end(&node, Outcome::Shutdown))
    }

    /// Splits off `count` timers, or all if there are fewer, for another thread to end.
    #[must_use]
    pub fn split(&mut self, count: usize) -> Self {
        Self(self.0.split_off(self.0.len().saturating_sub(count)))
    }
}

impl<O: Owner> Drop for DrainedTimers<O> {
    fn drop(&mut self) {
        // A notice that is dropped delivers its outcome.
        each(0..self.0.len(), |_| drop(self.end_next()));
    }
}

debug!(DrainedTimers, |timers| timers.len());
