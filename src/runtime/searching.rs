//! How a worker looks for work elsewhere: the injector, then the deques of its peers.

use super::{
    local::{Job, steal},
    worker::Worker,
};

/// A worker's search for work.
#[derive(Debug)]
pub(super) struct Search {
    /// How many times in a row it was about to sleep, and did not, since there was something to do, nor searched, since
    /// enough others do.
    pub(super) denied: u32,
    /// Whether the worker counts as a searcher.
    pub(super) is_on: bool,
    /// Where the search for a victim begins.
    victim: usize,
}

impl Search {
    pub(super) fn beginning_at(victim: usize) -> Self {
        Self {
            denied: 0,
            is_on: false,
            victim,
        }
    }
}

/// So often a worker relies on those who search already. One of them may have been woken, and wait for a core: as long as
/// that takes nobody would take what there is, and the worker would neither sleep nor run it.
const DENIED_MOST: u32 = 8;

impl Worker<'_> {
    /// Looks for work elsewhere, if not enough others do. Who finds some is a searcher until it
    /// executes it.
    pub(super) fn search(&mut self) -> Option<Job> {
        // Nobody relies on a helper to search; nor on a worker that spins, which would wake the next
        // before what it spins for.
        if !self.search.is_on && !self.core.is_helper && !self.is_near() {
            self.search.is_on = self.shared.searchers.begin();
            if !self.search.is_on && self.search.denied < DENIED_MOST {
                return None;
            }
        }
        self.core.watch.searches(true);
        let job = self.steal();
        self.core.watch.searches(false);
        if self.search.is_on || job.is_some() {
            self.search.denied = 0;
        }
        // A worker that counts wakes the next as it gives up the search. What another has taken beside its job was in no
        // queue while it was on its way: who gave up the search then has not seen it.
        if job.is_some() && !self.search.is_on && self.local.has_queued() {
            self.shared.wake_one();
        }
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
        }
        job.map(|(job, _)| job)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use crate::Runtime;

    /// It was woken, and the system has no core for it.
    #[test]
    fn work_does_not_wait_for_a_searcher_that_does_not_come() {
        let runtime = Runtime::builder()
            .worker_threads(1)
            .global_queue_interval(u32::MAX)
            .build()
            .unwrap();
        // Its first job: before that it looks at what comes from outside in any case.
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let searchers = &runtime.handle().shared().searchers;
        while searchers.parked() == 0 || !searchers.begin() {
            std::thread::yield_now();
        }
        let task = runtime.spawn(async {});
        // Nobody was woken for it; now somebody is, for something else.
        runtime.after(Duration::ZERO, || ());
        let begin = Instant::now();
        while !task.is_finished() && begin.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        let in_time = task.is_finished();
        let _last = searchers.found();
        assert!(in_time);
    }
}
