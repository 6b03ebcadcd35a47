//! The queues of a worker, as its own thread knows them.

use std::{
    cell::Cell,
    ptr::{self},
    sync::Arc,
};

use crossbeam::deque::{self};
use tourbillon_shards::NextSlot;

use crate::engine::{
    context::current,
    core::WorkerShard,
    job::{Job, NextTask, Order, TaskJob},
    shared::Shared,
    task_core::local_queue::LocalQueue,
    worker::pace::Pace,
};

thread_local! {
    /// The worker that this thread is, if it is one. Set for as long as its `Local` lives.
    static LOCAL: Cell<*const Local> = const { Cell::new(ptr::null()) };
}

/// Makes the calling thread the worker of `local` while `f` runs, in place of the one that it is, if it is one.
pub(crate) fn with_worker<R>(local: &Local, f: impl FnOnce() -> R) -> R {
    struct Reset(*const Local, *const ());
    impl Drop for Reset {
        fn drop(&mut self) {
            LOCAL.set(self.0);
            current::replace(self.1);
        }
    }
    let core = current::replace(local.shard.owner());
    let _reset = Reset(LOCAL.get(), core);
    LOCAL.set(ptr::from_ref(local));
    f()
}

/// Runs `f` on this thread's worker, if it is one.
#[inline]
pub(crate) fn with_local<R>(f: impl FnOnce(Option<&Local>) -> R) -> R {
    let local = LOCAL.try_with(Cell::get).unwrap_or(ptr::null());
    // SAFETY: the pointer is set only while the `Local`, on this thread's stack, is borrowed by
    // `with_worker`.
    f(unsafe { local.as_ref() })
}

/// Whether the calling thread is one of this runtime's workers or helpers.
pub(crate) fn is_thread_of(shared: &Shared) -> bool {
    with_local(|local| local.is_some_and(|local| local.is_of(shared)))
}

/// The number of the calling thread, if it is one of this runtime's workers, and no helper.
#[inline]
pub(crate) fn worker_number(shared: &Shared) -> Option<usize> {
    with_local(|local| {
        let core = local.filter(|local| local.is_of(shared))?.shard.owner();
        (!core.is_helper).then_some(core.index)
    })
}

/// How often in a row the LIFO slot is preferred to the deque: two tasks that wake each other must
/// not starve the rest.
const LIFO_BUDGET: u32 = 3;

/// The thread-bound half of a worker.
pub(crate) struct Local {
    pub(crate) shard: Arc<WorkerShard>,
    pub(crate) deque: deque::Worker<Job>,
    /// How often in a row the LIFO slot may still be preferred.
    lifo_left: Cell<u32>,
    /// Whether a pinned task is next, before what the deque has.
    pinned_turn: Cell<bool>,
    /// Set while the worker wakes what its timers and sockets are ready for: all of it goes to the
    /// deque, in order, and a peer is woken once at the end, if at all.
    batching: Cell<bool>,
    /// The job-cost estimate.
    pub(crate) pace: Pace,
    /// Set while the worker is in `block_in_place`.
    pub(crate) in_place: Cell<bool>,
    /// Set where the LIFO slot is not used, since nobody looks into it: on a helper, and while a worker is
    /// in `block_in_place`.
    pub(crate) shares: Cell<bool>,
}

impl Local {
    pub(crate) fn new(shard: Arc<WorkerShard>, deque: deque::Worker<Job>) -> Self {
        let core = shard.owner();
        let shares = Cell::new(core.is_helper);
        if !core.is_helper {
            core.pinned.bind();
        }
        Self {
            shard,
            deque,
            lifo_left: Cell::new(LIFO_BUDGET),
            pinned_turn: Cell::new(false),
            batching: Cell::new(false),
            pace: Pace::default(),
            in_place: Cell::new(false),
            shares,
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shard.owner().shared
    }

    /// The LIFO slot: the task that was woken last, which runs next, since what wakes it is still in
    /// the cache. Peers leave it alone unless this worker is stuck; spawned tasks do not come here.
    #[inline]
    fn lifo(&self) -> &NextSlot<NextTask> {
        &self.shard.owner().next
    }

    fn take_next(&self) -> Option<TaskJob> {
        self.lifo().take().map(TaskJob::from)
    }

    /// Where the timers, sockets and tasks of this thread go; a helper's go to any worker.
    pub(crate) fn home(&self) -> Option<&Arc<WorkerShard>> {
        (!self.shard.owner().is_helper).then_some(&self.shard)
    }

    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        ptr::eq(self.shared(), shared)
    }

