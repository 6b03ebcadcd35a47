//! How a worker is retired, while fewer workers than exist take part in the work.
//!
//! A retired worker keeps its thread, its shard and its epoll instance, since timers and sockets
//! stay where they are. It wakes up for these and for its pinned tasks. What these make ready, and
//! any other worker may run, it hands on. It searches for no work, and no thread wakes it for any:
//! while it sleeps, it counts as a helper in reserve. As such it is called when a worker is stuck.
//! Then it stands in for that worker, and takes part until that worker is back. The rules are in
//! "Retired workers" in `crates/sched/PROTOCOLS.md`.
//!
//! On a clock that was ever paused no worker is retired: there all must depend on the program.

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
    /// It leaves to others what any worker may run.
    Retired,
    /// It runs any work in place of the worker of this number, which is stuck in a job.
    StandsIn(usize),
}

impl Shared {
    /// Returns how many workers take part, of so many.
    #[inline]
    pub(crate) fn active_workers(&self, workers: usize) -> usize {
        match self.limit.get() {
            limit if limit < workers && !self.clock.was_paused() => limit,
            _ => workers,
        }
    }

    /// Returns how many workers do not take part.
    pub(crate) fn retired_workers(&self) -> usize {
        let workers = self.recorders.len();
        workers - self.active_workers(workers)
    }

    /// Returns how many jobs a worker runs until it takes one from the injector. While workers are
    /// retired, all that their timers and sockets make ready comes from there.
    pub(crate) fn injector_interval(&self) -> u32 {
        let interval = self.config.global_queue_interval;
        match self.retired_workers() {
            0 => interval,
            _ => interval.min(2),
        }
    }

    /// Returns how many retired workers sleep. A hint.
    pub(crate) fn retired_asleep(&self) -> usize {
        let sleeps = |worker: &&Arc<WorkerShard>| {
            worker.owner().is_retired.load(Ordering::Relaxed) && !worker.parker().is_awake()
        };
        self.workers.load().iter().filter(sleeps).count()
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
    /// Returns whether the worker leaves to others what any worker may run.
    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
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
        if !self.shared.retires(self.core) {
            self.set_duty(Duty::Active);
        } else if let Duty::StandsIn(index) = self.duty {
            let workers = self.shared.workers.load();
            if !workers
                .get(index)
                .is_some_and(|it| it.owner().is_still_at_job())
            {
                self.set_duty(Duty::Retired);
            }
        } else {
            self.set_duty(Duty::Retired);
        }
    }

    /// Changes the duty of the worker, which is awake.
    fn set_duty(&mut self, duty: Duty) {
        self.duty = duty;
        // While the flag is set, a thread that looks for a worker to wake passes this one by.
        let is_retired = &self.core.is_retired;
        if is_retired.load(Ordering::Relaxed) != self.is_retired() {
            is_retired.store(self.is_retired(), Ordering::Relaxed);
        }
    }

    /// Takes part in place of worker `index`, which is stuck in a job, if this worker is retired.
    pub(crate) fn stand_in(&mut self, index: usize) {
        if self.is_retired() {
            self.set_duty(Duty::StandsIn(index));
        }
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
