//! How a worker looks for work elsewhere.
//!
//! What is queued from outside is anybody's, and of a deque with several jobs a part is stolen. A job that
//! is alone in the deque of a peer which gets on is that peer's next: its cache has what the job is about
//! to read, and it is there sooner. So such a job is stolen only if the peer is at the same job a moment
//! later. Where each task spawns the next, as a chain does, they would otherwise go from core to core, and
//! with each of them a worker would go to sleep and be woken.

use super::{
    core::Core,
    local::{Job, steal},
    worker::Worker,
};

/// For how long a peer is watched whether it gets on, in ns. Longer than most jobs take, and little beside
/// what it takes to be woken.
const MOMENT: u64 = 5_000;
/// For how many moments in a row a worker watches peers that do get on before it goes to sleep. As long as it does,
/// nobody is woken for what they queue: about as long as waking takes.
const MOMENTS: u32 = 8;

/// A worker's search for work.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether the worker counts as a searcher.
    pub(super) is_on: bool,
    /// Where the search for a victim begins.
    victim: usize,
    /// Peers that had one job in their deques, and the number of the job that they were at.
    seen: Vec<(usize, u64)>,
}

impl Search {
    pub(super) fn beginning_at(victim: usize) -> Self {
        Self {
            is_on: false,
            victim,
            seen: Vec::new(),
        }
    }

    /// Whether the only job in the deque of this peer is left to it, which is not at the same job as
    /// when this was last asked.
    fn leaves(&mut self, peer: &Core) -> bool {
        let begun = peer.job_begun();
        match self.seen.iter_mut().find(|(index, _)| *index == peer.index) {
            Some((_, seen)) => std::mem::replace(seen, begun) != begun,
            None => {
                self.seen.push((peer.index, begun));
                true
            }
        }
    }
}

impl Worker<'_> {
    /// Looks for work elsewhere, if not enough others do. Who finds some is a searcher until it
    /// executes it.
    pub(super) fn search(&mut self) -> Option<Job> {
        // Nobody relies on a helper to search; nor on a worker that spins, which would wake the next
        // before what it spins for.
        if !self.search.is_on && !self.core.is_helper && !self.is_near() {
            if !self.shared.searchers.begin() {
                return None;
            }
            self.search.is_on = true;
        }
        self.search.seen.clear();
        for _ in 0..MOMENTS {
            let job = self.steal();
            if job.is_some() || self.search.seen.is_empty() || !self.wait_a_moment() {
                return job;
            }
        }
        None
    }

    /// The search is over.
    pub(super) fn found(&mut self) {
        self.search.is_on = false;
        if self.shared.searchers.found() {
            self.shared.wake_one();
        }
    }

    /// Spins for a moment. False if there is something to do here.
    fn wait_a_moment(&self) -> bool {
        let (clock, shard) = (&self.shared.clock, &self.local.shard);
        let begin = clock.real();
        loop {
            if self.shared.is_stopping() || shard.has_news() || shard.next_deadline() <= clock.now()
            {
                return false;
            }
            if clock.real().saturating_sub(begin) >= MOMENT {
                return true;
            }
            std::hint::spin_loop();
        }
    }

    fn steal(&mut self) -> Option<Job> {
        let deque = &self.local.deque;
        if let Some(job) = steal(|| self.shared.injector.steal_batch_and_pop(deque)) {
            return Some(job);
        }
        self.search.victim = self.search.victim.wrapping_add(1);
        let (first, search) = (self.search.victim, &mut self.search);
        let own = self.core;
        let job = self.shared.find_deque(first, |victim| {
            if victim.index == own.index {
                return None;
            }
            // A helper is called to those that do not get on, and has made sure of it.
            if !own.is_helper && victim.stealer.len() == 1 && search.leaves(victim) {
                return None;
            }
            steal(|| victim.stealer.steal_batch_and_pop(deque))
        });
        if job.is_some() {
            self.core.counters.own.steals.add_alone(1);
            if self.core.is_helper && self.local.has_queued() {
                // A worker that found work wakes the next as it gives up the search.
                self.shared.wake_one();
            }
        }
        job
    }
}
