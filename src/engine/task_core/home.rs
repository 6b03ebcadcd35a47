//! The home of a task: the worker or `LocalSet` in whose registry it is. It decides which threads
//! may run the task.

use std::{hint::assert_unchecked, mem, mem::ManuallyDrop, ptr, ptr::NonNull, sync::Arc};

use tourbillon_shards as shards;
use tourbillon_tasks::Task;

use crate::engine::{
    context::{current::is_current, group},
    core::{Core, WorkerShard},
    groups::{GroupId, MOST},
    job::TaskJob,
    local::worker_number,
    shared::Shared,
    task_core::{
        local_queue::Pushed,
        meta::TaskMeta,
        registry::{CountOn, Place, Registry},
        set::Set,
    },
};

/// The home of a task: a counted reference to a worker or to a set.
///
/// Each task has one, so it is one word: an address whose low bits, which alignment leaves zero,
/// hold a tag, and for a worker the number of the task's group.
pub(crate) struct Home(NonNull<()>);

/// Tag: a worker, in whose runtime any worker runs the task.
const WORKER: usize = 0;
/// Tag: a worker that alone runs the task.
const PINNED: usize = 1;
/// Tag: a set, which runs the task on one thread, where it is polled.
const SET: usize = 2;
const TAGS: usize = 3;
/// Where the number of the group begins.
const GROUP: u32 = TAGS.count_ones();
/// The tag and the number of the group.
const BITS: usize = MOST * (TAGS + 1) - 1;

const _: () = assert!(align_of::<WorkerShard>() > BITS && align_of::<Set>() > BITS);

// SAFETY: a home is a counted reference to one of two types, both of which are Send and Sync.
unsafe impl Send for Home {}
// SAFETY: as above.
unsafe impl Sync for Home {}
const _: () = {
    const fn is_send_and_sync<T: Send + Sync>() {}
    is_send_and_sync::<shards::Home<Core>>();
    is_send_and_sync::<Arc<Set>>();
};

/// What a home refers to.
enum Target<W, S> {
    Worker(W),
    Set(S),
}

impl Home {
    /// Returns a home for a task of this group that any worker runs, and that is in the registry of
    /// this worker.
    #[inline]
    pub(crate) fn worker(shard: &Arc<WorkerShard>, group: GroupId) -> Self {
        let tag = WORKER | group.index() << GROUP;
        let address = shards::Home::new(shard).into_raw();
        // SAFETY: it is the address of a `WorkerShard`, whose alignment is asserted above. By this
        // the compiler knows the tag, which the caller would otherwise look at.
        unsafe { assert_unchecked(address.addr().get() & BITS == 0) };
        Self::tagged(address.cast(), tag)
    }

    /// Returns a home for a task that only this worker runs.
    pub(crate) fn pinned(shard: &Arc<WorkerShard>) -> Self {
        Self::tagged(shards::Home::new(shard).into_raw().cast(), PINNED)
    }

    /// Returns a home for a task of this set.
    pub(crate) fn set(set: Arc<Set>) -> Self {
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

    /// Returns the group of the task. The tasks of a set are in the default group.
    #[inline]
    pub(crate) fn group(&self) -> GroupId {
        GroupId::new((self.0.addr().get() & BITS) >> GROUP)
    }

    /// Returns the home of a task that the calling thread spawns on this home: if it is pinned to a
    /// worker, it is in the group of the thread. A set has no group of its own.
    pub(crate) fn in_present_group(self) -> Self {
        let (PINNED, Some(shared)) = (self.tag(), self.shared()) else {
            return self;
        };
        let tag = PINNED | group::current(shared).index() << GROUP;
        match self.target() {
            Target::Set(_) => self,
            Target::Worker(shard) => {
                // The new home is the reference that this one was.
                mem::forget(self);
                Self::tagged(shard.cast(), tag)
            }
        }
    }

    /// Returns whether the task is in the default group, and any worker may run it.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        const { assert!(WORKER == 0) };
        self.0.addr().get() & BITS == 0
    }

    /// Returns the address without its tag, as a pointer of the type that the tag names.
    #[inline]
    fn target(&self) -> Target<NonNull<WorkerShard>, NonNull<Set>> {
        // SAFETY: without its tag the word is the address of an object, so it is not null.
        let address =
            unsafe { NonNull::new_unchecked(self.0.as_ptr().map_addr(|word| word & !BITS)) };
        if self.tag() == SET {
            Target::Set(address.cast())
        } else {
            Target::Worker(address.cast())
        }
    }

    #[inline]
    fn get(&self) -> Target<&WorkerShard, &Set> {
        match self.target() {
            // SAFETY: `self` holds a reference to the object, whose type the tag tells.
            Target::Worker(shard) => Target::Worker(unsafe { shard.as_ref() }),
            // SAFETY: as above.
            Target::Set(set) => Target::Set(unsafe { set.as_ref() }),
        }
    }

    /// Returns the counted reference that `self` is. The caller must not drop it.
    #[inline]
    fn reference(&self) -> Target<ManuallyDrop<shards::Home<Core>>, ManuallyDrop<Arc<Set>>> {
        match self.target() {
            Target::Worker(shard) => {
                // SAFETY: the address is from `into_raw` of this type, as the tag tells, and `self`
                // holds that reference.
                let shard = unsafe { shards::Home::from_raw(shard) };
                Target::Worker(ManuallyDrop::new(shard))
            }
            Target::Set(set) => {
                // SAFETY: as above.
                let set = unsafe { Arc::from_raw(set.as_ptr()) };
                Target::Set(ManuallyDrop::new(set))
            }
        }
    }

