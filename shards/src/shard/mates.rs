//! Mates: workers of one group, which serve each other's timers to save wake-ups.
//!
//! A worker that defers its wake-up may *lean*: it sleeps past the deferral, if another worker of
//! its group is awake or wakes up in time. Each worker of the group serves the timers of those that
//! lean ([`Mates::leaning`]) whenever it looks at its own. The last one that could do so wakes up
//! for all of them. See "Mates" in `PROTOCOLS.md` of `tourbillon-sched`.

use std::{cell::Cell, fmt};

use tourbillon_sched::Sleeper;
use tourbillon_sync::{Arc, AtomicU64, Ordering};

use super::Shard;
use crate::{node::claim::NEVER, owner::Owner};

/// How many workers of a group can lean.
const MOST: usize = u64::BITS as usize;

/// Which workers of a group lean.
#[derive(Debug)]
pub struct Leaning(AtomicU64);

/// A group of workers that serve each other's timers: every `step`th one of a runtime.
pub struct Mates<'a, O: Owner> {
    leaning: &'a Leaning,
    shards: &'a [Arc<Shard<O>>],
    first: usize,
    step: usize,
}

/// A worker of a group that is about to sleep, and is at `place` in it.
pub struct Mate<'a, O: Owner> {
    shard: &'a Shard<O>,
    group: Option<(Mates<'a, O>, usize)>,
    /// Until when the worker sleeps if it leans, in ns. Zero: it does not lean.
    until: u64,
    leans: Cell<bool>,
}

impl Leaning {
    /// Creates the word of a group of which no worker leans.
    #[allow(
        clippy::new_without_default,
        reason = "a word belongs to a group; none is made by default"
    )]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns how many workers lean. A hint.
    #[inline]
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed).count_ones() as usize
    }

    /// Returns whether the worker at `place` leans.
    #[inline]
    pub fn leans(&self, place: usize) -> bool {
        place < MOST && self.0.load(Ordering::Relaxed) & 1 << place != 0
    }
}

impl<O: Owner> fmt::Debug for Mates<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mates").field(self.leaning).finish()
    }
}

impl<O: Owner> fmt::Debug for Mate<'_, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Mate").field(&self.group).finish()
    }
}

impl<O: Owner> Clone for Mates<'_, O> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<O: Owner> Copy for Mates<'_, O> {}

impl<'a, O: Owner> Mates<'a, O> {
    /// Returns the group of the workers `first`, `first + step` and so on of `shards`.
    pub fn new(
        leaning: &'a Leaning,
        shards: &'a [Arc<Shard<O>>],
        first: usize,
        step: usize,
    ) -> Self {
        Self {
            leaning,
            shards,
            first,
            step,
        }
    }

    /// Returns the workers of the group, each with its place.
    fn all(self) -> impl Iterator<Item = (usize, &'a Shard<O>)> {
        let shards = self.shards.iter().skip(self.first).step_by(self.step);
        shards.map(|shard| &**shard).enumerate()
    }

    /// Returns the workers that lean, except that at `place`.
    pub fn leaning(self, place: usize) -> impl Iterator<Item = (usize, &'a Shard<O>)> {
        let word = self.leaning.0.load(Ordering::Acquire);
        let leans = move |other: usize| other < MOST && other != place && word & 1 << other != 0;
        // No worker is asked for its place if none leans.
        let all = (word != 0).then(|| self.all());
        all.into_iter().flatten().filter(move |it| leans(it.0))
    }

    /// Returns whether a worker, except that at `place`, is awake, or wakes up for a timer that is due
    /// `at`. It may defer that, as it may for its own timers.
    pub fn is_covered(self, at: u64, place: usize) -> bool {
        self.covered_from(place) <= at
    }

    /// Returns the first deadline, in ns, that the workers other than that at `place` cover. They
    /// cover all later ones, too.
    fn covered_from(self, place: usize) -> u64 {
        let from = |worker: &Shard<O>| match worker.parker.parked_until() {
            // It is stuck, or gets no core, and the peer that watches it looks after it alone.
            _ if worker.is_watched() => u64::MAX,
            // The word first, as in `Parker::claim_if_not_deferred`.
            Some(until) if until > worker.deferred() => until,
            Some(_) => 0,
            // It looks at the timers of those that lean before it sleeps.
            None if worker.parker.is_awake() => 0,
            // It is being woken. It may have to wait for a core, and no alarm would tell.
            None => u64::MAX,
        };
        let others = self.all().filter(|it| it.0 != place);
        others.map(|it| from(it.1)).min().unwrap_or(u64::MAX)
    }