    /// Queues a task that became ready on this worker: to run next, or to run last.
    pub(crate) fn schedule(&self, task: TaskJob, order: Order) {
        let to_deque = match order {
            Order::Last => Some(task),
            Order::Next if self.batching.get() || self.shares.get() => Some(task),
            Order::Next => self.lifo().put(NextTask(task)).map(TaskJob::from),
        };
        if let Some(task) = to_deque {
            self.deque.push(Job::Task(task));
            if !self.batching.get() {
                self.shared().wake_one();
            }
        }
    }

    /// Gives up the LIFO slot, for a worker that leaves.
    pub(crate) fn release(&self) {
        if let Some(task) = self.take_next() {
            self.deque.push(Job::Task(task));
        }
    }

    /// The next job of this worker's own.
    #[inline]
    pub(crate) fn next(&self) -> Option<Job> {
        if self.lifo_left.get() > 0 {
            if let Some(task) = self.take_next() {
                self.lifo_left.set(self.lifo_left.get() - 1);
                return Some(Job::Task(task));
            }
        }
        self.lifo_left.set(LIFO_BUDGET);
        if self.pinned().is_used() {
            self.next_by_turns()
        } else {
            self.next_for_any()
        }
    }

    /// A task that this worker alone may run, or another job. (Apart from [`next`](Local::next), which is
    /// inlined where there are no such tasks.)
    #[inline(never)]
    fn next_by_turns(&self) -> Option<Job> {
        let pinned = self.pinned();
        if self.pinned_turn.replace(!self.pinned_turn.get()) {
            if let Some(task) = pinned.take() {
                // Nobody was woken for what this worker was about to run.
                self.share(1);
                return Some(Job::Task(task));
            }
        }
        let own = self.next_for_any();
        own.or_else(|| pinned.take().map(Job::Task))
    }

    /// The same, but for the tasks that this worker alone may run.
    pub(crate) fn next_for_any(&self) -> Option<Job> {
        self.deque.pop().or_else(|| self.take_next().map(Job::Task))
    }

    /// The tasks that this worker alone may run.
    fn pinned(&self) -> &LocalQueue<TaskJob> {
        &self.shard.owner().pinned
    }

    /// Runs `f`, which wakes and queues many; then wakes one peer if there is more than this worker
    /// begins with, and it is worth it.
    pub(crate) fn batch(&self, f: impl FnOnce()) {
        struct Done<'a>(&'a Cell<bool>);
        impl Drop for Done<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        self.batching.set(true);
        let done = Done(&self.batching);
        f();
        drop(done);
        self.share(usize::from(self.has_next()) + usize::from(self.pinned().has_work()));
    }

    /// Wakes a peer for what is queued behind so many other jobs, unless nothing is, or it is not worth it.
    fn share(&self, others: usize) {
        let queued = self.deque.len();
        let jobs = queued + others;
        if queued > 0 && jobs > 1 && !(self.pace.soon_over(jobs) && self.is_looked_after()) {
            self.shared().wake_one();
        }
    }

    /// Whether somebody is called if this worker does not come back, who then steals what it has.
    fn is_looked_after(&self) -> bool {
        let core = self.shard.owner();
        let shared = &core.shared;
        !core.is_helper
            && !shared.clock.was_paused()
            && shared.config.is_watched(shared.workers.load().len())
    }

    /// Whether the LIFO slot is taken.
    fn has_next(&self) -> bool {
        !self.lifo().is_empty()
    }

    /// Whether there is a job of this worker's own.
    pub(crate) fn has_jobs(&self) -> bool {
        self.has_queued() || self.has_next() || self.pinned().has_work()
    }

    /// Whether there is something that a peer could steal.
    pub(crate) fn has_queued(&self) -> bool {
        !self.deque.is_empty()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // A hook may have woken a task after the worker gave up its slot. A task refers to the worker of
        // its home, in whose slot it would stay for ever; what is in the deque, the last worker ends.
        self.release();
    }
}
