//! Handles that abort a task without waiting for it.

use std::fmt;

use tourbillon_tasks::{Task, TaskRef};

use crate::engine::task_core::{id::Id, meta::TaskMeta};

/// The task that a handle aborts.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) task: TaskRef<TaskMeta>,
    /// The job's number in the queue of the blocking threads, if the task is a blocking job.
    pub(crate) queued: Option<u64>,
}

/// Cancels a task, and takes it out of the queue of the blocking threads if it stands there under
/// the number `queued`. Does nothing if the task has ended.
pub(crate) fn abort(task: &Task<TaskMeta>, queued: Option<u64>) {
    task.cancel();
    // A blocking job that no thread has begun is still queued. Take it out, so that it is dropped
    // now.
    if let (Some(number), Some(shared)) = (queued, task.metadata().home().shared()) {
        shared.blocking.abort(shared, number);
    }
}

/// Aborts a task without waiting for it. See
/// [`JoinHandle::abort_handle`](crate::JoinHandle::abort_handle) and
/// [`JoinSet`](crate::task::join_set::JoinSet).
///
/// It may be cloned and used from any thread, also after the [`JoinHandle`](crate::JoinHandle) was
/// dropped or awaited. Dropping it does not affect the task. Like a `JoinHandle`, it keeps the
/// memory block of the task and the descriptors of its worker, but neither the task's future nor
/// its result.
///
/// ```
/// use std::{future::pending, time::Duration};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let abort = tourbillon::spawn(pending::<()>()).abort_handle();
/// assert!(!abort.is_finished());
/// abort.abort();
/// while !abort.is_finished() {
///     tourbillon::time::sleep(Duration::from_millis(1)).await;
/// }
/// # });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    id: Id,
    /// `None` if the task had ended before.
    target: Option<Target>,
}

impl AbortHandle {
    pub(crate) fn new(id: Id, target: Option<Target>) -> Self {
        Self { id, target }
    }

    /// Aborts the task: its future is dropped at the next `.await`, as by
    /// [`JoinHandle::abort`](crate::JoinHandle::abort).
    ///
    /// Does nothing if the task has ended. A job of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) is dropped if it has not begun,
    /// and runs on if it has.
    ///
    /// ```
    /// use tourbillon::task::JoinSet;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = JoinSet::new();
    /// let abort = set.spawn(std::future::pending::<()>());
    /// abort.abort();
    /// assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
    /// # });
    /// ```
    pub fn abort(&self) {
        if let Some(target) = &self.target {
            abort(&target.task, target.queued);
        }
    }

    /// Returns whether the task has ended: returned, panicked, or been aborted and dropped.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let task = tourbillon::spawn(async {});
    /// let abort = task.abort_handle();
    /// task.await.unwrap();
    /// assert!(abort.is_finished());
    /// # });
    /// ```
    pub fn is_finished(&self) -> bool {
        self.target
            .as_ref()
            .is_none_or(|target| target.task.has_ended())
    }

    /// Returns the number of the task. It stays valid after the task has ended.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let task = tourbillon::spawn(async {});
    /// assert_eq!(task.abort_handle().id(), task.id());
    /// # });
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("id", &self.id)
            .field("is_finished", &self.is_finished())
            .finish()
    }
}
