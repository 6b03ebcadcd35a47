//! How a worker looks for work elsewhere: the injector, then the deques of its peers.

use super::{
    local::{Job, steal},
    worker::Worker,
};

/// A worker's search for work.
#[derive(Debug)]
pub(super) struct Search {
    /// Whether the worker counts as a searcher.
    pub(super) is_on: bool,
    /// Where the search for a victim begins.
    victim: usize,
}

impl Search {
    pub(super) fn beginning_at(victim: usize) -> Self {
        Self {
            is_on: false,
            victim,
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
        self.core.watch.searches(true);
        let job = self.steal();
        self.core.watch.searches(false);
        job
    }

    /// The search is over.
    pub(super) fn found(&mut self) {
        self.search.is_on = false;
        if self.shared.searchers.found() {
            self.shared.wake_one();
        }
    }

    fn steal(&mut self) -> Option<Job> {
        let deque = &self.local.deque;
        if let Some(job) = steal(|| self.shared.injector.steal_batch_and_pop(deque)) {
            return Some(job);
        }
        self.search.victim = self.search.victim.wrapping_add(1);
        let job = self.shared.find_deque(self.search.victim, |victim| {
            if victim.index == self.core.index {
                return None;
            }
            let job = steal(|| victim.stealer.steal_batch_and_pop(deque))?;
            Some((job, victim.index))
        });
        if let Some((_, victim)) = job {
            self.core.recorder.stole(1 + deque.len() as u64, victim);
            if self.core.is_helper && self.local.has_queued() {
                // A worker that found work wakes the next as it gives up the search.
                self.shared.wake_one();
            }
        }
        job.map(|(job, _)| job)
    }
}
