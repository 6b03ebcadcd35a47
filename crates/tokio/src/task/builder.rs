//! The builder of tasks with names.

use std::io;

use tourbillon::task::{self, JoinHandle, LocalSet};

use crate::runtime::Handle;

/// Spawns tasks with names, which Tourbillon's reports show. No method fails: if the system gives
/// no thread for a blocking job, its join handle returns the error.
#[derive(Debug, Default)]
#[must_use = "a builder does nothing until it spawns a task"]
pub struct Builder<'a>(task::Builder<'a>);

impl<'a> Builder<'a> {
    /// Returns a builder of tasks without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the task.
    pub fn name(&self, name: &'a str) -> Self {
        Self(self.0.name(name))
    }

    /// Starts a task.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Ok(self.0.spawn(future))
    }

    /// Starts a task on the runtime of a handle.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        Ok(self.0.spawn_on(future, handle))
    }

    /// Starts a task that stays on this thread.
    ///
    /// # Panics
    ///
    /// Panics outside of a local context.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: 'static> + 'static,
    {
        Ok(self.0.spawn_local(future))
    }

    /// Starts a task in a set.
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, set: &LocalSet) -> io::Result<JoinHandle<F::Output>>
    where
        F: Future<Output: 'static> + 'static,
    {
        Ok(self.0.spawn_local_on(future, set))
    }

    /// Runs a function on a thread that may block.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> io::Result<JoinHandle<R>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        Ok(self.0.spawn_blocking(f))
    }

    /// Runs a function on a thread that may block, of the runtime of a handle.
    #[track_caller]
    pub fn spawn_blocking_on<F, R>(self, f: F, handle: &Handle) -> io::Result<JoinHandle<R>>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        Ok(self.0.spawn_blocking_on(f, handle))
    }
}
