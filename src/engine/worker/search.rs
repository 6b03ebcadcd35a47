//! How a worker looks for work elsewhere: the injector, then the deques of its peers.
//!
//! A searcher leaves a peer its only job if the peer makes progress. The peer runs that job sooner
//! than a thief would: the thief has to fetch the job and all its data from the peer's cache.
//! Without this rule, a chain of tasks that each spawn the next one would move back and forth
//! between two cores.
//!
//! A moment later the searcher looks again. If the peer is still at the same job, the searcher
//! takes the other one. It also takes the job after [`PATIENCE`] looks: two tasks that yield to
//! each other should have a worker each. It counts as a searcher all the time. So no other worker
//! is woken for the job that it leaves, and it finds all other work at its next look.
//!
//! With [`spin(false)`](crate::runtime::Builder::spin) it takes that job at once.
//!
//! The rules of the shared count are in "Searchers" in `crates/sched/PROTOCOLS.md`.

use crate::{
    engine::{core::Core, job::Job, queues::steal_batch_of, worker::Worker},
    util::probe::probe,
};

/// A worker's search for work.
#[derive(Debug)]
pub(crate) struct Search {
    /// How many times in a row the worker could neither sleep, since there was work, nor search,
    /// since enough others search.
    pub(crate) denied: u32,
    /// Whether the worker counts as a searcher.
    pub(crate) is_on: bool,
    /// The index at which the next search for a victim begins.
    victim: usize,
    /// A peer that was left its only job, and the number of the job that it was running.
    left: Option<(usize, u64)>,
    /// How many more times the worker may look again, before it takes a peer's only job or gives
    /// up.
    patience: u32,
}

impl Search {
    /// Returns a search whose first victim comes after this index.
    pub(crate) fn beginning_at(victim: usize) -> Self {
        Self {
            denied: 0,
            is_on: false,
            victim,
            left: None,
            patience: PATIENCE,
        }
    }

    /// Returns whether the thief leaves `peer` its only job for now: the peer makes progress, since
    /// it has begun job number `begun` after the last look.
    fn leaves_job_of(&mut self, peer: usize, begun: u64) -> bool {
        let seen = Some((peer, begun));
        self.patience > 0 && std::mem::replace(&mut self.left, seen) != seen
    }

    /// Returns whether the worker looks again soon, while it still counts as a searcher.
    pub(crate) fn lingers(&self) -> bool {
        self.left.is_some() && self.patience > 0
    }

    /// Begins a new search: the last one found work, or the worker has slept.
    pub(crate) fn reset(&mut self) {
        self.left = None;
        self.patience = PATIENCE;
    }
}

/// How many times in a row a worker relies on the present searchers. One of them may have been
/// woken and wait for a core. Until that one runs, no thread takes the work, and this worker could
/// neither sleep nor run it.
const DENIED_MOST: u32 = 8;

/// How many times a searcher looks again after it has left a peer its only job. It takes some 13
/// µs.
const PATIENCE: u32 = 8;
/// How many pauses of the processor separate two such looks: 1 µs and more. Each look takes cache
/// lines of the peer's deque away from the peer.
const PAUSES: u32 = 64;

