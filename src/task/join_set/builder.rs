//! The builder of tasks with names in a set, with tokio's signatures: for the package in the folder
//! `crates/tokio` alone.

use std::{future::Future, io};

use super::JoinSet;
use crate::{
    engine::handle::Handle,
    task::{abort::AbortHandle, builder::Builder as TaskBuilder, local::set::LocalSet},
};

/// Spawns a task in a set, and gives it a name. No method fails: if the system gives no thread for a
/// blocking job, the set returns the error.
#[derive(Debug)]
#[must_use = "a builder does nothing until it spawns a task"]
pub struct Builder<'a, T> {
    set: &'a mut JoinSet<T>,
    builder: TaskBuilder<'a>,
}

impl<T: 'static> JoinSet<T> {
    /// Returns a builder of a task in this set.
    #[doc(hidden)]
    pub fn build_task(&mut self) -> Builder<'_, T> {
        Builder {
            set: self,
            builder: TaskBuilder::new(),
        }
    }
}

impl<'a, T: 'static> Builder<'a, T> {
    /// Sets the name of the task.
    pub fn name(self, name: &'a str) -> Self {
        let builder = self.builder.name(name);
        Self { builder, ..self }
    }

    /// See [`JoinSet::spawn`].
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        Ok(self.set.insert(self.builder.spawn(future)))
    }

    /// See [`JoinSet::spawn_on`].
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        Ok(self.set.insert(self.builder.spawn_on(future, handle)))
    }

    /// See [`JoinSet::spawn_blocking`].
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(self, f: F) -> io::Result<AbortHandle>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        Ok(self.set.insert(self.builder.spawn_blocking(f)))
    }

    /// See [`JoinSet::spawn_blocking_on`].
    #[track_caller]
    pub fn spawn_blocking_on<F>(self, f: F, handle: &Handle) -> io::Result<AbortHandle>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        Ok(self.set.insert(self.builder.spawn_blocking_on(f, handle)))
    }

    /// See [`JoinSet::spawn_local`].
    ///
    /// # Panics
    ///
    /// Panics outside of a local context.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + 'static,
    {
        Ok(self.set.insert(self.builder.spawn_local(future)))
    }

    /// See [`JoinSet::spawn_local_on`].
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, set: &LocalSet) -> io::Result<AbortHandle>
    where
        F: Future<Output = T> + 'static,
    {
        Ok(self.set.insert(self.builder.spawn_local_on(future, set)))
    }
}
