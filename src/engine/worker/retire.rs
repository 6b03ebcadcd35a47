//! How a worker is retired, while fewer workers than exist take part in the work.
//!
//! A retired worker keeps its thread, its shard and its epoll instance, since timers and sockets
//! stay where they are. It wakes up for these and for its pinned tasks. What these make ready, and
//! any other worker may run, it hands on. It searches for no work, and no thread wakes it for any:
//! while it sleeps, it counts as a helper in reserve. As such it is called when a worker is stuck.
//! Then it takes part until no work is left. The rules are in "Retired workers" in
//! `crates/sched/PROTOCOLS.md`.
//!
//! On a clock that was ever paused no worker is retired: all must depend on the program alone there.

use std::sync::Arc;

use crate::{
    engine::{
        core::{Core, WorkerShard},
        groups::GroupId,
        job::Job,
        shared::Shared,
        worker::Worker,
    },
    sys::sync::atomic::Ordering,
};

/// What a worker does for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It runs any work.
    Active,
    /// It is retired.
    Retired,
    /// It is retired, and was called because another worker is stuck. It runs any work until it
    /// finds none.
    Called,
}

impl Shared {
    /// Returns how many workers take part, of so many.
    pub(crate) fn active_workers(&self, workers: usize) -> usize {
        self.limit.get().min(workers)
    }

    /// Returns how many workers do not take part.
    pub(crate) fn retired_workers(&self) -> usize {
        let workers = self.recorders.len();
        workers - self.active_workers(workers)
    }

    /// Returns how many retired workers sleep. A hint.
    pub(crate) fn resting(&self) -> usize {
        let rests = |worker: &&Arc<WorkerShard>| {
            worker.owner().is_retired.load(Ordering::Relaxed) && !worker.parker().is_awake()
        };
        self.workers.load().iter().filter(rests).count()
    }

    /// Sets how many workers take part, and wakes the others, which may be asleep in the other
    /// state.
    pub(crate) fn set_active_workers(&self, active: usize) {
        self.limit.set(active);
        let workers = self.workers.load();
        // Worker 0 always takes part.
        workers.iter().skip(1).for_each(|worker| _ = worker.wake());
    }

    /// Returns whether this worker is retired. A helper never is.
    #[inline]
    pub(crate) fn retires(&self, core: &Core) -> bool {
        self.limit.retires(core.index) && !core.is_helper && !self.clock.was_paused()
    }
}

impl Worker<'_> {
    /// Returns whether the worker leaves to others what any worker may do.
    #[inline]
    pub(crate) fn rests(&self) -> bool {
        self.duty == Duty::Retired
    }

    /// Takes part or retires, as the limit says.
    #[inline]
    pub(super) fn follow_limit(&mut self) {
        if self.duty != Duty::Active || self.shared.limit.retires(self.core.index) {
            self.change_duty();
        }
    }

    #[cold]
    fn change_duty(&mut self) {
        let retires = self.shared.retires(self.core);
        if retires == (self.duty != Duty::Active) {
            return;
        }
        self.duty = match retires {
            true => Duty::Retired,
            false => Duty::Active,
        };
        // A thread that looks for a worker to wake passes this one by. It is not yet counted as
        // one that it could wake, or is not any more.
        self.core.is_retired.store(retires, Ordering::Relaxed);
    }

    /// Does for a retired worker what `run_queued` does for others: it runs the pinned tasks, until
    /// there are none or it is time to poll. Returns `true` if it is time to poll.
    #[cold]
    pub(super) fn run_pinned(&mut self) -> bool {
        if self.search.is_on {
            // A thread has woken it to search, which had seen it before it was retired. That thread
            // relies on a searcher: leave the count as one that has found something.
            self.found();
        }
        while self.tick - self.last_poll < self.interval {
            self.hand_on();
            let job = match self.shared.task_groups.table() {
                Some(groups) => self.next_in_groups(groups),
                None => self.local.pinned().take_of(GroupId::DEFAULT).map(Job::Task),
            };
            let Some(job) = job else {
                return self.interval == 0;
            };
            self.execute(job);
            if self.shared.is_stopping() {
                return false;
            }
        }
        true
    }

    /// Hands on what is queued here and any worker may run.
    fn hand_on(&mut self) {
        self.local.release();
        let mut has_any = false;
        while let Some(job) = self.local.deque.pop() {
            self.shared.queues.push(job);
            has_any = true;
        }
        if has_any {
            self.shared.wake_for_injected();
        }
    }
}