impl Worker<'_> {
    /// Looks for a job in the injector and in the deques of peers, unless enough others search.
    ///
    /// A worker that finds a job counts as a searcher until it executes the job.
    pub(crate) fn search(&mut self) -> Option<Job> {
        if self.is_retired() {
            return None;
        }
        // 1. Count as a searcher. A helper never does, because no thread relies on a helper. Nor
        //    does a worker that spins: it would wake the next searcher before the deadline it spins
        //    for.
        if !self.search.is_on && !self.core.is_helper && !self.is_near() {
            self.search.is_on = self.shared.queues.searchers.begin();
            // Enough others search. After `DENIED_MOST` refusals, search without being counted.
            if !self.search.is_on && self.search.denied < DENIED_MOST {
                return None;
            }
        }
        // 2. Search. The flag is a hint for a display of the worker's activity.
        self.core.watchdog.watch.searches(true);
        let job = self.steal();
        self.core.watchdog.watch.searches(false);
        if self.search.is_on || job.is_some() {
            self.search.denied = 0;
        }
        // 3. A counted searcher wakes the next one in `found`, for more than it will soon have done
        //    itself. This one is not counted, and may have stolen several jobs. They were in no
        //    queue while they moved, so a searcher that gave up then has not seen them. Without the
        //    wake-up, these jobs would have only this worker until its job ends, or until a peer
        //    rescues them. That is time and no loss. So no test can tell: the oracle of the
        //    simulation, too, judges only threads at rest, and a worker that rests in a job is one
        //    that its peers watch.
        if job.is_some() && !self.search.is_on && self.local.has_queued() {
            self.shared.wake_one();
        }
        job
    }

    /// Waits a moment before the next look. The time counts as the worker's, not as that of its
    /// jobs.
    pub(crate) fn linger(&mut self) {
        self.search.patience -= 1;
        self.back_in_loop();
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
    }

    /// Ends the search because there is work for this worker. If it was the last searcher and there
    /// is more work than this worker's own, it wakes the next one: threads that brought that work
    /// relied on this search.
    pub(crate) fn found(&mut self) {
        self.search.is_on = false;
        self.search.reset();
        let is_of_peer = |owner: &Core| owner.index != self.core.index;
        // The job that this worker is about to run is in none of its queues.
        let more = || self.local.is_to_share(1) || self.shared.has_work_in(is_of_peer);
        self.shared.found(more);
    }

    /// Takes a job from the injector or a peer, and moves some more into the own deque.
    fn steal(&mut self) -> Option<Job> {
        let deque = &self.local.deque;
        if let Some(job) = self.shared.queues.steal_batch(deque) {
            return Some(job);
        }
        if let Some(groups) = self.shared.task_groups.table() {
            self.end_job(self.shared.clock.real());
            if let Some(job) = self.next_by_shares(groups) {
                return Some(job);
            }
        }
        self.steal_from_peers()
    }

    /// Takes a job from a peer, and moves some more into the own deque, which is empty.
    pub(super) fn steal_from_peers(&mut self) -> Option<Job> {
        // The only worker has no peers, unless helpers run.
        if self.is_single && self.shared.queues.searchers.helpers() == 0 {
            return None;
        }
        let deque = &self.local.deque;
        // Begin with another victim each time, so that not all searchers ask the same peer.
        let (search, spins) = (&mut self.search, self.wait_policy.may_spin());
        search.victim = search.victim.wrapping_add(1);
        let job = self.shared.find_deque(search.victim, |victim| {
            // This worker has emptied its own deque before.
            if victim.index == self.core.index {
                return None;
            }
            // Most deques are empty. An attempt to steal pins an epoch, which takes three times as
            // many instructions as this look, and now and then reads a line of each thread.
            let queued = victim.stealer.len();
            if queued == 0 {
                return None;
            }
            // The only job of a peer that makes progress stays there for now. A worker that may not
            // spin takes it: it could not look again.
            if search.is_on
                && spins
                && queued == 1
                && search.leaves_job_of(victim.index, victim.watchdog.watch.begun())
            {
                return None;
            }
            let job = steal_batch_of(&victim.stealer, deque)?;
            Some((job, victim.index))
        });
        if let Some((_, victim)) = job {
            // The deque was empty, so all that it holds now was stolen as well.
            let jobs = 1 + deque.len() as u64;
            self.core.recorder.stole(jobs, victim);
            probe!(steal, self.core.index, victim, jobs);
            if self.core.track.notes_all() {
                self.record_stole(victim, jobs);
            }
        }
        job.map(|(job, _)| job)
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::api::builder::Builder;

    #[test]
    fn a_peer_that_makes_progress_keeps_its_only_job_for_a_while() {
        let mut search = Search::beginning_at(0);
        assert!(!search.lingers(), "nothing was left");
        assert!(search.leaves_job_of(1, 7));
        assert!(search.lingers());
        assert!(!search.leaves_job_of(1, 7), "the peer is still at job 7");
        assert!(search.leaves_job_of(1, 8));
        assert!(
            search.leaves_job_of(2, 8),
            "another peer is a new observation"
        );
        for looks in 1..=PATIENCE {
            assert!(search.lingers());
            search.patience -= 1;
            assert_eq!(
                search.leaves_job_of(1, 8 + u64::from(looks)),
                looks < PATIENCE
            );
        }
        assert!(!search.lingers(), "the patience is used up");
        search.reset();
        assert!(!search.lingers());
        assert!(search.leaves_job_of(1, 8));
    }

    /// The counted searcher here is a worker that was woken and gets no core.
    #[test]
    fn work_does_not_wait_for_a_searcher_that_gets_no_core() {
        let runtime = Builder::new()
            .worker_threads(1)
            .global_queue_interval(u32::MAX)
            .build()
            .unwrap();
        // The worker takes its first job from the injector in any case: let that pass.
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let searchers = &runtime.handle().shared().queues.searchers;
        while searchers.parked() == 0 || !searchers.begin() {
            std::thread::yield_now();
        }
        let task = runtime.spawn(async {});
        // No worker was woken for the task. The timer wakes one.
        runtime.handle().after(Duration::ZERO, || ());
        let begin = Instant::now();
        while !task.is_finished() && begin.elapsed() < Duration::from_secs(300) {
            std::thread::yield_now();
        }
        let in_time = task.is_finished();
        searchers.found(|| false, || false);
        assert!(in_time);
    }
}
