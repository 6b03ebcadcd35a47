//! Where a task belongs: who has it in the books, and who may run it.

use std::{marker::PhantomData, mem::ManuallyDrop, ops::Deref, ptr, ptr::NonNull, sync::Arc};

use tourbillon_shards as shards;
use tourbillon_tasks::Task;

use super::{
    local::{self, Set, Within},
    meta::{Packed, TaskMeta},
    registry::{By, Place, Registry},
};
use crate::runtime::{Core, Shared, TaskJob, WorkerShard, inside, is_current, worker_number};

/// Where a task belongs: a counted reference to a worker, or to a set.
///
/// One word, since each task has one: an address, and below it, where addresses of what is aligned have
/// zeros, what is there.
pub(crate) struct Home(NonNull<()>);

/// In the books of a worker; any worker runs it.
const WORKER: usize = 0;
/// A worker, which alone runs it.
const PINNED: usize = 1;
/// A set that runs where it is polled, on one thread.
const SET: usize = 2;
const TAGS: usize = 3;

const _: () = assert!(align_of::<WorkerShard>() > TAGS && align_of::<Set>() > TAGS);

// SAFETY: it is a counted reference to the one or the other, both of which are Send and Sync.
unsafe impl Send for Home {}
// SAFETY: see above.
unsafe impl Sync for Home {}
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<shards::Home<Core>>();
    is_send_and_sync::<Arc<Set>>();
};

/// What stands behind a home.
enum Behind<W, S> {
    Worker(W),
    Set(S),
}

impl Home {
    /// In the books of a worker; any worker runs it.
    #[inline]
    pub(super) fn worker(shard: &Arc<WorkerShard>) -> Self {
        Self::tagged(shards::Home::new(shard).into_raw().cast(), WORKER)
    }

    /// A worker, which alone runs it.
    pub(super) fn pinned(shard: &Arc<WorkerShard>) -> Self {
        Self::tagged(shards::Home::new(shard).into_raw().cast(), PINNED)
    }

    /// A set that runs where it is polled, on one thread.
    pub(super) fn set(set: Arc<Set>) -> Self {
        let address = NonNull::new(Arc::into_raw(set).cast_mut()).expect("an Arc has an address");
        Self::tagged(address.cast(), SET)
    }

    #[inline]
    fn tagged(address: NonNull<()>, tag: usize) -> Self {
        Self(address.map_addr(|address| address | tag))
    }

    #[inline]
    fn tag(&self) -> usize {
        self.0.addr().get() & TAGS
    }

    /// The address, as `into_raw` gave it.
    #[inline]
    fn behind(&self) -> Behind<NonNull<WorkerShard>, NonNull<Set>> {
        // SAFETY: below the tag there was an address, and not null.
        let address =
            unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|word| word & !TAGS)) };
        if self.tag() == SET {
            Behind::Set(address.cast())
        } else {
            Behind::Worker(address.cast())
        }
    }

    #[inline]
    fn get(&self) -> Behind<&WorkerShard, &Set> {
        match self.behind() {
            // SAFETY: this has a reference to it, by the tag of this type.
            Behind::Worker(shard) => Behind::Worker(unsafe { shard.as_ref() }),
            // SAFETY: see above.
            Behind::Set(set) => Behind::Set(unsafe { set.as_ref() }),
        }
    }

    /// The reference that this is, which the caller does not give up.
    #[inline]
    fn reference(&self) -> Behind<ManuallyDrop<shards::Home<Core>>, ManuallyDrop<Arc<Set>>> {
        match self.behind() {
            Behind::Worker(shard) => {
                // SAFETY: it is from `into_raw`, of this type by its tag, and this has a reference to it.
                let shard = unsafe { shards::Home::from_raw(shard) };
                Behind::Worker(ManuallyDrop::new(shard))
            }
            Behind::Set(set) => {
                // SAFETY: see above.
                let set = unsafe { Arc::from_raw(set.as_ptr()) };
                Behind::Set(ManuallyDrop::new(set))
            }
        }
    }

    #[inline]
    pub(crate) fn core(&self) -> Option<&Core> {
        match self.get() {
            Behind::Worker(shard) => Some(shard.owner()),
            Behind::Set(_) => None,
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
        match self.get() {
            Behind::Worker(shard) => &shard.owner().shared.tasks,
            Behind::Set(set) => &set.tasks,
        }
    }

    /// The list of the books on which the task is from the beginning. One that any worker runs is on none.
    #[inline]
    pub(super) fn list_from_beginning(&self) -> Option<usize> {
        if self.tag() == WORKER {
            return None;
        }
        let core = self.core();
        Some(core.map_or(0, |core| self.tasks().list_of_pinned(core.index)))
    }

    /// Puts a task of this home, which was on no list, on that of the worker that has polled it, unless
    /// that is closed.
    pub(super) fn enter(&self, task: &Task<TaskMeta>) -> Option<Place> {
        let core = self.core()?;
        let list = worker_number(&core.shared).unwrap_or(core.index);
        core.shared.tasks.enter(list, task)
    }

    /// Who counts a task.
    #[inline]
    fn by(core: &Core) -> By {
        // Nobody's home is a helper.
        if is_current(core) {
            return By::Worker(core.index);
        }
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
        let _within = (self.tag() != WORKER).then(|| Within::begin(self));
        f()
    }

    /// Runs what drops the task's future, in the context of its runtime if the thread is in none.
    pub(super) fn inside<R>(&self, f: impl FnOnce() -> R) -> R {
        match self.core() {
            Some(core) => inside(core, f),
            None => f(),
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
        match self.get() {
            Behind::Worker(shard) => local::schedule_pinned(shard, task),
            Behind::Set(set) => set.schedule(task),
        }
    }
}

impl Clone for Home {
    #[inline]
    fn clone(&self) -> Self {
        match self.reference() {
            Behind::Worker(shard) => _ = ManuallyDrop::clone(&shard),
            Behind::Set(set) => _ = ManuallyDrop::clone(&set),
        }
        // The reference that was counted.
        Self(self.0)
    }
}

impl Drop for Home {
    #[inline]
    fn drop(&mut self) {
        match self.reference() {
            Behind::Worker(shard) => drop(ManuallyDrop::into_inner(shard)),
            Behind::Set(set) => drop(ManuallyDrop::into_inner(set)),
        }
    }
}

impl Packed<Home> {
    #[inline]
    pub(super) fn lend(&self) -> HomeRef<'_> {
        // SAFETY: what is read is there, wherever it stands; and it is not dropped.
        let home = unsafe { (&raw const self.0).read_unaligned() };
        HomeRef {
            home: ManuallyDrop::new(home),
            _of: PhantomData,
        }
    }
}

/// A home that is lent: the word, and not another reference.
pub(crate) struct HomeRef<'a> {
    home: ManuallyDrop<Home>,
    _of: PhantomData<&'a Packed<Home>>,
}

impl Deref for HomeRef<'_> {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}
