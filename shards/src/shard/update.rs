//! Passes updates of nodes to the store, and reads them from the inbox.
//!
//! An update says that the claim word of a node has changed: an earlier deadline, or an end. The
//! owner updates the store under the lock. A remote thread pushes the node into the inbox. See
//! "Pending updates" and "Garbage" in `PROTOCOLS.md`.

use std::mem;

use super::{FLOOD, Shard, UnlockOnPanic, batch, garbage_floor};
use tourbillon_sync::Ordering;

use crate::{
    answer::Outcome,
    node::{NodeRef, claim::NEVER, location::Location},
    owner::Owner,
    shard::inner::Inner,
};

impl<O: Owner> Shard<O> {
    /// Updates the store after a node's deadline was made earlier, or tells the owner, if the
    /// caller is another thread. `here`: the caller is the owner. `held`: the caller has the lock,
    /// and this function releases it.
    #[inline]
    pub(crate) fn note_earlier_deadline(&self, node: &NodeRef<O>, here: bool, held: bool) {
        let has_lock = held || (here && self.lock.try_acquire_as_owner());
        if !has_lock {
            // Another thread holds the lock, or the store belongs to another thread.
            return self.push_earlier_deadline(node);
        }
        let (applied, takes_notes) =
            self.hold_as_owner(|inner| (inner.apply_move(node), inner.takes_notes()));
        self.expect_earlier(takes_notes);
        match applied {
            // `_over` is dropped here, after the release.
            Some(_over) => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
            None => self.push_earlier_deadline(node),
        }
    }

    /// Tells the owner through the inbox that a node has an earlier deadline.
    fn push_earlier_deadline(&self, node: &NodeRef<O>) {
        self.push_update(node);
        self.announce(node);
    }

    /// Takes a node out of the store that is over for good, and whose payload is gone. Returns the
    /// store's reference, if this call took it out.
    ///
    /// This is the fast path: the owner, the lock is free, and the store needs no sweep. Each
    /// slower case is a call in tail position, so that this function needs no stack.
    #[inline]
    pub(crate) fn remove_ended(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        if !self.owner.is_current() || !self.lock.acquire_free_as_owner() {
            return self.remove_ended_slow(node, false);
        }
        let Location::Slot(slot) = node.location() else {
            return self.remove_ended_slow(node, true);
        };
        self.remove_at(node, slot)
    }

    /// Ends a sleep that waits in the store, takes it out, and returns the store's reference. The
    /// caller has the sleep's only handle. Returns `None`, and does nothing, if the caller is not
    /// the owner, another thread has the lock, or the sleep does not wait in the store.
    #[inline]
    pub(crate) fn end_stored(&self, sleep: &NodeRef<O>, how: Outcome) -> Option<NodeRef<O>> {
        // Most sleeps that are dropped are over, and need no lock.
        if !sleep.claim.waits() || !self.owner.is_current() || !self.lock.acquire_free_as_owner() {
            return None;
        }
        match sleep.location() {
            Location::Slot(slot) if sleep.claim.end_alone(how) => self.remove_at(sleep, slot),
            _ => {
                self.lock.release_as_owner();
                None
            }
        }
    }

