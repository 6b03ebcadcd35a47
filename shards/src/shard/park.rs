//! Parks the owner of a shard, and wakes it.
//!
//! The owner announces until when it sleeps, and then looks once more for updates and work. See
//! "Parking and wake-ups" in `PROTOCOLS.md` of `tourbillon-sched`.
//!
//! An owner may [defer](Shard::defer) its wake-ups, so that one serves the timers of a longer time.

use tourbillon_sched::Sleeper;

use tourbillon_sync::Ordering;

use super::{Shard, insert::full_fence};
use crate::owner::Owner;

impl<O: Owner> Shard<O> {
    /// Wakes the owner if it sleeps, and returns whether it did. For work that is no timer.
    pub fn wake(&self) -> bool {
        self.wake_before(0, false, full_fence)
    }

    /// Lets the owner defer its wake-ups. The shard has no timers yet, because a timer needs a
    /// reference to it.
    #[must_use]
    pub fn deferring(mut self) -> Self {
        self.is_deferring = true;
        // SAFETY: no other thread has a reference to `self`.
        self.inner.with_mut(|inner| unsafe { (*inner).defer() });
        self
    }

    /// Makes the next sleep of the owner last until `moment` at least, in ns, whatever timers come
    /// due meanwhile. Zero defers nothing.
    ///
    /// The owner calls this before it announces a sleep. It still wakes up for timers with a
    /// [stated](crate::Tolerance::stated) tolerance, also [strict](crate::Tolerance::STRICT) ones,
    /// and by [`wake`](Shard::wake). The shard is a [deferring](Shard::deferring) one.
    #[inline]
    pub fn defer(&self, moment: u64) {
        // Before the announcement: see `Parker::claim_if_not_deferred`.
        if self.deferred() != moment {
            self.deferred.store(moment, Ordering::Relaxed);
        }
    }

    /// Returns the moment to which the owner [deferred](Shard::defer) its wake-ups last, in ns.
    #[inline]
    pub fn deferred(&self) -> u64 {
        self.deferred.load(Ordering::Relaxed)
    }

    /// Returns when the owner is to wake up: at [`next_deadline`](Shard::next_deadline), or later if
    /// it defers that.
    pub fn next_wake(&self) -> u64 {
        let (next, deferred) = (self.next_deadline(), self.deferred());
        match next < deferred {
            true => deferred.min(self.next_prompt()),
            false => next,
        }
    }

    /// Returns the smallest key of a timer that is not to be deferred, in ns.
    #[inline]
    pub(super) fn next_prompt(&self) -> u64 {
        self.store_prompt.load(Ordering::Acquire)
    }

    /// Announces that the owner is about to sleep, and returns until when, in ns. The owner then
    /// sleeps until that moment ([`NEVER`](crate::NEVER): without an end) or until [`Owner::wake`],
    /// and calls [`resume`](Shard::resume) when it is awake. Returns `None` if there may be
    /// something to [`expire`](Shard::expire) first; then the owner is still awake.
    ///
    /// The owner looks for other work between this call and the sleep. A thread that brings such
    /// work calls [`wake`](Shard::wake) after that. If the owner drops or arms a timer of this shard
    /// in between, a timer that another thread cancels at that moment may keep its memory until
    /// later cancellations free it.
    ///
    /// This is for an event loop of one thread: the README of this crate has one. Workers that steal
    /// from each other sleep by [`Searchers::sleep`](tourbillon_sched::Searchers::sleep).
    pub fn sleep_until(&self) -> Option<u64> {
        let until = self.announce_sleep();
        if self.may_sleep(until) {
            return Some(until);
        }
        self.resume();
        None
    }

    /// Announces that the owner is awake again after [`sleep_until`](Shard::sleep_until).
    pub fn resume(&self) {
        let searches = self.parker.resume();
        debug_assert!(!searches, "only `Searchers` wake a worker to search");
    }
}

/// A worker of [`Searchers`](tourbillon_sched::Searchers) sleeps until its next wake-up.
impl<O: Owner> Sleeper for Shard<O> {
    fn announce_sleep(&self) -> u64 {
        let until = self.next_wake();
        self.parker.announce(until);
        until
    }

    fn may_sleep(&self, until: u64) -> bool {
        !self.has_updates() && self.next_wake() >= until
    }

    fn end_sleep(&self) -> bool {
        self.parker.resume()
    }
}
