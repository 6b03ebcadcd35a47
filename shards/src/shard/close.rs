//! Closes a shard.

use super::Shard;
use tourbillon_sync::Ordering;

use crate::{node::claim::NEVER, owner::Owner, shard::drained::DrainedTimers};

impl<O: Owner> Shard<O> {
    /// Closes the shard: all timers end with [`Outcome::Shutdown`](crate::Outcome::Shutdown), and
    /// so do timers that are armed later.
    ///
    /// Returns the timers that wait. The caller drops them where user code may run: the drop drops
    /// their callbacks and wakes their tasks. A timer that is due is ended by the thread that holds
    /// it ([`Due::shutdown`](crate::Due::shutdown)).
    ///
    /// Waits for the lock while another thread holds it, which is for one batch. See "Closing" in
    /// `PROTOCOLS.md`.
    pub fn close(&self) -> DrainedTimers<O> {
        let nodes = self.locked_in_turn(|inner| {
            // One critical section, so that no timer is missed: it is in the backlog, the inbox or
            // the store, or it arrives later and finds the shard closed.
            inner.closed = true;
            let mut nodes: Vec<_> = inner.backlog.by_ref().collect();
            nodes.extend(self.inbox.close());
            inner.backlog_next = NEVER;
            self.inbox_next.swap(NEVER, Ordering::AcqRel);
            self.unread.swap(0, Ordering::AcqRel);
            self.sweeping.store(0, Ordering::Relaxed);
            inner.empty(&mut nodes);
            nodes
        });
        DrainedTimers::new(nodes)
    }
}