    /// Takes a node that is over out of this slot of the store. The caller is the owner and has the
    /// lock, which this function releases.
    #[inline(always)]
    fn remove_at(&self, node: &NodeRef<O>, slot: u32) -> Option<NodeRef<O>> {
        // SAFETY: the caller has the lock, and only `release_as_owner` below, or the slow path,
        // gives it up.
        let taken = self.inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let (stored, seen) = inner.try_take_over(node, slot)?;
            self.publish_exact(inner, seen);
            Some(stored)
        });
        if taken.is_none() {
            return self.remove_ended_slow(node, true);
        }
        self.lock.release_as_owner();
        taken
    }

    /// Slow path of [`remove_ended`](Shard::remove_ended), for all threads. `held`: the caller is
    /// the owner, has the lock, and this function releases it.
    #[cold]
    #[inline(never)]
    fn remove_ended_slow(&self, node: &NodeRef<O>, held: bool) -> Option<NodeRef<O>> {
        let has_lock = held || (self.owner.is_current() && self.lock.try_acquire_as_owner());
        if !has_lock {
            self.push_ended(node);
            return None;
        }
        let (stored, done) = self.hold_as_owner(|inner| match node.location() {
            Location::Slot(slot) => (Some(inner.take_over(node, slot)), true),
            // The thread that holds it reads the claim word before it runs the node.
            Location::Deque => (None, true),
            // It may be in the inbox, and then has to be pushed again as an update.
            Location::None => (None, false),
        });
        if !done {
            self.push_ended(node);
        }
        stored
    }

    /// Pushes a node whose claim word has changed into the inbox, unless it is queued already. The
    /// drainer then goes by the node's location ("One holder" in `PROTOCOLS.md`).
    ///
    /// Returns `false` if the shard is closed: then this call ends the node, because the closer may
    /// have found it in a deque, or nowhere.
    pub(super) fn push_update(&self, node: &NodeRef<O>) -> bool {
        let pushed = self.inbox.push(node);
        if !pushed {
            self.refuse(node);
        }
        pushed
    }

    /// Tells the owner through the inbox that a node is over, and drains a batch if there is too
    /// much garbage.
    fn push_ended(&self, node: &NodeRef<O>) {
        if !self.push_update(node) {
            return;
        }
        // After the push: a drainer that takes the node before this leaves the count too high, not
        // too low, and the next drainer corrects it.
        self.unread.fetch_add(1, Ordering::Relaxed);
        let garbage = self.garbage();
        let live = self.stored().saturating_sub(garbage);
        if garbage > (live / 4).max(garbage_floor()) {
            // If another thread has the lock, it finds the mark, and drains.
            let drained = self.locked(|inner| self.drain(inner, batch()));
            if drained.is_none() && garbage > FLOOD {
                // The system has stopped the holder. Until the holder goes on, other threads that
                // arm and cancel timers keep the cores busy, and garbage could grow to hundreds of
                // MB.
                #[cfg(all(test, not(loom)))]
                super::tests::YIELDS.set(super::tests::YIELDS.get() + 1);
                tourbillon_sync::yield_now();
            }
        }
    }

    /// Clears the deadline that is published for the inbox, and returns it. The store's words are
    /// lowered to it before, so that one of them always has it. The caller has the lock.
    ///
    /// The timer of that deadline may be prompt. If it is not, an owner that goes to sleep
    /// meanwhile wakes up once in vain.
    fn take_inbox_next(&self) -> u64 {
        let mut next = self.inbox_next.load(Ordering::Acquire);
        loop {
            // Before the exchange: a reader of both words finds the deadline in one of them.
            for word in [&self.store_prompt, &self.store_next] {
                if next < word.load(Ordering::Relaxed) {
                    word.store(next, Ordering::Release);
                }
            }
            match self.inbox_next.compare_exchange_weak(
                next,
                NEVER,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return next,
                Err(now) => next = now,
            }
        }
    }

    /// Reads at most `limit` updates: first the backlog, then the inbox. The caller has the lock.
    ///
    /// The inbox is taken once. What other threads push meanwhile waits for the next call, or those
    /// threads could keep this one here for ever.
    pub(super) fn drain(&self, inner: &mut Inner<O>, limit: usize) {
        let left = limit - Self::read(inner, limit);
        if left > 0 {
            self.take_inbox(inner);
            Self::read(inner, left);
        }
        if inner.backlog.is_empty() {
            inner.backlog_next = NEVER;
            self.sweeping.store(0, Ordering::Relaxed);
        }
    }

    /// Takes the whole inbox into the backlog, which is empty. The caller has the lock.
    fn take_inbox(&self, inner: &mut Inner<O>) {
        // A drainer may take a node before its pusher publishes the deadline. The pusher's write
        // then stays behind. It has to be cleared, or the owner would wake for it again and again.
        let stale = self.inbox_next.load(Ordering::Acquire) != NEVER;
        // Likewise the count of a node that a drainer took before its pusher counted it.
        let counted = self.unread.load(Ordering::Relaxed) != 0;
        if self.inbox.is_empty() && !stale && !counted {
            return;
        }
        // Before the inbox is taken: a pusher that comes later lowers the deadline again.
        inner.backlog_next = self.take_inbox_next();
        // The counts move with the updates. A later cancellation counts as unread again.
        let unread = self.unread.swap(0, Ordering::AcqRel);
        self.sweeping.store(unread, Ordering::Relaxed);
        inner.backlog = self.inbox.take();
        if !inner.backlog.is_empty() {
            let sweeps = self.sweeps.load(Ordering::Relaxed);
            self.sweeps.store(sweeps + 1, Ordering::Relaxed);
        }
    }

    /// Reads at most `limit` updates of the backlog, and returns how many there were.
    fn read(inner: &mut Inner<O>, limit: usize) -> usize {
        let mut read = 0;
        while read < limit {
            let Some(node) = inner.backlog.next() else {
                break;
            };
            // This may drop the last reference: the payload is gone before, so only the node and
            // its options are freed.
            drop(inner.read(node));
            read += 1;
        }
        read
    }

    /// Reads one batch of updates for the threads that were denied the lock. If others were denied
    /// meanwhile, leaves their updates to the owner, and wakes it.
    ///
    /// One batch only: the caller has work of its own, and the others could keep it here for as
    /// long as they cancel timers. See "The try-lock" in `PROTOCOLS.md`.
    #[cold]
    pub(super) fn drain_for_denied(&self) {
        if !self.lock.try_acquire() {
            // Another thread has the lock, and finds the mark.
            return;
        }
        // A full store panics. So may the destructor of a condition, if a timer is freed here.
        let unlock = UnlockOnPanic(self);
        // SAFETY: `try_acquire` above took the lock.
        self.inner.with_mut(|inner| unsafe {
            self.drain(&mut *inner, batch());
            self.publish(&mut *inner);
        });
        mem::forget(unlock);
        if self.lock.release() {
            self.wake();
        }
    }
}
