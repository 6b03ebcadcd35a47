//! Handles to a task's result, and the error of a task that has none.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tourbillon_tasks::{Join, Panic};

use crate::{
    engine::task_core::{id::Id, meta::TaskMeta},
    sys::sync::Mutex,
    task::abort::{AbortHandle, Target, abort},
    util::budget,
};

/// A future for the result of a task: see [`spawn`](crate::task::spawn).
///
/// Its output is the task's output, or a [`JoinError`] if the task was aborted or panicked.
/// Dropping the handle detaches the task, which runs on.
pub struct JoinHandle<T> {
    id: Id,
    /// `None` if a runtime that was shut down refused the task, or if the result was taken.
    joined: Option<Joined<T>>,
}

struct Joined<T> {
    task: Join<T, TaskMeta>,
    /// The job's number in the queue of the blocking threads, if the task is a blocking job.
    queued: Option<u64>,
}

impl<T> JoinHandle<T> {
    pub(crate) fn new(task: Join<T, TaskMeta>) -> Self {
        let (id, queued) = (task.metadata().id(), None);
        let joined = Some(Joined { task, queued });
        Self { id, joined }
    }

    /// Records the job's number in the queue of the blocking threads.
    pub(crate) fn queued(mut self, number: Option<u64>) -> Self {
        if let Some(joined) = &mut self.joined {
            joined.queued = number;
        }
        self
    }

    pub(crate) fn cancelled() -> Self {
        Self {
            id: Id::fresh(),
            joined: None,
        }
    }

    /// Aborts the task: its future is dropped at the next `.await`, on a worker.
    ///
    /// Awaiting the handle then returns an error for which
    /// [`is_cancelled`](JoinError::is_cancelled) holds. If a destructor panics meanwhile, the error
    /// is a [panic](JoinError::is_panic), as in tokio. Does nothing if the task has ended.
    ///
    /// A job of [`spawn_blocking`](crate::task::blocking::spawn_blocking) is dropped if it has not
    /// begun, and runs on if it has.
    pub fn abort(&self) {
        if let Some(joined) = &self.joined {
            abort(&joined.task, joined.queued);
        }
    }

    /// Returns a handle that can abort the task. It may outlive this one.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let task = tourbillon::spawn(std::future::pending::<()>());
    /// let abort = task.abort_handle();
    /// tourbillon::spawn(async move { abort.abort() });
    /// assert!(task.await.unwrap_err().is_cancelled());
    /// # });
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        let target = self.joined.as_ref().map(|joined| Target {
            task: joined.task.reference(),
            queued: joined.queued,
        });
        AbortHandle::new(self.id, target)
    }

    /// Returns whether the task has ended: returned, panicked, or been aborted and dropped.
    pub fn is_finished(&self) -> bool {
        self.joined
            .as_ref()
            .is_none_or(|joined| joined.task.has_ended())
    }

    /// Returns the number of the task. It stays valid after the task has ended.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let (a, b) = (tourbillon::spawn(async {}), tourbillon::spawn(async {}));
    /// assert_ne!(a.id(), b.id());
    /// # });
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }

    /// Waits until the task has ended. Neither checks nor spends the budget.
    pub(crate) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.joined {
            Some(joined) => joined.task.poll_ended(cx),
            None => Poll::Ready(()),
        }
    }

    /// Returns the result of a task that has ended.
    pub(crate) fn into_result(mut self) -> Result<T, JoinError> {
        self.take_result()
    }

    /// Takes the result of a task that has ended. From then on the handle reports "cancelled".
    fn take_result(&mut self) -> Result<T, JoinError> {
        let id = self.id;
        let Some(Joined { task, .. }) = self.joined.take() else {
            return Err(JoinError::cancelled(id));
        };
        // Read the metadata first: it is freed with the handle.
        let refusal = task.metadata().refusal();
        match (task.into_output(), refusal) {
            (Some(Ok(output)), _) => Ok(output),
            (Some(Err(panic)), _) => Err(JoinError::panicked(id, panic)),
            (None, Some(why)) => Err(JoinError::refused(id, why)),
            (None, None) => Err(JoinError::cancelled(id)),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Polls for the task's result. After the result was taken, a further poll returns a
    /// "cancelled" error. It never panics.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.joined.is_some() {
            // A task that joins many ended tasks must let others run now and then.
            ready!(budget::check(cx));
            ready!(self.poll_ended(cx));
            budget::spend();
        }
        Poll::Ready(self.take_result())
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id)
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

