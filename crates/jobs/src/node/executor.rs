//! The runtime of a node's user, on which handlers run.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tourbillon::{Handle, task::JoinHandle};

/// A runtime of Tourbillon's or of tokio's.
pub(super) enum Executor {
    Tourbillon(Handle),
    #[cfg(feature = "tokio")]
    Tokio(tokio::runtime::Handle),
}

impl Executor {
    /// Returns the runtime that the calling thread is in.
    #[track_caller]
    pub(super) fn current() -> Self {
        if let Ok(handle) = Handle::try_current() {
            return Self::Tourbillon(handle);
        }
        #[cfg(feature = "tokio")]
        if let Ok(handle) = tokio::runtime::Handle::try_current() {
            return Self::Tokio(handle);
        }
        panic!(
            "this thread is in no runtime, on which handlers could run: start the node in one of \
             Tourbillon, or in one of tokio with the feature `tokio`"
        )
    }

    /// Spawns a task, which goes on if the result is dropped.
    pub(super) fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self {
            Self::Tourbillon(handle) => Task::Tourbillon(handle.spawn(future)),
            #[cfg(feature = "tokio")]
            Self::Tokio(handle) => Task::Tokio(handle.spawn(future)),
        }
    }

    /// Returns whether the runtime shuts down, as far as it tells. tokio's does not: it only drops
    /// its tasks, as soon as it has a thread for that.
    pub(super) fn is_shut_down(&self) -> bool {
        match self {
            Self::Tourbillon(handle) => handle.is_shut_down(),
            #[cfg(feature = "tokio")]
            Self::Tokio(_) => false,
        }
    }
}

/// A task of an [`Executor`]. Its result is `None` if the runtime has ended before.
pub(super) enum Task<T> {
    Tourbillon(JoinHandle<T>),
    #[cfg(feature = "tokio")]
    Tokio(tokio::task::JoinHandle<T>),
}

impl<T> Future for Task<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        match self.get_mut() {
            Self::Tourbillon(task) => Pin::new(task).poll(cx).map(Result::ok),
            #[cfg(feature = "tokio")]
            Self::Tokio(task) => Pin::new(task).poll(cx).map(Result::ok),
        }
    }
}
