//! The jobs of workers: tasks that are ready, timers that are due, and outcomes to deliver.

use std::ptr::NonNull;

use tourbillon_sched::RawPointer;
use tourbillon_shards::{Due, Notice};
use tourbillon_tasks::Runnable;

use crate::engine::{
    core::Core,
    groups::GroupId,
    task_core::{local_queue::Grouped, meta::TaskMeta},
};

/// A task that is ready to be polled.
pub(crate) type TaskJob = Runnable<TaskMeta>;

impl Grouped for TaskJob {
    #[inline]
    fn group(&self) -> GroupId {
        self.metadata().home().group()
    }
}

/// A task in a LIFO slot.
pub(crate) struct NextTask(pub(super) TaskJob);

impl From<NextTask> for TaskJob {
    fn from(next: NextTask) -> Self {
        next.0
    }
}

// SAFETY: both methods are those of `TaskJob`, which is Send.
unsafe impl RawPointer for NextTask {
    #[inline]
    fn into_raw(self) -> NonNull<()> {
        self.0.into_raw()
    }

    #[inline]
    unsafe fn from_raw(raw: NonNull<()>) -> Self {
        // SAFETY: the caller guarantees that `raw` is from `into_raw` and is used once.
        Self(unsafe { TaskJob::from_raw(raw) })
    }
}

/// A job in a worker's deque.
pub(crate) enum Job {
    /// A task to poll.
    Task(TaskJob),
    /// A callback whose deadline has passed.
    Timer(Due<Core>),
    /// A callback that takes an outcome, to be run with it.
    Notice(Notice<Core>),
    /// A callback of another clock, whose deadline has passed on that clock.
    ClockTimer(Due<Core>),
    /// A callback that is not run, because its clock was set forward past its deadline.
    Skipped(Due<Core>),
}

impl Job {
    /// Returns the group that the job belongs to.
    pub(crate) fn group(&self) -> GroupId {
        match self {
            Job::Task(task) => task.group(),
            Job::Timer(due) | Job::ClockTimer(due) | Job::Skipped(due) => {
                GroupId::of_tag(due.tag())
            }
            Job::Notice(notice) => GroupId::of_tag(notice.tag()),
        }
    }

    /// Ends a job without running it: drops a task, and drops a callback or gives it its outcome.
    pub(crate) fn end(self) {
        match self {
            // Dropping a task job cancels the task.
            Job::Task(task) => drop(task),
            Job::Timer(due) | Job::ClockTimer(due) => due.shutdown(),
            // The step of its clock has decided its outcome before the shutdown.
            Job::Skipped(due) => due.cancel(),
            Job::Notice(notice) => drop(notice),
        }
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
