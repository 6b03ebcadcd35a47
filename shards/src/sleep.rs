//! [`Sleep`], a timer that wakes a task. Its node has a waker slot in place of a callback.

use std::task::{Poll, Waker};

use tourbillon_sync::Arc;

use crate::{
    answer::{Kind, Outcome, Reset},
    node::{
        NodeRef,
        claim::{End, NEVER},
        sleeper,
        state::Claim,
        taken::Taken,
        waker::WakerSlot,
    },
    owner::Owner,
    shard::{Shard, home::Home},
    timer::reset::{move_any, moved},
    tolerance::Tolerance,
};

/// A timer that wakes one task, and can be armed again.
///
/// One task polls and moves the sleep; its waker may change from poll to poll. Dropping the sleep
/// cancels it.
#[repr(transparent)]
pub struct Sleep<O: Owner>(NodeRef<O>);

impl<O: Owner> Sleep<O> {
    /// Arms a sleep until `deadline`, in ns. On a closed shard the sleep is over at once.
    pub fn new(home: &Arc<Shard<O>>, deadline: u64) -> Self {
        Self::arm(home, deadline, None)
    }

    /// Arms a sleep that wakes `waker`, as if it had been [polled](Sleep::poll) at once. On a
    /// closed shard the sleep is over at once, and this call wakes `waker`.
    #[inline]
    pub fn with_waker(home: &Arc<Shard<O>>, deadline: u64, waker: &Waker) -> Self {
        Self::arm(home, deadline, Some(waker.clone()))
    }

    // Always inlined. Otherwise the compiler's decision depends on the rest of the calling crate.
    #[inline(always)]
    fn arm(home: &Arc<Shard<O>>, deadline: u64, waker: Option<Waker>) -> Self {
        let deadline = deadline.min(NEVER);
        let claim = Claim::Pending(deadline);
        let (node, stored) = sleeper::sleep::<Self, O>(Home::new(home), claim, waker);
        home.insert_new(stored, deadline);
        Self(node)
    }

    /// Returns the waker slot in the sleep's node.
    #[inline]
    fn slot(&self) -> &WakerSlot {
        // SAFETY: `arm` made this the node of a sleep.
        unsafe { sleeper::slot(&self.0) }
    }

    /// Returns how the sleep ended, fired or shut down, if it is over. Otherwise registers `waker`,
    /// which is woken when the sleep ends.
    #[inline]
    pub fn poll(&self, waker: &Waker) -> Poll<Outcome> {
        if let Some(how) = self.outcome() {
            return Poll::Ready(how);
        }
        self.slot().register(waker);
        // A thread that ended the sleep before the registration found no waker. See "The waker
        // slot" in `PROTOCOLS.md`.
        self.outcome().map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns how the sleep ended, if it is over.
    #[inline]
    pub fn outcome(&self) -> Option<Outcome> {
        match self.0.claim.load() {
            Claim::Over(how) => Some(how),
            _ => None,
        }
    }

    /// Returns when a [fired](Outcome::Fired) sleep was taken from the store, if that moment is
    /// [one of](Taken::is_one_of) `1 << bits` moments. `bits` is at least 1. The answer comes once
    /// for each time that the sleep fires, so that a second poll does not count it again.
    ///
    /// For statistics: if a sleep was moved at the moment when it fired, the answer may come twice,
    /// or not at all.
    #[inline]
    pub fn sample(&self, bits: u32) -> Option<Taken> {
        let fired = || self.outcome() == Some(Outcome::Fired);
        self.0.sample(bits, fired)
    }

    /// Returns the deadline, in ns, unless the sleep is over.
    pub fn deadline(&self) -> Option<u64> {
        self.0.claim.load().deadline()
    }

    /// Returns how late the sleep may fire: what [`Owner::tolerance`] returned when it was armed
    /// for the first time.
    pub fn tolerance(&self) -> Tolerance {
        self.0.tolerance()
    }

    /// Moves the deadline, in ns. A sleep that is over is armed again.
    #[inline]
    pub fn reset(&mut self, deadline: u64) {
        if !self.try_reset(deadline) {
            self.reset_slow(deadline);
        }
    }

    /// Moves the deadline of a sleep that waits, by one compare-exchange. Returns `false` if
    /// nothing was done, which may happen although the sleep waits.
    #[inline]
    pub fn try_reset(&mut self, deadline: u64) -> bool {
        let deadline = deadline.min(NEVER);
        let Some((at, next)) = self.0.claim.move_pending(|_| Some(deadline)) else {
            return false;
        };
        moved(&self.0, at, next);
        true
    }

    /// Slow path of [`reset`](Sleep::reset): the sleep does not wait.
    #[cold]
    #[inline(never)]
    fn reset_slow(&self, deadline: u64) {
        let deadline = deadline.min(NEVER);
        if move_any(&self.0, |_, _| deadline) == Reset::TooLate {
            // The sleep is over, and only this thread can arm it again. Count that before: the
            // owner may still have an old update of the sleep, and fire it right after the change.
            self.0.home.armed(&self.0);
            let was_over = self.0.claim.rearm(deadline);
            debug_assert!(was_over, "a sleep that cannot be moved is over");
            // The thread that held the node set its location to `None` before it claimed the end
            // ("One holder" in `PROTOCOLS.md`), so this thread may insert it.
            self.0.home.arrive(&self.0);
        }
    }

    /// Takes the waker, so that nothing wakes it any more. Returns `None` if the end of the sleep
    /// has woken it.
    #[inline]
    pub fn take_waker(&self) -> Option<Waker> {
        self.slot().take()
    }

    /// Returns the sleep's owning shard.
    #[inline]
    pub fn home(&self) -> &Shard<O> {
        &self.0.home
    }
}

impl<O: Owner> Drop for Sleep<O> {
    #[inline]
    fn drop(&mut self) {
        let mut stored = self.0.home.end_stored(&self.0, Outcome::Cancelled);
        let ends = || self.0.claim.end(Outcome::Cancelled, false, false) == End::Won;
        if stored.is_some() || ends() {
            stored = stored.or_else(|| self.0.home.remove_ended(&self.0));
            self.0.home.owner().over(Kind::Sleep, Outcome::Cancelled);
        }
        // The waker is dropped here, and not with the node's last reference: that may be dropped
        // under a lock, and a waker is user code.
        let alone = stored.is_some_and(|stored| self.0.unite(stored));
        drop(if alone {
            // SAFETY: each thread at the slot holds a reference to the node, and this is the only
            // one.
            unsafe { self.slot().take_alone() }
        } else {
            self.slot().take_last()
        });
    }
}

debug!(Sleep, |sleep| sleep.0.claim.load());
