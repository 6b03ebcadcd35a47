//! Where a task belongs: who has it in the books, and who may run it.

use std::{ptr, sync::Arc, task::Waker};

use super::{
    local::{self, Set, Within},
    registry::{By, Place, Registry},
};
use crate::runtime::{
    Core, Shared, TaskJob, WorkerShard, contain, contained, inside, worker_number,
};

/// Where a task belongs.
#[derive(Clone)]
pub(crate) enum Home {
    /// In the books of a worker; any worker runs it.
    Worker(Arc<WorkerShard>),
    /// A worker, which alone runs it.
    Pinned(Arc<WorkerShard>),
    /// A set that runs where it is polled, on one thread.
    Set(Arc<Set>),
}

impl Home {
    #[inline]
    pub(crate) fn core(&self) -> Option<&Core> {
        match self {
            Self::Worker(shard) | Self::Pinned(shard) => Some(shard.owner()),
            Self::Set(_) => None,
        }
    }

    /// The runtime of a worker.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        self.core().map(|core| &core.shared)
    }

    /// Whether that is a worker of this runtime.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        self.core()
            .is_some_and(|core| ptr::eq(&*core.shared, shared))
    }

    /// The books in which the task is.
    #[inline]
    pub(super) fn tasks(&self) -> &Registry {
        match self {
            Self::Worker(shard) | Self::Pinned(shard) => &shard.owner().shared.tasks,
            Self::Set(set) => &set.tasks,
        }
    }

    /// The list of the books on which the task is from the beginning. One that any worker runs is on none.
    #[inline]
    pub(super) fn list_from_beginning(&self) -> Option<usize> {
        match self {
            Self::Worker(_) => None,
            Self::Pinned(shard) => Some(self.tasks().list_of_pinned(shard.owner().index)),
            Self::Set(_) => Some(0),
        }
    }

    /// Puts a task of this home, which was on no list, on that of the worker that has polled it, unless
    /// that is closed.
    pub(super) fn enter(&self, task: &Waker) -> Option<Place> {
        let core = self.core()?;
        let list = worker_number(&core.shared).unwrap_or(core.index);
        core.shared.tasks.enter(list, task)
    }

    /// Who counts a task.
    #[inline]
    fn by(core: &Core) -> By {
        worker_number(&core.shared).map_or(By::Other(core.index), By::Worker)
    }

    /// Counts a task that is made.
    #[inline]
    pub(super) fn count_begun(&self) {
        if let Some(core) = self.core() {
            core.shared.tasks.begin(Self::by(core));
        }
    }

    /// Counts a task that has ended.
    #[inline]
    pub(super) fn count_ended(&self) {
        if let Some(core) = self.core() {
            core.shared.tasks.end(Self::by(core));
        }
    }

    /// Runs what polls or drops the task's future.
    #[inline]
    pub(super) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        // One call of `f`, which is inlined here: a task that is no local one pays for a comparison.
        let _within = match self {
            Self::Worker(_) => None,
            Self::Pinned(_) | Self::Set(_) => Some(Within::begin(self)),
        };
        f()
    }

    /// Runs what drops the task's future, in the context of its runtime if the thread is in none.
    pub(super) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.core() {
            Some(core) => inside(core, f),
            None => f(),
        }
    }

    /// Runs foreign code; a panic goes no further.
    pub(super) fn contain(&self, f: impl FnOnce()) {
        match self.core() {
            Some(core) => contain(core, f),
            None => _ = contained(f),
        }
    }

    /// Counts a panic, if there is a runtime that counts.
    pub(super) fn count_panic(&self) {
        if let Some(core) = self.core() {
            core.count(|counters| &counters.panics);
        }
    }

    /// Queues a local task that became ready, from any thread.
    pub(super) fn schedule_local(&self, task: TaskJob) {
        match self {
            Self::Worker(shard) | Self::Pinned(shard) => local::schedule_pinned(shard, task),
            Self::Set(set) => set.schedule(task),
        }
    }
}
