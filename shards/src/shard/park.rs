//! Parks the owner of a shard, and wakes it.
//!
//! The owner announces until when it sleeps, and then looks once more for updates and work. See
//! "Parking and wake-ups" in `PROTOCOLS.md` of `tourbillon-sched`.

use tourbillon_sched::Sleeper;

use super::{Shard, insert::full_fence};
use crate::owner::Owner;

impl<O: Owner> Shard<O> {
    /// Wakes the owner if it sleeps, and returns whether it did. For work that is no timer.
    pub fn wake(&self) -> bool {
        self.wake_before(0, full_fence)
    }

    /// Announces that the owner is about to sleep, and returns until when, in ns. The owner then
    /// sleeps until that moment ([`NEVER`](crate::NEVER): without an end) or until [`Owner::wake`],
    /// and calls [`resume`](Shard::resume) when it is awake. Returns `None` if there may be
    /// something to [`expire`](Shard::expire) first; then the owner is still awake.
    ///
    /// The owner looks for other work between this call and the sleep. A thread that brings such
    /// work calls [`wake`](Shard::wake) after that.
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

/// A worker of [`Searchers`](tourbillon_sched::Searchers) sleeps until the next deadline.
impl<O: Owner> Sleeper for Shard<O> {
    fn announce_sleep(&self) -> u64 {
        let until = self.next_deadline();
        self.parker.announce(until);
        until
    }

    fn may_sleep(&self, until: u64) -> bool {
        !self.has_updates() && self.next_deadline() >= until
    }

    fn end_sleep(&self) -> bool {
        self.parker.resume()
    }
}