    /// Returns the worker, or `None` for a set.
    #[inline]
    pub(crate) fn core(&self) -> Option<&Core> {
        match self.get() {
            Target::Worker(shard) => Some(shard.owner()),
            Target::Set(_) => None,
        }
    }

    /// Returns the worker's runtime, or `None` for a set.
    #[inline]
    pub(crate) fn shared(&self) -> Option<&Arc<Shared>> {
        self.core().map(|core| &core.shared)
    }

    /// Returns whether the task is in the default group of this runtime, and any worker may run it.
    #[inline]
    pub(crate) fn is_plain_of(&self, shared: &Shared) -> bool {
        let core = || self.core();
        self.is_plain() && core().is_some_and(|core| ptr::eq(&*core.shared, shared))
    }

    /// Returns the registry that the task is in.
    #[inline]
    pub(crate) fn tasks(&self) -> &Registry<TaskMeta> {
        match self.get() {
            Target::Worker(shard) => &shard.owner().shared.tasks,
            Target::Set(set) => &set.tasks,
        }
    }

    /// Returns the list that the task is on from its creation. A task that any worker may run is on
    /// none.
    #[inline]
    pub(crate) fn initial_list(&self) -> Option<usize> {
        if self.tag() == WORKER {
            return None;
        }
        let core = self.core();
        Some(core.map_or(0, |core| self.tasks().list_of_pinned(core.index)))
    }

    /// Puts a task of this home, which is on no list, on the list of the worker that has polled it.
    /// Returns `None` if that list is closed.
    pub(crate) fn enter(&self, task: &Task<TaskMeta>) -> Option<Place> {
        let core = self.core()?;
        // List the task with the worker that has polled it: this lock is rarely contended.
        let list = worker_number(&core.shared).unwrap_or(core.index);
        core.shared.tasks.enter(list, task)
    }

    /// Returns on whose counter the calling thread counts a task of this home.
    #[inline]
    fn count_on(core: &Core) -> CountOn {
        // A helper is never a home.
        // The common case: the task is at home on this worker.
        if is_current(core) {
            return CountOn::Worker(core.index);
        }
        worker_number(&core.shared).map_or(CountOn::Other(core.index), CountOn::Worker)
    }

    /// Counts a new task.
    #[inline]
    pub(crate) fn count_begun(&self) {
        if let Some(core) = self.core() {
            core.shared.tasks.begin(Self::count_on(core));
        }
    }

    /// Counts a task that has ended.
    #[inline]
    pub(crate) fn count_ended(&self) {
        if let Some(core) = self.core() {
            core.shared.tasks.end(Self::count_on(core));
        }
    }

    /// Returns the number of the worker that alone runs the task, if there is one.
    pub(crate) fn pinned_to(&self) -> Option<usize> {
        let core = self.core().filter(|_| self.tag() == PINNED);
        core.map(|core| core.index)
    }

    /// Returns whether only one thread may run the task.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.tag() != WORKER
    }

    /// Counts a panic on the worker. A set has no counter.
    pub(crate) fn count_panic(&self) {
        if let Some(core) = self.core() {
            core.count(|counters| &counters.panics);
        }
    }

    /// Cancels all tasks of the runtime or of the set, if it was built so, after one has panicked.
    #[cfg(feature = "facade")]
    pub(crate) fn task_panicked(&self) {
        match self.get() {
            Target::Worker(shard) => shard.owner().shared.task_panicked(),
            Target::Set(set) => set.task_panicked(),
        }
    }

    /// Queues a local task that is ready, from any thread.
    pub(crate) fn schedule_local(&self, task: TaskJob) {
        match self.get() {
            Target::Worker(shard) => schedule_pinned(shard, task),
            Target::Set(set) => set.schedule(task),
        }
    }
}

/// Queues a task that is pinned to this worker and is ready, from any thread.
fn schedule_pinned(shard: &WorkerShard, task: TaskJob) {
    let pushed = shard.owner().pinned.push(task);
    #[cfg(all(feature = "facade", tokio_unstable))]
    crate::engine::facade::count_pinned(shard.owner(), pushed);
    if pushed == Pushed::Remote {
        // `wake` fences, and wakes the worker if it has announced that it sleeps. If it has not, it
        // checks the queue after its announcement.
        shard.wake();
    }
}

impl Clone for Home {
    #[inline]
    fn clone(&self) -> Self {
        match self.reference() {
            Target::Worker(shard) => _ = ManuallyDrop::clone(&shard),
            Target::Set(set) => _ = ManuallyDrop::clone(&set),
        }
        // The count was raised above; the forgotten clone is this reference.
        Self(self.0)
    }
}

impl Drop for Home {
    #[inline]
    fn drop(&mut self) {
        match self.reference() {
            Target::Worker(shard) => drop(ManuallyDrop::into_inner(shard)),
            Target::Set(set) => drop(ManuallyDrop::into_inner(set)),
        }
    }
}
