//! The queues of a worker, as its own thread knows them.

use std::{
    cell::Cell,
    ptr::{self, NonNull},
    sync::Arc,
};

use crossbeam::deque::{self, Steal};
use tourbillon_shards::{Due, NextSlot, Notice, RawPointer};
use tourbillon_tasks::Runnable;

use super::{
    clocks::ClockCore,
    core::{Core, WorkerShard},
    pace::Pace,
    rescue,
    shared::Shared,
};
use crate::task::{LocalQueue, TaskMeta};

/// A task that is ready to be polled.
pub(crate) type TaskJob = Runnable<TaskMeta>;

/// A task in a LIFO slot.
pub(super) struct NextTask(TaskJob);

impl From<NextTask> for TaskJob {
    fn from(next: NextTask) -> Self {
        next.0
    }
}

// SAFETY: the two are those of a task, which is Send.
unsafe impl RawPointer for NextTask {
    #[inline]
    fn into_raw(self) -> NonNull<()> {
        self.0.into_raw()
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller has it from `into_raw`, and passes it once.
        Self(unsafe { TaskJob::from_raw(raw) })
    }
}

/// What a deque holds.
pub(crate) enum Job {
    /// A task to poll.
    Task(TaskJob),
    /// A callback whose deadline has passed.
    Timer(Due<Core>),
    /// A callback that is to be told how its timer ended.
    Notice(Notice<Core>),
    /// The same two of a clock that is no worker's.
    ClockTimer(Due<ClockCore>),
    ClockNotice(Notice<ClockCore>),
    /// A callback that is not to be run, because its clock was set to after its deadline.
    Skipped(Due<ClockCore>),
}

impl Job {
    /// Ends what is not run any more: drops a task, drops or tells a callback.
    pub(super) fn end(self) {
        match self {
            // Dropping it cancels it.
            Job::Task(task) => drop(task),
            Job::Timer(due) => due.shutdown(),
            Job::ClockTimer(due) => due.shutdown(),
            Job::Skipped(due) => due.cancel(),
            Job::Notice(notice) => drop(notice),
            Job::ClockNotice(notice) => drop(notice),
        }
    }
}

impl From<Notice<Core>> for Job {
    fn from(notice: Notice<Core>) -> Self {
        Job::Notice(notice)
    }
}

impl From<Notice<ClockCore>> for Job {
    fn from(notice: Notice<ClockCore>) -> Self {
        Job::ClockNotice(notice)
    }
}

/// Where a task that became ready is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// In the LIFO slot: something woke it, and what that wrote is in the cache.
    Next,
    /// At the end of the deque: it is new, or it yielded.
    Last,
}

/// How often in a row the LIFO slot is preferred to the deque: two tasks that wake each other must
/// not starve the rest.
const LIFO_BUDGET: u32 = 3;

/// The thread-bound half of a worker.
pub(super) struct Local {
    pub(super) shard: Arc<WorkerShard>,
    pub(super) deque: deque::Worker<Job>,
    /// How often in a row the LIFO slot may still be preferred.
    lifo_left: Cell<u32>,
    /// Whether a pinned task is next, before what the deque has.
    pinned_turn: Cell<bool>,
    /// Set while the worker wakes what its timers and sockets are ready for: all of it goes to the
    /// deque, in order, and a peer is woken once at the end, if at all.
    batching: Cell<bool>,
    /// The job-cost estimate.
    pub(super) pace: Pace,
    /// Set while the worker is in `block_in_place`.
    pub(super) in_place: Cell<bool>,
    /// Set where the LIFO slot is not used, since nobody looks into it: on a helper, and while a worker is
    /// in `block_in_place`.
    pub(super) shares: Cell<bool>,
}

impl Local {
    pub(super) fn new(shard: Arc<WorkerShard>, deque: deque::Worker<Job>) -> Self {
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

    pub(super) fn shared(&self) -> &Shared {
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
    pub(super) fn home(&self) -> Option<&Arc<WorkerShard>> {
        (!self.shard.owner().is_helper).then_some(&self.shard)
    }

    pub(super) fn is_of(&self, shared: &Shared) -> bool {
        ptr::eq(self.shared(), shared)
    }

    /// Queues a task that became ready on this worker: to run next, or to run last.
    pub(super) fn schedule(&self, task: TaskJob, order: Order) {
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
    pub(super) fn release(&self) {
        if let Some(task) = self.take_next() {
            self.deque.push(Job::Task(task));
        }
    }

    /// The next job of this worker's own.
    #[inline]
    pub(super) fn next(&self) -> Option<Job> {
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
    pub(super) fn next_for_any(&self) -> Option<Job> {
        self.deque.pop().or_else(|| self.take_next().map(Job::Task))
    }

    /// The tasks that this worker alone may run.
    fn pinned(&self) -> &LocalQueue {
        &self.shard.owner().pinned
    }

    /// Runs `f`, which wakes and queues many; then wakes one peer if there is more than this worker
    /// begins with, and it is worth it.
    pub(super) fn batch(&self, f: impl FnOnce()) {
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
            && rescue::is_watched(&shared.config, shared.workers.load().len())
    }

    /// Whether the LIFO slot is taken.
    fn has_next(&self) -> bool {
        !self.lifo().is_empty()
    }

    /// Whether there is a job of this worker's own.
    pub(super) fn has_jobs(&self) -> bool {
        self.has_queued() || self.has_next() || self.pinned().has_work()
    }

    /// Whether there is something that a peer could steal.
    pub(super) fn has_queued(&self) -> bool {
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

/// Steals until the answer is definite.
pub(super) fn steal<T>(mut attempt: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match attempt() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
