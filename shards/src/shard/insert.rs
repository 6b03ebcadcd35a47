//! Inserts nodes into a shard: armed timers, and timers that are put back.
//!
//! The owner inserts a node into the store at once. A remote thread pushes it into the inbox, and
//! wakes the owner if the owner would sleep past the deadline. See "Published words" in `PROTOCOLS.md`
//! and "Parking and wake-ups" in that of `tourbillon-sched`.

use super::{Shard, inbox::New};
use tourbillon_sync::{BeforeFence, Ordering, fence, foreign::each};

use std::vec::Drain;

use crate::{
    answer::Outcome,
    node::{NodeRef, claim::NEVER, ending::end},
    owner::Owner,
    tolerance::Tolerance,
};

impl<O: Owner> Shard<O> {
    /// Wakes the owner if it sleeps past `deadline`, and returns whether it did. `waits`: the owner
    /// may defer that. `fence` orders the caller's change before the read of the parked word.
    #[inline]
    pub(super) fn wake_before(&self, deadline: u64, waits: bool, fence: impl FnOnce()) -> bool {
        fence();
        let wake = match waits {
            true => self
                .parker
                .claim_if_not_deferred(deadline, || self.deferred_before(deadline)),
            false => self.parker.claim_if_later(deadline),
        };
        if wake {
            self.owner.wake();
        }
        wake
    }

    /// Returns until when the owner may sleep although a timer is due at `deadline`, in ns.
    fn deferred_before(&self, deadline: u64) -> u64 {
        match self.owner.is_covered(deadline) {
            true => NEVER,
            false => self.deferred(),
        }
    }

    /// Reports to the owner that a node is armed. [`insert_new`](Shard::insert_new) reports its
    /// nodes itself.
    pub(crate) fn armed(&self, node: &NodeRef<O>) {
        self.owner
            .armed(node.vtable.kind, self.owner.is_current(), 1);
    }

    /// Inserts a node that no thread holds (its location is `None`).
    pub(crate) fn arrive(&self, node: &NodeRef<O>) {
        // A remote thread leaves the lock, and the store's cache lines, to the owner.
        let inserted = match self.owner.is_current() {
            true => self.locked(|inner| {
                // A node that is over is given back, to be dropped outside of the lock.
                if inner.closed {
                    (Some([node.clone()]), None)
                } else {
                    (None, inner.read(node.clone()))
                }
            }),
            false => None,
        };
        match inserted {
            // `_over` is dropped here, after the release.
            Some((refused, _over)) => self.finish_insert(refused),
            None => {
                self.push_update(node);
                self.announce(node);
            }
        }
    }

