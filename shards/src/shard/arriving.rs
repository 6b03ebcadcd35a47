//! How a node gets from who arms it into the store: at once if that is the owner, by way of the inbox if it is
//! another thread, which then wakes the owner if it would sleep past the deadline.

use super::Shard;
use crate::{
    claim::Outcome,
    ending::end,
    node::NodeRef,
    owner::Owner,
    sync::{Ordering, fence, fence_behind_change},
};

impl<O: Owner> Shard<O> {
    /// Wakes the owner if it sleeps past `deadline`. `fence` is one, or what does for one behind what was changed before.
    #[inline]
    pub(super) fn wake_before(&self, deadline: u64, fence: impl FnOnce()) -> bool {
        fence();
        let wake = self.parker.claim_if_later(deadline);
        if wake {
            self.owner.wake();
        }
        wake
    }

    /// Tells the owner of a node that is armed, but does not arrive as [new](Shard::arrive_new).
    pub(crate) fn armed(&self, node: &NodeRef<O>) {
        self.owner.armed(node.vtable.kind, self.owner.is_current());
    }

    /// Brings home a node whose carrier has let go of it (its location is `None`).
    pub(crate) fn arrive(&self, node: &NodeRef<O>) {
        let here = self.owner.is_current();
        if self.store(here, || node.clone()).is_none() {
            self.tell(node);
            self.announce(node);
        }
    }

    /// The same for a node that nobody but the caller knows, who has another reference to it. It is armed by this, for this
    /// deadline, and has no options.
    #[inline(never)]
    pub(crate) fn arrive_new(&self, carried: NodeRef<O>, deadline: u64) {
        debug_assert!(carried.extras().is_none(), "its key is its deadline");
        // All calls are the last that is done, so that nothing is kept over them: this needs no stack.
        if !self.owner.is_current() {
            return self.arrive_from_outside(carried, deadline);
        }
        self.owner.armed(carried.vtable.kind, true);
        if !self.lock.acquire_free() {
            return self.arrive_slowly(carried, deadline);
        }
        let inserted = self.hold_quickly(|inner| {
            let seen = inner.insert_new_quickly(carried, deadline)?;
            Ok(((), seen))
        });
        match inserted {
            Err(carried) => self.arrive_held(carried, deadline),
            Ok(_) if self.lock.release() => self.look_and_lower_alarm(),
            Ok(_) => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
        }
    }

    #[cold]
    #[inline(never)]
    fn look_and_lower_alarm(&self) {
        self.look_for_the_denied();
        self.lower_alarm(self.store_next.load(Ordering::Relaxed));
    }

    #[inline(never)]
    fn arrive_from_outside(&self, carried: NodeRef<O>, deadline: u64) {
        let kind = carried.vtable.kind;
        // For the counters alone, and no look that a model has to take.
        let quiet = !cfg!(loom) && !self.parker.sleeps_past(deadline);
        if quiet {
            self.owner.armed_quietly(kind);
        } else {
            self.owner.armed(kind, false);
        }
        self.send_new(carried, deadline, quiet);
    }

    /// The same for the owner, in any case.
    #[cold]
    #[inline(never)]
    fn arrive_slowly(&self, carried: NodeRef<O>, deadline: u64) {
        if self.lock.try_acquire() {
            return self.arrive_held(carried, deadline);
        }
        self.send_new(carried, deadline, false);
    }

    /// The same for the owner, who has the lock, and gives it up by this.
    #[inline(never)]
    fn arrive_held(&self, carried: NodeRef<O>, deadline: u64) {
        let refused = self.hold(|inner| {
            if inner.closed {
                return Some(carried);
            }
            inner.insert_new(carried, deadline);
            None
        });
        self.arrived(refused);
    }

    /// The owner has put a node into its store, or was refused, and has it still.
    #[inline]
    fn arrived(&self, refused: Option<NodeRef<O>>) {
        match refused {
            None => self.lower_alarm(self.store_next.load(Ordering::Relaxed)),
            Some(node) => self.refuse(&node),
        }
    }

    /// Puts a node that nobody but the caller knows into the inbox, and tells of it. `counted`: the owner has counted that
    /// it was not woken.
    #[inline]
    fn send_new(&self, node: NodeRef<O>, deadline: u64, counted: bool) {
        if let Err(node) = self.inbox.push_new(node, || self.owner.met()) {
            return self.refuse(&node);
        }
        self.announce_pushed(deadline, counted);
    }

    /// Puts an arriving node into the store, if the caller owns that (`here`) and is let in; or ends it, if the shard
    /// is closed.
    fn store(&self, here: bool, node: impl FnOnce() -> NodeRef<O>) -> Option<()> {
        if !here {
            return None;
        }
        // What is over meanwhile is given back, to be let go of outside the lock.
        let (refused, _over) = self.locked(|inner| {
            let node = node();
            if inner.closed {
                (Some(node), None)
            } else {
                (None, inner.read(node))
            }
        })?;
        self.arrived(refused);
        Some(())
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
    /// The word is read after the push, and once more after the fence: who made the deadline earlier
    /// and found the node queued before it was pushed relied on that. The owner that it woke found
    /// nothing.
    pub(super) fn announce(&self, node: &NodeRef<O>) {
        let mut announced = u64::MAX;
        let next = || node.claim.load().deadline().map(|at| node.key(at));
        while let Some(deadline) = next().filter(|&at| at < announced) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
            self.see_to(deadline, false, full_fence);
            announced = deadline;
        }
    }

    /// The same for what nobody but the caller knew until it pushed it.
    ///
    /// Most pushes find the word low enough, and leave it alone. Who has not pushed may not rely on what it
    /// finds there: that may have been taken away by a drainer that takes the node later.
    #[inline]
    fn announce_pushed(&self, deadline: u64, counted: bool) {
        if !looks_at_the_deadline() || deadline < self.inbox_next.load(Ordering::Acquire) {
            self.inbox_next.fetch_min(deadline, Ordering::AcqRel);
        }
        self.see_to(deadline, counted, fence_behind_change);
    }

    /// Wakes the owner if it would sleep past a deadline that was published; if it is awake, sees to its alarm.
    #[inline]
    fn see_to(&self, deadline: u64, counted: bool, fence: impl FnOnce()) {
        if !self.wake_before(deadline, fence) {
            if !counted {
                self.owner.wake_skipped();
            }
            // One that sleeps looks at the deadlines when it wakes, and sees to its alarm.
            if !self.watch.is_off() && self.parker.is_awake() {
                self.lower_alarm(deadline);
            }
        }
    }
}

#[inline(always)]
pub(super) fn full_fence() {
    fence(Ordering::SeqCst);
}

#[inline(always)]
fn looks_at_the_deadline() -> bool {
    #[cfg(loom)]
    return crate::node::model::LOOKS_AT_THE_DEADLINE.get();
    #[cfg(not(loom))]
    true
}
