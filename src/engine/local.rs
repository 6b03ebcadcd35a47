//! The queues of a worker, as its own thread sees them: LIFO slot, deque, and pinned tasks.

use std::{
    cell::Cell,
    ptr::{self},
    sync::{
        Arc,
        atomic::{Ordering, compiler_fence},
    },
};

use crossbeam::deque::{self};
use tourbillon_sched::NextSlot;

use crate::{
    clock::looked,
    engine::{
        context::current,
        core::WorkerShard,
        groups::GroupId,
        job::{Job, NextTask, Order, TaskJob},
        paused::state::Blocked,
        shared::Shared,
        task_core::local_queue::LocalQueue,
        worker::{Kept, pace::Pace},
    },
};

thread_local! {
    /// The worker of this thread. Null if there is none. Set while [`with_worker`] runs.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Runs `f` with the calling thread as the worker of `local`. A worker that the thread was before
/// is restored afterwards.
pub(crate) fn with_worker<R>(local: &Local, f: impl FnOnce() -> R) -> R {
    struct Reset(*const Local, *const ());
    impl Drop for Reset {
        fn drop(&mut self) {
            LOCAL.set(self.0);
            looked::forget();
            // A signal handler on this thread may look at it, also while the rest is torn down.
            compiler_fence(Ordering::SeqCst);
            current::replace(self.1);
        }
    }
    // There are two variables: by `current`, one comparison tells whether this thread is a given
    // worker.
    let core = current::replace(local.shard.owner());
    let _reset = Reset(LOCAL.get(), core);
    looked::forget();
    // A signal handler on this thread that finds the pointer finds what it points to, too.
    compiler_fence(Ordering::SeqCst);
    // Set last, and reset by the guard even if `f` panics: the pointer never outlives the borrow.
    LOCAL.set(ptr::from_ref(local));
    f()
}

/// Runs `f` with the worker of this thread, or with `None`.
#[inline]
pub(crate) fn with_local<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    let local = LOCAL.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the pointer is set only while the `Local`, on this thread's stack, is borrowed by
    // `with_worker`.
    f(unsafe { local.as_ref() })
}

/// Runs `f` with the worker of this thread, or with `None` if that is of another runtime than
/// `shared`, or there is none.
#[inline]
pub(crate) fn with_local_of<R>(shared: &Shared, f: impl FnOnce(Option<&Local>) -> R) -> R {
    with_local(|local| f(local.filter(|local| ptr::eq(local.shared(), shared))))
}

/// Returns whether the calling thread is a worker or helper of this runtime.
pub(crate) fn is_thread_of(shared: &Shared) -> bool {
    with_local_of(shared, |local| local.is_some())
}

/// Returns the index of the calling thread if it is a worker of this runtime, and not a helper.
#[inline]
pub(crate) fn worker_number(shared: &Shared) -> Option<usize> {
    with_local_of(shared, |local| local?.worker_number())
}

/// Returns the index of the worker that the calling thread is, from zero, or `None` on any other
/// thread.
///
/// It is the index that [metrics](crate::metrics::RuntimeMetrics) have. In
/// [`block_on`](crate::runtime::Runtime::block_on) of a current-thread runtime, the thread is
/// worker 0. Blocking threads, the helpers of stuck workers, and other threads in `block_on` of a
/// multi-thread runtime have no index. A worker that calls that `block_on` in
/// [`block_in_place`](crate::task::blocking::block_in_place) keeps its own index. A task may move
/// to another worker each time it waits.
///
/// ```
/// use tourbillon::runtime::worker_index;
///
/// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
/// let index = runtime.block_on(async { tourbillon::spawn(async { worker_index() }).await });
/// assert!(index.unwrap().is_some_and(|index| index < 2));
/// assert_eq!(worker_index(), None);
/// ```
pub fn worker_index() -> Option<usize> {
    with_local(|local| local?.worker_number())
}

/// How many times in a row the LIFO slot comes before the deque. The limit keeps two tasks that
/// wake each other from starving the deque.
const LIFO_BUDGET: u32 = 3;

/// The part of a worker that only its own thread uses.
pub(crate) struct Local {
    pub(crate) shard: Arc<WorkerShard>,
    pub(crate) deque: deque::Worker<Job>,
    /// How many more times in a row the LIFO slot comes before the deque.
    lifo_left: Cell<u32>,
    /// Whether the next job is a pinned task, before the deque.
    pinned_turn: Cell<bool>,
    /// Set while the worker wakes the tasks of a batch of timers or sockets. All of these go to the
    /// deque, in order, or to the queue of their group. At the end at most one peer is woken for the
    /// deque, and one for the groups.
    batching: Cell<bool>,
    /// Set if the present batch has pushed to the queue of a group.
    batched_for_groups: Cell<bool>,
    /// The job-cost estimate.
    pub(crate) pace: Pace,
    /// What the worker of a current-thread runtime keeps between two calls of `block_on`.
    pub(crate) kept: Cell<Option<Kept>>,
    /// The state of the last `block_on` of a current-thread runtime, for the next one.
    pub(crate) last_root: Cell<Option<Arc<Blocked>>>,
    /// Set while the worker is in `block_in_place`.
    pub(crate) in_place: Cell<bool>,
    /// Set if the present job was in `block_in_place`. The worker takes it where the job has ended,
    /// if the runtime has groups.
    pub(crate) was_in_place: Cell<bool>,
    /// Set if the LIFO slot is not used: on a helper and while a worker is in `block_in_place`,
    /// because no rescue would empty it, and during the turn of another group than the default one.
    shares: Cell<bool>,
    /// Set during the turn of another group than the default one.
    other_group: Cell<bool>,
}

