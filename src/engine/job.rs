//! The jobs of workers: tasks that are ready, timers that are due, and outcomes to deliver.

use std::ptr::NonNull;

use crossbeam::deque::Steal;
use tourbillon_shards::{Due, Notice, Orphan, Orphans, Owner, RawPointer};
use tourbillon_tasks::Runnable;

use crate::engine::{clocks::owner::ClockCore, core::Core, task_core::meta::TaskMeta};

/// A task that is ready to be polled.
pub(crate) type TaskJob = Runnable<TaskMeta>;

/// A task in a LIFO slot.
pub(crate) struct NextTask(pub(super) TaskJob);

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
    pub(crate) fn end(self) {
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

/// Timers of a closed shard, of whatever clock.
pub(crate) trait Ending: Send {
    /// Ends one of them; false if there was none. A callback that has to be told is queued by `told`.
    /// Panics as a destructor or a waker does.
    fn end_next(&mut self, told: &dyn Fn(Job)) -> bool;
}

impl<O: Owner> Ending for Orphans<O>
where
    Job: From<Notice<O>>,
{
    fn end_next(&mut self, told: &dyn Fn(Job)) -> bool {
        match Orphans::end_next(self) {
            None => return false,
            Some(Orphan::Ended) => {}
            Some(Orphan::Told(notice)) => told(notice.into()),
        }
        true
    }
}

/// Steals until the answer is definite.
pub(crate) fn steal<T>(mut attempt: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match attempt() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
