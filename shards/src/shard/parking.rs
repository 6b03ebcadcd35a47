//! How the owner of a shard sleeps, and is woken.

use super::{Shard, arriving::full_fence};
use crate::{owner::Owner, search::Searchers};

/// What [`Shard::park`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// Whether the worker slept (or at least called `sleep`).
    pub slept: bool,
    /// Whether the worker was woken to search, and counts as a searcher.
    pub searching: bool,
}

impl<O: Owner> Shard<O> {
    /// Wakes the owner if it sleeps, whatever for.
    pub fn wake(&self) -> bool {
        self.wake_before(0, full_fence)
    }

    /// Announces that the owner sleeps, and answers until when.
    fn announce_sleep(&self) -> u64 {
        let until = self.next_deadline();
        self.parker.announce(until);
        until
    }

    /// Whether nothing has come, since it was announced, that would have to end the sleep.
    fn may_sleep(&self, until: u64) -> bool {
        !self.has_news() && self.next_deadline() >= until
    }

    /// Announces that the owner is about to sleep, and answers until when, in ns: it has to sleep
    /// until then ([`NEVER`](crate::NEVER): without an end), or until [`Owner::wake`], and to call
    /// [`resume`](Shard::resume) when it is awake. `None` if there is something to
    /// [`expire`](Shard::expire) first; then it is awake still.
    ///
    /// What else would have to end the sleep has to be looked at between this and the sleep; who brings
    /// it calls [`wake`](Shard::wake).
    ///
    /// For an event loop of one thread. [`park`](Shard::park) is for those that steal from each
    /// other.
    ///
    /// ```
    /// # use std::{sync::Arc, thread, time::{Duration, Instant}};
    /// # use tourbillon_shards::{NEVER, Owner, Shard, Timer};
    /// struct Loop(thread::Thread);
    ///
    /// impl Owner for Loop {
    ///     fn wake(&self) { self.0.unpark(); }
    ///     fn is_current(&self) -> bool { thread::current().id() == self.0.id() }
    /// }
    ///
    /// let shard = Arc::new(Shard::new(Loop(thread::current())));
    /// let start = Instant::now();
    /// let now = || start.elapsed().as_nanos() as u64;
    /// let timer = Timer::once(&shard, 1_000_000, 1_000_000, || ());
    /// while timer.deadline().is_some() {
    ///     let mut due = Vec::new();
    ///     shard.expire(now(), usize::MAX, &mut due);
    ///     for timer in due {
    ///         timer.run(now);
    ///     }
    ///     if let Some(until) = shard.sleep_until() {
    ///         if until != NEVER {
    ///             thread::park_timeout(Duration::from_nanos(until.saturating_sub(now())));
    ///         }
    ///         shard.resume();
    ///     }
    /// }
    /// shard.close();
    /// ```
    pub fn sleep_until(&self) -> Option<u64> {
        let until = self.announce_sleep();
        if self.may_sleep(until) {
            return Some(until);
        }
        self.resume();
        None
    }

    /// The owner is awake again after [`sleep_until`](Shard::sleep_until).
    pub fn resume(&self) {
        let searches = self.parker.resume();
        debug_assert!(!searches, "nobody is woken to search without `Searchers`");
    }

    /// Sleeps until the next deadline, or until woken. For the owner, which is a searcher if it
    /// says so.
    ///
    /// `work` is asked whether there is anything to do after all, once the worker has announced
    /// that it sleeps; `sleep` sleeps until the moment given, in ns (or [`NEVER`](crate::NEVER)), or until
    /// [`Owner::wake`].
    pub fn park(
        &self,
        searchers: &Searchers,
        searching: bool,
        work: impl FnOnce() -> bool,
        sleep: impl FnOnce(u64),
    ) -> Parked {
        // In this order, and in the reverse afterwards: whoever counts as parked can be claimed.
        let until = self.announce_sleep();
        searchers.park(searching);
        let work = work();
        let sleeps = self.may_sleep(until) && !work;
        if sleeps {
            sleep(until);
        }
        searchers.unpark();
        // Who brought the work may have relied on us as a searcher: that we are again, unless there
        // are enough others.
        let searching = self.parker.resume() || (work && searchers.begin());
        Parked {
            slept: sleeps,
            searching,
        }
    }
}