impl Local {
    pub(crate) fn new(shard: Arc<WorkerShard>, deque: deque::Worker<Job>) -> Self {
        let core = shard.owner();
        // No rescue empties the slot of a helper, so what it wakes goes to its deque.
        let shares = Cell::new(core.has_no_next_slot());
        if !core.is_helper {
            // From here on, only this thread takes pinned tasks.
            core.pinned.bind();
        }
        Self {
            shard,
            deque,
            lifo_left: Cell::new(LIFO_BUDGET),
            pinned_turn: Cell::new(false),
            batching: Cell::new(false),
            batched_for_groups: Cell::new(false),
            pace: Pace::default(),
            kept: Cell::new(None),
            last_root: Cell::new(None),
            in_place: Cell::new(false),
            was_in_place: Cell::new(false),
            shares,
            other_group: Cell::new(false),
        }
    }

    /// Returns the index of this worker, or `None` for a helper.
    fn worker_number(&self) -> Option<usize> {
        let core = self.shard.owner();
        (!core.is_helper).then_some(core.index)
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shard.owner().shared
    }

    /// Returns the LIFO slot. It holds the task that was woken last, which runs next, because the
    /// data of the wake-up is still in the cache. Peers take it only if this worker is stuck.
    /// Spawned tasks do not go here.
    #[inline]
    fn lifo(&self) -> &NextSlot<NextTask> {
        &self.shard.owner().next
    }

    fn take_next(&self) -> Option<TaskJob> {
        self.lifo().take().map(TaskJob::from)
    }

    /// Returns the shard for the timers, sockets and tasks of this thread. A helper has none: they
    /// go to any worker.
    pub(crate) fn home(&self) -> Option<&Arc<WorkerShard>> {
        (!self.shard.owner().is_helper).then_some(&self.shard)
    }

    /// Queues a task that is ready, in the LIFO slot or at the end of the deque.
    pub(crate) fn schedule(&self, task: TaskJob, order: Order) {
        #[cfg(all(feature = "facade", tokio_unstable))]
        self.shard.owner().recorder.unstable.schedules.add_alone(1);
        let to_deque = match order {
            Order::Last => Some(task),
            // In a batch all tasks keep their order, and peers can steal each of them.
            Order::Next if self.batching.get() || self.shares.get() => Some(task),
            // The task that was in the slot before makes room, and goes to the deque.
            Order::Next => self.lifo().put(NextTask(task)).map(TaskJob::from),
        };
        if let Some(task) = to_deque {
            self.deque.push(Job::Task(task));
            // At the end of a batch, `share` wakes a peer once.
            if !self.batching.get() {
                self.shared().wake_one();
            }
        }
    }

    /// Queues a job in the deque, or in the queue of its group.
    pub(crate) fn queue(&self, job: Job) {
        if let Some(job) = self.shared().unless_grouped(job) {
            self.deque.push(job);
        }
    }

    /// Sets whether the worker is in `block_in_place`. From then on the LIFO slot is not used.
    pub(crate) fn set_in_place(&self, in_place: bool) {
        self.in_place.set(in_place);
        self.was_in_place.set(true);
        self.set_shares();
    }

    /// Sets whether it is the turn of another group than the default one. A job of that may be
    /// long, so what the default group has here goes to the deque, from which peers take it.
    pub(crate) fn set_other_group(&self, is_other: bool) {
        self.other_group.set(is_other);
        self.set_shares();
        if is_other {
            self.release();
            if self.has_queued() {
                // No peer was woken for these jobs, if this worker was about to run them.
                self.shared().wake_one();
            }
        }
    }

    fn set_shares(&self) {
        let without = self.shard.owner().has_no_next_slot();
        self.shares
            .set(self.in_place.get() || self.other_group.get() || without);
    }

    /// Empties the LIFO slot into the deque, for a worker that leaves.
    pub(crate) fn release(&self) {
        if let Some(task) = self.take_next() {
            self.deque.push(Job::Task(task));
        }
    }

