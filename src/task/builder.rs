//! The builder of tasks with names.

use std::future::Future;

use crate::{
    engine::handle::Handle,
    metrics::spawned::Spawned,
    task::{
        blocking::spawn_blocking_as,
        join::JoinHandle,
        local::{set::LocalSet, spawn_local_as},
        spawn_as,
    },
};

/// Spawns tasks with names, by which stall reports, task dumps, traces and the live page list them.
///
/// A task without a name has the name of its future's type. Blocking jobs take a name, too, as in
/// tokio, but nothing lists them.
///
/// ```
/// use tourbillon::task;
///
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// let runtime = tourbillon::Runtime::new()?;
/// task::Builder::new()
///     .name("reaper of idle sessions")
///     .spawn_on(std::future::pending::<()>(), runtime.handle());
/// // Lists `task 1 reaper of idle sessions (spawned at …): waiting` once it has begun to wait.
/// print!("{}", runtime.handle().dump());
/// # Ok(())
/// # }
/// ```
///
/// The methods have the names of tokio's, which return an `io::Result`. Here they do not fail.
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "a builder does nothing until it spawns a task"]
pub struct Builder<'a> {
    name: Option<&'a str>,
}

impl<'a> Builder<'a> {
    /// Returns a builder of tasks without a name.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name of the tasks.
    ///
    /// Give the same name to all tasks that do the same: the runtime keeps each name that it has
    /// seen, together with the place of the call, until the process ends. It takes names of up to
    /// 1 MiB in all. Further ones are ignored, as if they had not been given.
    pub fn name(&self, name: &'a str) -> Self {
        Self { name: Some(name) }
    }

    /// Spawns a task; see [`task::spawn`](crate::task::spawn).
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        spawn_as(self.spawned(), future)
    }

    /// Spawns a task on the runtime of a handle; see [`Handle::spawn`].
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.spawn_as(self.spawned(), future)
    }

    /// Spawns a task that stays on this thread; see
    /// [`task::spawn_local`](crate::task::spawn_local).
    ///
    /// # Panics
    ///
    /// Panics outside of a local context.
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_local_as(self.spawned(), future)
    }

    /// Spawns a task in a set; see [`LocalSet::spawn_local`].
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, set: &LocalSet) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        set.spawn_local_as(self.spawned(), future)
    }

    /// Spawns a task that one worker runs, and no other; see
    /// [`task::spawn_pinned`](crate::task::spawn_pinned). tokio has no such method.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(self, create: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        Handle::current().spawn_pinned_as(self.spawned(), create)
    }

    /// Runs `f`, which may block, on a thread for blocking jobs; see
    /// [`task::spawn_blocking`](crate::task::spawn_blocking).
    ///
    /// If the system gives no thread, the join handle returns the error.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime.
    #[track_caller]
    pub fn spawn_blocking<F, R>(self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        spawn_blocking_as(self.spawned(), f)
    }

    /// Runs `f`, which may block, on a thread for blocking jobs of a handle's runtime; see
    /// [`Handle::spawn_blocking`].
    ///
    /// If the system gives no thread, the join handle returns the error.
    #[track_caller]
    pub fn spawn_blocking_on<F, R>(self, f: F, handle: &Handle) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        handle.spawn_blocking_as(self.spawned(), f)
    }

    /// Returns the place of the caller with the name.
    #[track_caller]
    fn spawned(&self) -> Spawned {
        // No function pointers: the place of their caller is in the standard library.
        match self.name {
            Some(name) => Spawned::named(name),
            None => Spawned::here(),
        }
    }
}