    /// Arms a node that is new, waits for `deadline` and has no options. No other thread knows it.
    /// The caller holds another reference to it.
    ///
    /// This is the fast path: the owner, the lock is free, the store has room, and no timer of the
    /// shard has a tolerance. Each slower case is a call in tail position, so that this function
    /// needs no stack.
    #[inline(never)]
    pub(crate) fn insert_new(&self, node: NodeRef<O>, deadline: u64) {
        debug_assert!(node.extras().is_none(), "its options set its tolerance");
        let tolerance = self.owner.tolerance();
        if !tolerance.is_exact() {
            return self.insert_tolerant(node, deadline, tolerance);
        }
        // The key of an exact timer is its deadline.
        if !self.owner.is_current() {
            return self.send_new(node, deadline);
        }
        self.owner.armed(node.vtable.kind, true, 1);
        if !self.lock.acquire_free_as_owner() {
            return self.insert_new_slow(node, deadline, false);
        }
        // SAFETY: `acquire_free_as_owner` above took the lock, and only `release_as_owner` below, or
        // the slow path, gives it up.
        let inserted = self.inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let seen = inner.try_insert_new(node, deadline)?;
            self.publish_exact(inner, seen);
            Ok(())
        });
        match inserted {
            // The store has to grow, or the shard is closed.
            Err(node) => self.insert_new_slow(node, deadline, true),
            Ok(()) => {
                self.lock.release_as_owner();
                // After the release: the alarm is a system call, perhaps.
                self.lower_alarm(self.store_next.load(Ordering::Relaxed));
            }
        }
    }

    /// Does [`insert_new`](Shard::insert_new) for a timer with a tolerance.
    #[inline(never)]
    fn insert_tolerant(&self, node: NodeRef<O>, deadline: u64, tolerance: Tolerance) {
        node.set_tolerance(tolerance);
        if !self.owner.is_current() {
            let key = node.key(deadline);
            return self.send_new(node, key);
        }
        self.owner.armed(node.vtable.kind, true, 1);
        self.insert_new_slow(node, deadline, false);
    }

    /// Slow path of [`insert_new`](Shard::insert_new), for the owner. `held`: the caller has the
    /// lock, and this function releases it.
    #[inline(never)]
    fn insert_new_slow(&self, node: NodeRef<O>, deadline: u64, held: bool) {
        if !held && !self.lock.try_acquire_as_owner() {
            // The holder finds the mark, and reads the inbox.
            let key = node.key(deadline);
            return self.push_new([node], key);
        }
        let refused = self.hold_as_owner(|inner| {
            if inner.closed {
                return Some([node]);
            }
            inner.insert_slow(node, deadline);
            None
        });
        self.finish_insert(refused);
    }

    /// Arms new nodes of one kind, each with its tolerance, as [`insert_new`](Shard::insert_new)
    /// arms one: the owner takes the lock once, and another thread pushes all by one exchange.
    pub(crate) fn insert_many(&self, nodes: Drain<'_, NodeRef<O>>) {
        let Some(first) = nodes.as_slice().first() else {
            return;
        };
        let here = self.owner.is_current();
        let count = nodes.as_slice().len() as u64;
        self.owner.armed(first.vtable.kind, here, count);
        if !here || !self.lock.try_acquire() {
            let key = |node: &NodeRef<O>| Some(node.key(node.claim.load().deadline()?));
            let earliest = nodes.as_slice().iter().filter_map(key).min();
            return self.push_new(nodes, earliest.expect("new timers wait"));
        }
        let refused = self.hold(|inner| {
            if inner.closed {
                return Some(nodes);
            }
            for node in nodes {
                let over = inner.insert(node);
                debug_assert!(over.is_none(), "new timers wait");
            }
            None
        });
        self.finish_insert(refused);
    }

    /// Finishes an insertion by the owner: lowers the alarm, or ends the nodes that the closed
    /// shard `refused`.
    #[inline]
    fn finish_insert(&self, refused: Option<impl IntoIterator<Item = NodeRef<O>>>) {
        match refused {
            None => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
            Some(nodes) => each(nodes, |node| self.refuse(&node)),
        }
    }

    /// Arms a new node, which has this key, from a remote thread.
    #[inline(never)]
    fn send_new(&self, node: NodeRef<O>, key: u64) {
        self.owner.armed(node.vtable.kind, false, 1);
        self.push_new([node], key);
    }

    /// Puts new nodes into the inbox, and wakes the owner if it sleeps past `key`, which is the
    /// smallest of theirs.
    #[inline]
    fn push_new(&self, nodes: impl New<O>, key: u64) {
        let waits = nodes.as_ref().iter().all(waits);
        match self.inbox.push_new(nodes, || self.owner.met()) {
            Ok(pushed) => {
                Self::announce_pushed(pushed.before_fence(&self.inbox_next, self), key, waits);
            }
            Err(nodes) => each(nodes, |node| self.refuse(&node)),
        }
    }

    /// Ends a node that came after the shard was closed.
    #[cold]
    pub(super) fn refuse(&self, node: &NodeRef<O>) {
        if let Some(notice) = end(node, Outcome::Shutdown) {
            self.owner.deliver(notice);
        }
    }

    /// Publishes the deadline of a node that was pushed, and wakes the owner if it would sleep past
    /// it.
    ///
    /// The claim word is read after the push, and once more after the fence. Another thread may
    /// make the deadline earlier while the node is queued and not pushed yet. If that thread wakes
    /// the owner, the owner finds an empty inbox, and the thread relies on this read. See "Pending
    /// updates" in `PROTOCOLS.md`.
    pub(super) fn announce(&self, node: &NodeRef<O>) {
        let mut announced = u64::MAX;
        let next = || node.claim.load().deadline().map(|at| node.key(at));
        while let Some(deadline) = next().filter(|&at| at < announced) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
            self.wake_or_lower_alarm(deadline, waits(node), full_fence);
            announced = deadline;
        }
    }

    /// Publishes the smallest key of the new nodes that the caller has pushed, and wakes the owner
    /// if it would sleep past it.
    ///
    /// Most callers find a deadline that is early enough, and write nothing. Only a thread that has
    /// pushed may rely on what it finds. For any other thread, a drainer may have taken that
    /// deadline away, and take the node later. See "Published words" in `PROTOCOLS.md`.
    #[inline]
    fn announce_pushed(pushed: BeforeFence<'_, Self>, deadline: u64, waits: bool) {
        if !looks_at_the_deadline() || deadline < pushed.read() {
            pushed.lower(deadline);
        }
        pushed.fence().wake_or_lower_alarm(deadline, waits, || ());
    }

    /// Wakes the owner if it would sleep past a deadline that was published. If the owner is not to
    /// be woken, lowers an alarm that follows the deadlines.
    #[inline]
    fn wake_or_lower_alarm(&self, deadline: u64, waits: bool, fence: impl FnOnce()) {
        if !self.wake_before(deadline, waits, fence) {
            self.owner.wake_skipped();
            // The alarm of an owner that sleeps in good order stands, and stays. It follows the
            // deadlines if a peer watches: the owner is stuck, or was woken and gets no core.
            self.lower_alarm(deadline);
        }
    }
}

/// Returns whether an owner that defers its wake-ups may let this timer wait.
#[inline]
fn waits<O: Owner>(node: &NodeRef<O>) -> bool {
    node.tolerance().is_exact()
}

/// Orders any change of the caller before its next reads.
#[inline(always)]
pub(super) fn full_fence() {
    fence(Ordering::SeqCst);
}

/// Returns whether a pusher leaves `inbox_next` alone if it is early enough. A model may switch
/// this off, to check the write.
#[inline(always)]
fn looks_at_the_deadline() -> bool {
    #[cfg(loom)]
    return crate::node::model::LOOKS_AT_THE_DEADLINE.get();
    #[cfg(not(loom))]
    true
}