    /// Returns this worker's next job, without a look at other threads' queues.
    #[inline]
    pub(crate) fn next(&self) -> Option<Job> {
        // The LIFO slot comes first, but not more than `LIFO_BUDGET` times in a row.
        if self.lifo_left.get() > 0 {
            if let Some(task) = self.take_next() {
                self.lifo_left.set(self.lifo_left.get() - 1);
                return Some(Job::Task(task));
            }
        }
        // The slot is empty, or has had its turns. Now comes the deque, and the slot's turns begin
        // anew.
        self.lifo_left.set(LIFO_BUDGET);
        if self.pinned().is_used() {
            self.next_by_turns()
        } else {
            self.next_for_any()
        }
    }

    /// Returns a pinned task of the default group or another job, in turns. It is apart from
    /// [`next`](Local::next), so that `next` can be inlined where there are no pinned tasks.
    #[inline(never)]
    fn next_by_turns(&self) -> Option<Job> {
        let pinned = self.pinned();
        // Take turns, so that neither queue starves the other.
        if self.pinned_turn.replace(!self.pinned_turn.get()) {
            if let Some(task) = pinned.take_of(GroupId::DEFAULT) {
                // No peer was woken for the jobs in the deque, because this worker was about to run
                // them.
                self.share(1);
                return Some(Job::Task(task));
            }
        }
        // The other queue's turn. If that is empty, a pinned task runs all the same.
        let own = self.next_for_any();
        own.or_else(|| pinned.take_of(GroupId::DEFAULT).map(Job::Task))
    }

    /// Returns the next job of the deque or the LIFO slot: jobs that any worker may run.
    // Always inlined. Otherwise the compiler's decision depends on the rest of the crate.
    #[inline(always)]
    pub(crate) fn next_for_any(&self) -> Option<Job> {
        self.deque.pop().or_else(|| self.take_next().map(Job::Task))
    }

    /// Returns the queue of the tasks that only this worker may run.
    pub(crate) fn pinned(&self) -> &LocalQueue<TaskJob> {
        &self.shard.owner().pinned
    }

    /// Runs `f`, which wakes many tasks. Afterwards it wakes one peer if that is worth it.
    pub(crate) fn batch(&self, f: impl FnOnce()) {
        struct Done<'a>(&'a Local);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.batching.set(false);
                if self.0.batched_for_groups.take() {
                    self.0.shared().wake_for_injected();
                }
            }
        }
        // The guard ends the batch if a waker panics.
        self.batching.set(true);
        let done = Done(self);
        f();
        drop(done);
        // The slot and the pinned tasks keep this worker busy as well, so they count when it
        // decides whether a peer is worth waking.
        self.share(usize::from(self.has_next()) + usize::from(self.pinned().has_work()));
    }

    /// Returns whether this worker is in a batch, which it notes to have pushed to the queue of a
    /// group.
    pub(crate) fn batches_for_groups(&self) -> bool {
        if self.batching.get() {
            self.batched_for_groups.set(true);
        }
        self.batching.get()
    }

    /// Wakes a peer for the jobs in the deque, if there are enough of them. `others` is the number
    /// of jobs in other queues of this worker.
    fn share(&self, others: usize) {
        if self.is_to_share(others) {
            self.shared().wake_one();
        }
    }

    /// Returns whether the jobs in the deque are worth waking a peer. `others` is the number of
    /// further jobs that this worker is about to run.
    pub(crate) fn is_to_share(&self, others: usize) -> bool {
        let queued = self.deque.len();
        let jobs = queued + others;
        // A single job is run by this worker itself. Short jobs are over before a peer could help,
        // but that is an estimate: rely on it only if a peer comes when this worker gets stuck.
        queued > 0 && jobs > 1 && !(self.pace.soon_over(jobs) && self.is_watched_by_peers())
    }

    /// Returns whether a peer is called if this worker gets stuck. The peer then steals its jobs.
    fn is_watched_by_peers(&self) -> bool {
        let core = self.shard.owner();
        let shared = &core.shared;
        !core.is_helper && shared.is_watched(shared.workers.load().len())
    }

    /// Returns whether the LIFO slot holds a task.
    fn has_next(&self) -> bool {
        !self.lifo().is_empty()
    }

    /// Returns whether this worker has a job in its own queues.
    pub(crate) fn has_jobs(&self) -> bool {
        self.has_shared() || self.pinned().has_work()
    }

    /// Returns whether this worker has a job in its own queues that any worker may run.
    pub(crate) fn has_shared(&self) -> bool {
        self.has_queued() || self.has_next()
    }

    /// Returns how many jobs are in the deque and among the pinned tasks. On a current-thread
    /// runtime, a task that has yielded is the last of them.
    pub(crate) fn queued(&self) -> usize {
        self.deque.len() + self.pinned().own_len()
    }

    /// Returns whether this worker has a job that a peer could steal.
    pub(crate) fn has_queued(&self) -> bool {
        !self.deque.is_empty()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // A hook may have woken a task after the worker emptied its slot. The task refers to this
        // worker, and the worker to the slot: left there, the task would leak. The last worker to
        // leave ends what is in the deque.
        self.release();
    }
}