    /// Wakes the workers that lean if no other worker covers their next deadlines any more. The
    /// calling thread has just begun to watch the worker at `place`: see [`Shard::watch_on`].
    pub fn wake_left(self, place: usize) {
        // Either a worker that begins to lean finds, behind its own fence, that the other one is
        // watched, or this thread finds that it leans: `watch_on` has fenced after it set the
        // alarm.
        for (_, worker) in self.leaning(place) {
            worker.wake_before(worker.next_deadline(), true, || ());
        }
    }

    /// Returns the next deadline, in ns, of the workers that lean, unless another worker than that
    /// at `place` covers it. Then it covers the later ones, too, and this is [`NEVER`].
    pub fn next_deadline(self, place: usize) -> u64 {
        let nexts = self.leaning(place).map(|it| it.1.next_deadline());
        let next = nexts.min().unwrap_or(NEVER);
        match next == NEVER || self.is_covered(next, place) {
            true => NEVER,
            false => next,
        }
    }
}

impl<'a, O: Owner> Mate<'a, O> {
    /// Returns the owner of `shard`, which is about to sleep. `group`: its group, and its place in
    /// it. `until`: until when it sleeps, in ns, if it defers its wake-up and another worker covers
    /// that; zero, if it is not to lean.
    pub fn new(shard: &'a Shard<O>, group: Option<(Mates<'a, O>, usize)>, until: u64) -> Self {
        Self {
            shard,
            group,
            until,
            leans: Cell::new(false),
        }
    }

    /// Returns whether the worker leans in its present sleep.
    pub fn leans(&self) -> bool {
        self.leans.get()
    }

    /// Returns the next deadline for which the worker has to wake up, in ns: of its own timers, and
    /// of those of workers that lean. It may defer that.
    pub fn next_deadline(&self) -> u64 {
        let own = self.shard.next_deadline();
        match self.group {
            Some((mates, place)) => own.min(mates.next_deadline(place)),
            None => own,
        }
    }

    /// Returns when the worker is to wake up if it does not lean, in ns.
    pub fn next_wake(&self) -> u64 {
        let own = self.shard.next_wake();
        match self.group {
            Some((mates, place)) => own.min(mates.next_deadline(place).max(self.shard.deferred())),
            None => own,
        }
    }

    /// Returns whether another worker covers the timers of this one.
    fn is_covered(&self, mates: Mates<'_, O>, place: usize) -> bool {
        mates.is_covered(self.shard.next_deadline(), place)
    }
}

impl<O: Owner> Sleeper for Mate<'_, O> {
    fn announce_sleep(&self) -> u64 {
        let mut until = self.next_wake();
        if let Some((mates, place)) = self.group {
            let is_deferred = self.shard.next_deadline() < self.shard.deferred();
            let longer = self.until.min(self.shard.next_prompt());
            let may_lean = is_deferred && longer > until && place < MOST;
            if may_lean && self.is_covered(mates, place) {
                // Before the announcement: a thread that finds this worker asleep behind its fence
                // finds that it leans.
                mates.leaning.0.fetch_or(1 << place, Ordering::AcqRel);
                self.leans.set(true);
                until = longer;
            }
        }
        self.shard.parker.announce(until);
        until
    }

    fn may_sleep(&self, until: u64) -> bool {
        let shard = self.shard;
        let Some((mates, place)) = self.group else {
            return shard.may_sleep(until);
        };
        let own = match self.leans.get() {
            // Behind the fence: the other worker sees that this one leans, or this one sees that
            // the other sleeps for too long.
            true => {
                !shard.has_updates()
                    && shard.next_prompt() >= until
                    && self.is_covered(mates, place)
            }
            false => shard.may_sleep(until),
        };
        // This worker was awake, so others may rely on it.
        own && until <= mates.next_deadline(place).max(shard.deferred())
    }

    fn end_sleep(&self) -> bool {
        let searches = self.shard.parker.resume();
        if let Some((mates, place)) = self.group.filter(|_| self.leans.replace(false)) {
            mates.leaning.0.fetch_and(!(1 << place), Ordering::AcqRel);
        }
        searches
    }
}
