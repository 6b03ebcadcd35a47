//! Waiting for a task.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use async_task::FallibleTask;

use super::{Panic, Product, TaskMeta, budget, registry::Key};
use crate::runtime::WorkerShard;

/// A future for the result of a task: see [`spawn`](crate::spawn).
///
/// Dropping it detaches the task, which runs on.
pub struct JoinHandle<T>(
    /// None: the task was refused by a runtime that had been shut down, or its result is taken.
    Option<Joined<T>>,
);

struct Joined<T> {
    task: FallibleTask<Product<T>, TaskMeta>,
    key: Key,
    home: Arc<WorkerShard>,
    /// Its number in the queue of the blocking threads, if it is for one of them.
    queued: Option<u64>,
}

impl<T> JoinHandle<T> {
    pub(super) fn new(
        task: FallibleTask<Product<T>, TaskMeta>,
        key: Key,
        home: Arc<WorkerShard>,
        queued: Option<u64>,
    ) -> Self {
        Self(Some(Joined {
            task,
            key,
            home,
            queued,
        }))
    }

    pub(crate) fn cancelled() -> Self {
        Self(None)
    }

    /// Ends the task at its next `.await`: its future is dropped on a worker, and joining it gives
    /// an error that [is cancelled](JoinError::is_cancelled). One that has ended has ended. What was
    /// given to [`spawn_blocking`](super::spawn_blocking) is dropped likewise if it has not begun, and
    /// runs on if it has.
    pub fn abort(&self) {
        if let Some(Joined {
            key, home, queued, ..
        }) = &self.0
        {
            let shared = &home.owner().shared;
            shared.tasks.abort(*key);
            if let Some(number) = queued {
                shared.blocking.abort(shared, *number);
            }
        }
    }

    /// Whether the task has ended: returned, panicked, or been aborted.
    pub fn is_finished(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|joined| joined.task.is_finished())
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// # Panics
    ///
    /// Never; polled again after it was ready, it says that the task was cancelled.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(joined) = &mut self.0 else {
            return Poll::Ready(Err(JoinError(Cause::Cancelled)));
        };
        ready!(budget::check(cx));
        let output = ready!(Pin::new(&mut joined.task).poll(cx));
        budget::spend();
        self.0 = None;
        // One that was cancelled has none.
        let (result, refusal) = output.map_or((None, None), |mut product| {
            (product.result.take(), product.refusal.take())
        });
        Poll::Ready(match result {
            Some(Ok(output)) => Ok(output),
            Some(Err(panic)) => Err(JoinError(Cause::Panic(Mutex::new(panic)))),
            None => Err(JoinError(refusal.map_or(Cause::Cancelled, Cause::Refused))),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(joined) = self.0.take() {
            joined.task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

/// Why a task has no result.
pub struct JoinError(Cause);

enum Cause {
    Cancelled,
    /// In a mutex, so that the error is Sync; a panic need not be.
    Panic(Mutex<Panic>),
    /// There was no thread to run it on.
    Refused(io::Error),
}

impl JoinError {
    /// Whether the task was aborted, or ended by the shutdown of its runtime.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.0, Cause::Cancelled)
    }

    /// Whether it was given to [`spawn_blocking`](super::spawn_blocking), and dropped because the
    /// system gave no thread to run it on. The [source](Error::source) is what the system said.
    pub fn is_refused(&self) -> bool {
        matches!(self.0, Cause::Refused(_))
    }

    /// Whether the task panicked.
    pub fn is_panic(&self) -> bool {
        matches!(self.0, Cause::Panic(_))
    }

    /// What the task panicked with, to go on with [`std::panic::resume_unwind`].
    ///
    /// # Panics
    ///
    /// If the task did not panic; see [`try_into_panic`](JoinError::try_into_panic).
    #[track_caller]
    pub fn into_panic(self) -> Box<dyn std::any::Any + Send + 'static> {
        self.try_into_panic()
            .expect("the task was cancelled or refused: it did not panic")
    }

    /// What the task panicked with.
    ///
    /// # Errors
    ///
    /// This error, if the task did not panic.
    pub fn try_into_panic(self) -> Result<Box<dyn std::any::Any + Send + 'static>, Self> {
        match self.0 {
            Cause::Panic(panic) => Ok(panic
                .into_inner()
                .unwrap_or_else(std::sync::PoisonError::into_inner)),
            Cause::Cancelled | Cause::Refused(_) => Err(self),
        }
    }

    /// The panic's message, if it has one.
    fn message(&self) -> Option<String> {
        let Cause::Panic(panic) = &self.0 else {
            return None;
        };
        let panic = crate::runtime::lock(panic);
        panic
            .downcast_ref::<&str>()
            .map(|message| (*message).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.0, self.message()) {
            (Cause::Cancelled, _) => f.write_str("task was cancelled"),
            (Cause::Panic(_), Some(message)) => write!(f, "task panicked with message {message:?}"),
            (Cause::Panic(_), None) => f.write_str("task panicked"),
            (Cause::Refused(source), _) => {
                write!(f, "the system gave no thread for the task: {source}")
            }
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Cause::Cancelled => f.write_str("JoinError::Cancelled"),
            Cause::Panic(_) => write!(f, "JoinError::Panic({:?})", self.message()),
            Cause::Refused(source) => write!(f, "JoinError::Refused({source:?})"),
        }
    }
}

impl Error for JoinError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.0 {
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