/// The error of a task that has no result: it was cancelled, it panicked, or the system had no
/// thread to run it on.
pub struct JoinError {
    id: Id,
    cause: Cause,
}

enum Cause {
    Cancelled,
    /// In a mutex, so that the error is Sync even if the panic payload is not.
    Panic(Mutex<Panic>),
    /// The system gave no thread for the job.
    Refused(io::Error),
}

impl JoinError {
    pub(crate) fn cancelled(id: Id) -> Self {
        let cause = Cause::Cancelled;
        Self { id, cause }
    }

    pub(crate) fn panicked(id: Id, panic: Panic) -> Self {
        let cause = Cause::Panic(Mutex::new(panic));
        Self { id, cause }
    }

    pub(crate) fn refused(id: Id, why: io::Error) -> Self {
        let cause = Cause::Refused(why);
        Self { id, cause }
    }

    /// Returns the number of the task.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let task = tourbillon::spawn(std::future::pending::<()>());
    /// let id = task.id();
    /// task.abort();
    /// assert_eq!(task.await.unwrap_err().id(), id);
    /// # });
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }

    /// Returns whether the task was aborted, or ended by the shutdown of its runtime.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.cause, Cause::Cancelled)
    }

    /// Returns whether the task is a job of
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) that was dropped because the
    /// system gave no thread to run it on. The [source](Error::source) is the system's error.
    pub fn is_refused(&self) -> bool {
        matches!(self.cause, Cause::Refused(_))
    }

    /// Returns whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.cause, Cause::Panic(_))
    }

    /// Returns the payload of the task's panic, for example for [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// Panics if the task did not panic; see [`try_into_panic`](JoinError::try_into_panic).
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn std::any::Any + Send + 'static> {
        self.try_into_panic()
            .expect("the task was cancelled or refused: it did not panic")
    }

    /// Returns the payload of the task's panic, or this error if the task did not panic.
    ///
    /// # Errors
    ///
    /// Returns this error unchanged if the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn std::any::Any + Send + 'static>, Self> {
        match self.cause {
            Cause::Panic(panic) => Ok(panic
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner)),
            cause @ (Cause::Cancelled | Cause::Refused(_)) => Err(Self { cause, ..self }),
        }
    }

    /// Returns the panic's message, if the payload is a string.
    fn message(&self) -> Option<String> {
        let Cause::Panic(panic) = &self.cause else {
            return None;
        };
        let panic = crate::util::lock::lock(panic);
        panic
            // The payload of `panic!` is one of these two types. That of `panic_any` may be any
            // other.
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match (&self.cause, self.message()) {
            (Cause::Cancelled, _) => write!(f, "task {id} was cancelled"),
            (Cause::Panic(_), Some(message)) => {
                write!(f, "task {id} panicked with message {message:?}")
            }
            (Cause::Panic(_), None) => write!(f, "task {id} panicked"),
            (Cause::Refused(source), _) => {
                write!(f, "the system gave no thread for task {id}: {source}")
            }
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match (&self.cause, self.message()) {
            (Cause::Cancelled, _) => write!(f, "JoinError::Cancelled({id:?})"),
            (Cause::Panic(_), Some(message)) => {
                write!(f, "JoinError::Panic({id:?}, {message:?}, ...)")
            }
            (Cause::Panic(_), None) => write!(f, "JoinError::Panic({id:?}, ...)"),
            (Cause::Refused(source), _) => write!(f, "JoinError::Refused({id:?}, {source:?})"),
        }
    }
}

impl Error for JoinError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.cause {
            Cause::Refused(source) => Some(source),
            _ => None,
        }
    }
}

impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> Self {
        io::Error::other(error)
    }
}
