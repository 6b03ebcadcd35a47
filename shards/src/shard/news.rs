//! What a shard is told of nodes that it has, and how it comes to read that.

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
    /// The node's deadline was made earlier than it was.
    pub(crate) fn hear_earlier(&self, node: &NodeRef<O>) {
        if self.owner.is_current() && self.lock.try_acquire() {
            self.hear_earlier_held(node);
        } else {
            self.tell_earlier(node);
        }
    }

    /// The same for the owner, who has the lock, and gives it up by this. Whether the store puts such moves off.
    #[inline]
    pub(super) fn hear_earlier_held(&self, node: &NodeRef<O>) -> bool {
        let (heard, puts_off) = self.hold(|inner| (inner.hear(node), inner.puts_off()));
        if heard.is_some() {
            self.lower_alarm(self.store_next.load(Ordering::Relaxed));
        } else {
            self.tell_earlier(node);
        }
        puts_off
    }

    /// The same where that has to go through the inbox, where the node may stand.
    pub(super) fn tell_earlier(&self, node: &NodeRef<O>) {
        self.tell(node);
        self.announce(node);
    }

    /// The node is over, for good; its payload is gone already. Answers the reference of its store, if that was ours
    /// to take it out of.
    #[inline]
    pub(crate) fn hear_gone(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        // All calls are the last that is done, so that nothing is kept over them: this needs no stack.
        if !self.owner.is_current() || !self.lock.acquire_free() {
            return self.hear_gone_slowly(node);
        }
        let Location::Slot(slot) = node.location() else {
            return self.hear_gone_held(node);
        };
        let taken = self.hold_quickly(|inner| inner.take_over_quickly(node, slot).ok_or(()));
        let Ok((carried, _)) = taken else {
            return self.hear_gone_held(node);
        };
        if self.lock.release() {
            return self.look_and_return(carried);
        }
        Some(carried)
    }

    #[cold]
    #[inline(never)]
    fn look_and_return(&self, carried: NodeRef<O>) -> Option<NodeRef<O>> {
        self.look_for_the_denied();
        Some(carried)
    }

    /// The same in any case.
    #[inline(never)]
    fn hear_gone_slowly(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        if self.owner.is_current() && self.lock.try_acquire() {
            return self.hear_gone_held(node);
        }
        self.tell_gone(node);
        None
    }

    /// The same for the owner, who has the lock, and gives it up by this.
    #[inline(never)]
    fn hear_gone_held(&self, node: &NodeRef<O>) -> Option<NodeRef<O>> {
        let mut heard = true;
        let carried = self.hold(|inner| match node.location() {
            Location::Slot(slot) => Some(inner.take_over(node, slot)),
            Location::Deque => None,
            Location::None => {
                heard = false;
                None
            }
        });
        if !heard {
            self.tell_gone(node);
        }
        carried
    }

    /// Puts a node whose claim word has changed into the inbox, if it does not stand there already;
    /// who drains it then finds whether anybody carries it, and if not, carries it from then on.
    ///
    /// A closed shard has no use for it, and ends it; then this is false. Who closed it may have
    /// seen the node in a deque, or nowhere.
    pub(super) fn tell(&self, node: &NodeRef<O>) -> bool {
        let told = self.inbox.push(node);
        if !told {
            self.refuse(node);
        }
        told
    }

    /// The same where that has to go through the inbox, where the node may stand.
    fn tell_gone(&self, node: &NodeRef<O>) {
        if !self.tell(node) {
            return;
        }
        self.unread.fetch_add(1, Ordering::Relaxed);
        let garbage = self.garbage();
        let live = self.stored().saturating_sub(garbage);
        if garbage > (live / 4).max(GARBAGE_FLOOR) {
            // A thread that holds the shard meanwhile will find the mark, and drain.
            let drained = self.locked(|inner| self.drain(inner, BATCH));
            if drained.is_none() && garbage > FLOOD {
                // Such a holder was stopped by the system. On cores that are busy with those who
                // arm and cancel, what they cancel would be hundreds of MB until it goes on.
                #[cfg(all(test, not(loom)))]
                super::tests::YIELDS.set(super::tests::YIELDS.get() + 1);
                crate::sync::yield_now();
            }
        }
    }

    /// Takes the deadline that is published for the inbox, which is published for the store before
    /// that. For whoever holds the lock.
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

    /// Reads at most `limit` news from the inbox. For whoever holds the lock.
    pub(super) fn drain(&self, inner: &mut Inner<O>, limit: usize) {
        let mut read = 0;
        while read < limit {
            if inner.backlog.is_empty() {
                // A pusher that was overtaken by a drainer leaves a deadline behind: that has to be
                // taken away, too, or the owner would wake for it again and again.
                let stale = self.inbox_next.load(Ordering::Acquire) != NEVER;
                if self.inbox.is_empty() && !stale {
                    break;
                }
                // Before the taking: who pushes later lowers it again.
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

    /// Reads what a thread left in the inbox that was denied the lock.
    #[cold]
    pub(super) fn look_for_the_denied(&self) {
        while self.lock.try_acquire() {
            // A store that is full panics, and so may the condition of a timer that is freed here.
            let unlock = UnlockOnPanic(self);
            // SAFETY: we hold the lock.
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
