//! Aborting a task that somebody else waits for, or nobody.

use std::fmt;

use tourbillon_tasks::{Task, TaskRef};

use crate::{engine::task_core::meta::TaskMeta, task::id::Id};

/// What there is to abort.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) task: TaskRef<TaskMeta>,
    /// Its number in the queue of the blocking threads, if it is for one of them.
    pub(crate) queued: Option<u64>,
}

/// Ends a task at its next `.await`, if it has not ended. `queued` is its number in the queue of
/// the blocking threads, if it is for one of them.
pub(crate) fn abort(task: &Task<TaskMeta>, queued: Option<u64>) {
    task.cancel();
    if let (Some(number), Some(shared)) = (queued, task.metadata().home().shared()) {
        shared.blocking.abort(shared, number);
    }
}

/// Aborts a task, and does not wait for it; from
/// [`JoinHandle::abort_handle`](crate::JoinHandle::abort_handle), or of a task of a
/// [`JoinSet`](crate::task::join_set::JoinSet).
///
/// It may be cloned, and used from any thread, also when the [`JoinHandle`](crate::JoinHandle) has been
/// dropped or awaited. Dropping it does nothing to the task. Kept, it keeps neither the task's future nor its
/// result, but, as a `JoinHandle` does, the memory that these were in and the descriptors of its worker.
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
    /// None: the task had ended before.
    target: Option<Target>,
}

impl AbortHandle {
    pub(crate) fn new(id: Id, target: Option<Target>) -> Self {
        Self { id, target }
    }

    /// Ends the task at its next `.await`, as [`JoinHandle::abort`](crate::JoinHandle::abort) does. One
    /// that has ended has ended. What was given to [`spawn_blocking`](crate::task::blocking::spawn_blocking) is dropped
    /// if it has not begun, and runs on if it has.
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

    /// Whether the task has ended: returned, panicked, or been aborted and dropped.
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

    /// The number of the task, which it keeps when it has ended.
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
