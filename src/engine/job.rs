//! The jobs of workers: tasks that are ready, timers that are due, and outcomes to deliver.

use std::ptr::NonNull;

use tourbillon_sched::RawPointer;
use tourbillon_shards::{DrainedTimer, DrainedTimers, Due, Notice, Owner};
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
    /// A due callback of a clock's shard, which belongs to no worker.
    ClockTimer(Due<ClockCore>),
    /// A callback of a clock's shard that takes an outcome, to be run with it.
    ClockNotice(Notice<ClockCore>),
    /// A callback that is not run, because its clock was set forward past its deadline.
    Skipped(Due<ClockCore>),
}

impl Job {
    /// Ends a job without running it: drops a task, and drops a callback or gives it its outcome.
    pub(crate) fn end(self) {
        match self {
            // Dropping a task job cancels the task.
            Job::Task(task) => drop(task),
            Job::Timer(due) => due.shutdown(),
            Job::ClockTimer(due) => due.shutdown(),
            // The step of its clock has decided its outcome before the shutdown.
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

/// A batch of timers of a closed shard, whatever its clock.
pub(crate) trait Ending: Send {
    /// Ends one timer. Returns `false` if there is none left. If its callback takes an outcome,
    /// passes that job to `deliver`. Panics if a destructor or waker panics.
    fn end_next(&mut self, deliver: &dyn Fn(Job)) -> bool;
}

impl<O: Owner> Ending for DrainedTimers<O>
where
    Job: From<Notice<O>>,
{
    fn end_next(&mut self, deliver: &dyn Fn(Job)) -> bool {
        match DrainedTimers::end_next(self) {
            None => return false,
            Some(DrainedTimer::Ended) => {}
            Some(DrainedTimer::Notice(notice)) => deliver(notice.into()),
        }
        true
    }
}
