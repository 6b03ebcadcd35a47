//! Pending updates of nodes that the shard has, and how they are read from the inbox.

use std::mem;

use super::{BATCH, FLOOD, GARBAGE_FLOOR, Shard, UnlockOnPanic};
use crate::{
    claim::NEVER,
    inner::Inner,
    node::{Location, NodeRef},
    owner::Owner,
    sync::Ordering,
};

impl<O: Owner> Shard<O> {
    /// The node's deadline was made earlier: tells the store, or the owner, if that is another
    /// thread. `here`: the caller is the owner. `held`: it has the lock, and this function releases
    /// it.
    #[inline]
    pub(crate) fn hear_earlier(&self, node: &NodeRef<O>, here: bool, held: bool) {
        if !held && !(here && self.lock.try_acquire()) {
            return self.tell_earlier(node);
        }
        let (heard, puts_off) = self.hold(|inner| (inner.hear(node), inner.puts_off()));
        self.expect_earlier(puts_off);
        match heard {
            // What is given back is over, and dropped outside of the lock.
            Some(_over) => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
            None => self.tell_earlier(node),
        }
    }

    /// Tells the owner of an earlier deadline by the inbox, where the node may stand already.
    fn tell_earlier(&self, node: &NodeRef<O>) {
        self.tell(node);
        self.announce(node);
    }

    /// The node is over, for good, and its payload is gone: takes it out of the store. Returns the
    /// store's reference, if this call took it out.
    ///
    /// This is the fast path: the owner, the lock is free, and the store need not be tidied. Each
    /// slower case is a call in tail position, so that this function needs no stack.
    #[inline]
    pub(crate) fn hear_gone(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        if !self.owner.is_current() || !self.lock.acquire_free() {
            return self.hear_gone_slow(node, false);
        }
        let Location::Slot(slot) = node.location() else {
            return self.hear_gone_slow(node, true);
        };
        // SAFETY: the compare-exchange above took the lock, and only `release` below, or the slow
        // path, gives it up.
        let taken = self.inner.with_mut(|inner| unsafe {
            let inner = &mut *inner;
            let (carried, seen) = inner.try_take_over(node, slot)?;
            self.publish_exact(inner, seen);
            Some(carried)
        });
        match taken {
            None => self.hear_gone_slow(node, true),
            Some(carried) if self.lock.release() => self.look_and_return(carried),
            carried => carried,
        }
    }

    #[cold]
    #[inline(never)]
    fn look_and_return(&self, carried: NodeRef<O>) -> Option<NodeRef<O>> {
        self.look_for_the_denied();
        Some(carried)
    }

    /// Slow path of [`hear_gone`](Shard::hear_gone), for all threads. `held`: the caller is the
    /// owner, has the lock, and this function releases it.
    #[cold]
    #[inline(never)]
    fn hear_gone_slow(&self, node: &NodeRef<O>, held: bool) -> Option<NodeRef<O>> {
        if !held && !(self.owner.is_current() && self.lock.try_acquire()) {
            self.tell_gone(node);
            return None;
        }
        let (carried, heard) = self.hold(|inner| match node.location() {
            Location::Slot(slot) => (Some(inner.take_over(node, slot)), true),
            // Its carrier looks at the claim word.
            Location::Deque => (None, true),
            // It may stand in the inbox.
            Location::None => (None, false),
        });
        if !heard {
            self.tell_gone(node);
        }
        carried
    }

    /// Pushes a node whose claim word has changed into the inbox, unless it is queued already. The
    /// drainer then finds whether another thread holds the node, and if not, holds it from then on.
    ///
    /// Returns `false` if the shard is closed: the node is ended here. The closer may have seen it
    /// in a deque, or nowhere.
    pub(super) fn tell(&self, node: &NodeRef<O>) -> bool {
        let told = self.inbox.push(node);
        if !told {
            self.refuse(node);
        }
        told
    }

    /// Tells the owner by the inbox, where the node may stand already, that it is over.
    fn tell_gone(&self, node: &NodeRef<O>) {
        if !self.tell(node) {
            return;
        }
        self.unread.fetch_add(1, Ordering::Relaxed);
        let garbage = self.garbage();
        let live = self.stored().saturating_sub(garbage);
        if garbage > (live / 4).max(GARBAGE_FLOOR) {
            // If another thread has the lock, it finds the mark, and drains.
            let drained = self.locked(|inner| self.drain(inner, BATCH));
            if drained.is_none() && garbage > FLOOD {
                // The system has stopped the holder. While the cores are busy with threads that
                // arm and cancel, garbage would grow to hundreds of MB before the holder goes on.
                #[cfg(all(test, not(loom)))]
                super::tests::YIELDS.set(super::tests::YIELDS.get() + 1);
                crate::sync::yield_now();
            }
        }
    }

    /// Takes the deadline that is published for the inbox. It is published for the store before, so
    /// that it is always in one of both words. The caller has the lock.
    fn take_inbox_next(&self) -> u64 {
        let mut next = self.inbox_next.load(Ordering::Acquire);
        loop {
            if next < self.store_next.load(Ordering::Relaxed) {
                self.store_next.store(next, Ordering::Release);
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

    /// Reads at most `limit` updates from the inbox. The caller has the lock.
    pub(super) fn drain(&self, inner: &mut Inner<O>, limit: usize) {
        let mut read = 0;
        while read < limit {
            if inner.backlog.is_empty() {
                // A drainer may take a node before its pusher publishes the deadline. That stays
                // behind, and has to be taken, or the owner would wake for it again and again.
                let stale = self.inbox_next.load(Ordering::Acquire) != NEVER;
                if self.inbox.is_empty() && !stale {
                    break;
                }
                // Before the inbox is taken: a later pusher lowers the deadline again.
                inner.backlog_next = self.take_inbox_next();
                let unread = self.unread.swap(0, Ordering::AcqRel);
                self.sweeping.store(unread, Ordering::Relaxed);
                inner.backlog = self.inbox.take();
                if !inner.backlog.is_empty() {
                    let sweeps = self.sweeps.load(Ordering::Relaxed);
                    self.sweeps.store(sweeps + 1, Ordering::Relaxed);
                }
            }
            let Some(node) = inner.backlog.next() else {
                continue;
            };
            drop(inner.read(node));
            read += 1;
        }
        if inner.backlog.is_empty() {
            inner.backlog_next = NEVER;
            self.sweeping.store(0, Ordering::Relaxed);
        }
    }

    /// Reads what a thread that was denied the lock has left in the inbox.
    #[cold]
    pub(super) fn look_for_the_denied(&self) {
        while self.lock.try_acquire() {
            // A full store panics, and the condition of a timer that is freed here may.
            let unlock = UnlockOnPanic(self);
            // SAFETY: `try_acquire` above took the lock.
            self.inner.with_mut(|inner| unsafe {
                self.drain(&mut *inner, BATCH);
                self.publish(&*inner);
            });
            mem::forget(unlock);
            if !self.lock.release() {
                return;
            }
        }
    }
}
