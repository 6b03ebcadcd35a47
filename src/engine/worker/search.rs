//! How a worker looks for work elsewhere: the injector, then the deques of its peers.
//!
//! A peer that gets on keeps a job that is the only one in its deque: it runs that sooner than a thief would, who has
//! to fetch it, and all that it leads to, from the other's cache. A task that spawns a task, which spawns a task, and so
//! on, would go to and fro between two cores. So the searcher looks again, a moment later. If the peer is still at the
//! same job then, it takes the other; and so it does when it has looked often enough: two tasks that yield in turn are
//! to have a worker each. It counts as a searcher all the time: nobody else is woken for what it leaves, and whatever
//! else there is it finds at its next look.

use crate::engine::{job::Job, queues::steal, worker::Worker};

/// A worker's search for work.
#[derive(Debug)]
pub(crate) struct Search {
    /// How many times in a row it was about to sleep, and did not, since there was something to do, nor searched, since
    /// enough others do.
    pub(crate) denied: u32,
    /// Whether the worker counts as a searcher.
    pub(crate) is_on: bool,
    /// Where the search for a victim begins.
    victim: usize,
    /// A peer that was left its only job, and the number of the job that it was at.
    left: Option<(usize, u64)>,
    /// How often it may still look around in place of taking a peer's only job, or of giving up.
    patience: u32,
}

impl Search {
    pub(crate) fn beginning_at(victim: usize) -> Self {
        Self {
            denied: 0,
            is_on: false,
            victim,
            left: None,
            patience: PATIENCE,
        }
    }

    /// Whether a peer is to keep its only job for now, since it gets on: it has begun the job of this number after the
    /// last look.
    fn leaves(&mut self, peer: usize, begun: u64) -> bool {
        let seen = Some((peer, begun));
        self.patience > 0 && std::mem::replace(&mut self.left, seen) != seen
    }

    /// Whether to look again soon, while it still counts as a searcher.
    pub(crate) fn lingers(&self) -> bool {
        self.left.is_some() && self.patience > 0
    }

    /// It has found something, or has slept.
    pub(crate) fn begin_anew(&mut self) {
        self.left = None;
        self.patience = PATIENCE;
    }
}

/// So often a worker relies on those who search already. One of them may have been woken, and wait for a core: as long as
/// that takes nobody would take what there is, and the worker would neither sleep nor run it.
const DENIED_MOST: u32 = 8;

/// So often a searcher looks around, once it has left a peer its only job, before it takes such a job all the same, or
/// gives up: for some 13 µs.
const PATIENCE: u32 = 8;
/// How many times it waits for a moment between two such looks: a µs and more together. Each look takes the lines of the
/// peer's queue away from it for a moment.
const PAUSES: u32 = 64;

impl Worker<'_> {
    /// Looks for work elsewhere, if not enough others do. Who finds some is a searcher until it
    /// executes it.
    pub(crate) fn search(&mut self) -> Option<Job> {
        // Nobody relies on a helper to search; nor on a worker that spins, which would wake the next
        // before what it spins for.
        if !self.search.is_on && !self.core.is_helper && !self.is_near() {
            self.search.is_on = self.shared.queues.searchers.begin();
            if !self.search.is_on && self.search.denied < DENIED_MOST {
                return None;
            }
        }
        self.core.watchdog.watch.searches(true);
        let job = self.steal();
        self.core.watchdog.watch.searches(false);
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

    /// Lets a moment pass before the next look. (It is the worker's time, and not that of its jobs.)
    pub(crate) fn linger(&mut self) {
        self.search.patience -= 1;
        self.was_away();
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }

    /// The search is over.
    pub(crate) fn found(&mut self) {
        self.search.is_on = false;
        self.search.begin_anew();
        if self.shared.queues.searchers.found() {
            self.shared.wake_one();
        }
    }

    fn steal(&mut self) -> Option<Job> {
        let deque = &self.local.deque;
        if let Some(job) = self.shared.queues.steal_batch(deque) {
            return Some(job);
        }
        let search = &mut self.search;
        search.victim = search.victim.wrapping_add(1);
        let job = self.shared.find_deque(search.victim, |victim| {
            if victim.index == self.core.index {
                return None;
            }
            if search.is_on
                && victim.stealer.len() == 1
                && search.leaves(victim.index, victim.watchdog.watch.begun())
            {
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

    use super::*;
    use crate::api::runtime::Runtime;

    #[test]
    fn a_peer_keeps_its_only_job_as_long_as_it_gets_on_and_not_for_ever() {
        let mut search = Search::beginning_at(0);
        assert!(!search.lingers(), "nothing was left");
        assert!(search.leaves(1, 7));
        assert!(search.lingers());
        assert!(!search.leaves(1, 7), "it is still at the same");
        assert!(search.leaves(1, 8));
        assert!(search.leaves(2, 8), "that is another peer");
        for looks in 1..=PATIENCE {
            assert!(search.lingers());
            search.patience -= 1;
            assert_eq!(search.leaves(1, 8 + u64::from(looks)), looks < PATIENCE);
        }
        assert!(!search.lingers(), "it gives up");
        search.begin_anew();
        assert!(!search.lingers());
        assert!(search.leaves(1, 8));
    }

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
        let searchers = &runtime.handle().shared().queues.searchers;
        while searchers.parked() == 0 || !searchers.begin() {
            std::thread::yield_now();
        }
        let task = runtime.spawn(async {});
        // Nobody was woken for it; now somebody is, for something else.
        runtime.after(Duration::ZERO, || ());
        let begin = Instant::now();
        while !task.is_finished() && begin.elapsed() < Duration::from_secs(300) {
            std::thread::yield_now();
        }
        let in_time = task.is_finished();
        let _last = searchers.found();
        assert!(in_time);
    }
}
