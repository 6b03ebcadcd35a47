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

use std::{ops::Range, sync::Arc};

use crate::{
    engine::{
        core::{Core, WorkerShard},
        groups::GroupId,
        job::Job,
        shared::Shared,
        worker::Worker,
    },
    sys::sync::atomic::{AtomicUsize, Ordering},
};

/// What a worker does for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It runs any work.
    Active,
    /// It leaves to others what any worker may run.
    Retired,
    /// It runs any work while the worker of this index is stuck in the job of this number.
    StandsIn { index: usize, job: u64 },
}

/// The duty of a worker, as other threads see it.
#[derive(Debug, Default)]
pub(crate) struct PublishedDuty(AtomicUsize);

impl PublishedDuty {
    const ACTIVE: usize = 0;
    const RETIRED: usize = 1;
    /// From here on: the index of the worker for which this one stands in.
    const STANDS_IN: usize = 2;

    fn set(&self, duty: Duty) {
        let word = match duty {
            Duty::Active => Self::ACTIVE,
            Duty::Retired => Self::RETIRED,
            Duty::StandsIn { index, .. } => Self::STANDS_IN + index,
        };
        if self.0.load(Ordering::Relaxed) != word {
            self.0.store(word, Ordering::Relaxed);
        }
    }

    /// Returns whether the worker is retired. A thread that looks for a worker to wake passes such a
    /// one by.
    #[inline]
    pub(crate) fn is_retired(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::RETIRED
    }

    /// Returns the index of the worker for which this one stands in.
    fn stands_in_for(&self) -> Option<usize> {
        self.0.load(Ordering::Relaxed).checked_sub(Self::STANDS_IN)
    }
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
        if self.retired_workers() == 0 {
            return 0;
        }
        let sleeps = |worker: &&Arc<WorkerShard>| {
            worker.owner().duty.is_retired() && !worker.parker().is_awake()
        };
        self.workers.load().iter().filter(sleeps).count()
    }

    /// Wakes the workers whose duty has changed as the limit was set: they may be asleep in the
    /// other state.
    pub(super) fn wake_for_limit(&self, changed: Range<usize>) {
        let workers = self.workers.load();
        let end = changed.end.min(workers.len());
        // Worker 0 always takes part.
        let begin = changed.start.clamp(1, end.max(1));
        workers
            .get(begin..end)
            .into_iter()
            .flatten()
            .for_each(|worker| _ = worker.wake());
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
        } else if !self.still_stands_in() {
            self.set_duty(Duty::Retired);
        }
    }

    /// Returns whether this worker stands in for one that is still stuck in the same job.
    fn still_stands_in(&self) -> bool {
        let Duty::StandsIn { index, job } = self.duty else {
            return false;
        };
        let workers = self.shared.workers.load();
        let is_stuck = |worker: &Arc<WorkerShard>| {
            let core = worker.owner();
            core.is_at(job) && core.watchdog.looks.stand_in.get() == Some(self.core.index)
        };
        !self.shared.limit.retires(index) && workers.get(index).is_some_and(is_stuck)
    }

    /// Changes the duty of the worker, which is awake.
    fn set_duty(&mut self, duty: Duty) {
        if let Duty::StandsIn { index, .. } = std::mem::replace(&mut self.duty, duty) {
            if let Some(worker) = self.shared.workers.load().get(index) {
                worker
                    .owner()
                    .watchdog
                    .looks
                    .stand_in
                    .leave(self.core.index);
            }
        }
        self.core.duty.set(duty);
    }

    /// Has this worker, if it is retired, take part in place of `stuck`: a worker that takes part
    /// and is stuck in a job, or one that stands in for such a worker. One worker stands in for
    /// another.
    pub(crate) fn stand_in_for(&mut self, stuck: &Core) {
        if !self.is_retired() {
            return;
        }
        // 1. Who of those that the limit lets take part is stuck?
        let index = stuck.duty.stands_in_for().unwrap_or(stuck.index);
        if self.shared.limit.retires(index) {
            return;
        }
        let workers = self.shared.workers.load();
        let Some(root) = workers.get(index).map(|it| it.owner()) else {
            return;
        };
        let job = root.watchdog.watch.begun();
        if !root.is_at(job) {
            return;
        }
        // 2. Does another one stand in already, which is well?
        let stand_in = &root.watchdog.looks.stand_in;
        let before = stand_in.get();
        let is_well = |other: usize| {
            let other = workers.get(other).map(|it| it.owner());
            other
                .is_some_and(|it| it.index != stuck.index && it.duty.stands_in_for() == Some(index))
        };
        if before.is_some_and(is_well) || !stand_in.replace(before, self.core.index) {
            return;
        }
        self.set_duty(Duty::StandsIn { index, job });
    }

    /// Leaves the count of searchers, for a retired worker that a thread has woken to search, as it
    /// had seen the worker before it was retired. That thread relies on a searcher, so this worker
    /// leaves as one that has found something.
    pub(super) fn leave_search(&mut self) {
        if self.search.is_on {
            self.found();
        }
    }

    /// Returns the next job of a retired worker: a pinned task. Hands on what else is queued.
    #[cold]
    pub(super) fn next_pinned(&mut self) -> Option<Job> {
        self.hand_on();
        match self.shared.task_groups.table() {
            Some(groups) => self.next_in_groups(groups),
            None => self.local.pinned().take_of(GroupId::DEFAULT).map(Job::Task),
        }
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
