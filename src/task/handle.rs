//! Tasks by a handle.

use std::{future::Future, sync::Arc};

use crate::{
    engine::{
        context::placement::{Choice, with_any_home},
        handle::Handle,
    },
    error::SpawnError,
    metrics::spawned::Spawned,
    task,
    task::{blocking::spawn_blocking_at, join::JoinHandle, local::pinned::spawn_pinned_at},
};

impl Handle {
    /// Spawns a task on the runtime; see [`tourbillon::spawn`](crate::task::spawn).
    ///
    /// On a runtime that has been shut down the task is cancelled at once.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_as(Spawned::here(), future)
    }

    pub(crate) fn spawn_as<F>(&self, spawned: Spawned, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.with_home(Choice::InTurn, |home| task::spawn_at(home, future, spawned))
            .unwrap_or_else(|_| JoinHandle::cancelled())
    }

    /// Spawns a task that runs on one worker only. The runtime selects the worker, in turn.
    ///
    /// See [`task::spawn_pinned`](crate::task::local::pinned::spawn_pinned). On a runtime that has
    /// been shut down the task is cancelled at once.
    #[track_caller]
    pub fn spawn_pinned<F, Fut>(&self, create: F) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        self.spawn_pinned_as(Spawned::here(), create)
    }

    pub(crate) fn spawn_pinned_as<F, Fut>(
        &self,
        spawned: Spawned,
        create: F,
    ) -> JoinHandle<Fut::Output>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        if self.shared().is_current_thread() {
            return JoinHandle::cancelled();
        }
        match with_any_home(self.shared(), Choice::NotAwake, Arc::clone) {
            Ok(home) => spawn_pinned_at(home, create, spawned),
            Err(_) => JoinHandle::cancelled(),
        }
    }

    /// Spawns a task that runs only on worker number `worker`. Workers are numbered from 0.
    ///
    /// It is otherwise like [`spawn_pinned`](Handle::spawn_pinned).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let task = runtime.handle().spawn_pinned_by_idx(|| async { 42 }, 0).unwrap();
    /// assert_eq!(runtime.block_on(task).unwrap(), 42);
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error, and drops `create`, if there is no such worker or the runtime has been
    /// shut down. (A runtime that is shutting down may still accept the task. Its join handle then
    /// returns a "cancelled" error.)
    #[track_caller]
    pub fn spawn_pinned_by_idx<F, Fut>(
        &self,
        create: F,
        worker: usize,
    ) -> Result<JoinHandle<Fut::Output>, SpawnError>
    where
        F: FnOnce() -> Fut + Send + 'static,
        Fut: Future + 'static,
        Fut::Output: Send + 'static,
    {
        let spawned = Spawned::here();
        let workers = self.shared().workers();
        match workers.get(worker) {
            // A runtime that ends may have no workers left, which is no fault of the number.
            _ if self.shared().is_stopping() => Err(SpawnError::Shutdown),
            _ if self.shared().is_current_thread() => Err(SpawnError::CurrentThread),
            Some(home) => Ok(spawn_pinned_at(home.clone(), create, spawned)),
            None => Err(SpawnError::NoSuchWorker {
                worker,
                workers: workers.len(),
            }),
        }
    }

    /// Runs `f`, which may block, on a thread for blocking jobs.
    ///
    /// See [`task::spawn_blocking`](crate::task::blocking::spawn_blocking). On a runtime that has
    /// been shut down `f` is dropped, and the join handle returns a "cancelled" error.
    #[track_caller]
    pub fn spawn_blocking<F, R>(&self, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        self.spawn_blocking_as(Spawned::here(), f)
    }

    pub(crate) fn spawn_blocking_as<F, R>(&self, spawned: Spawned, f: F) -> JoinHandle<R>
    where
        F: FnOnce() -> R + Send + 'static,
        R: Send + 'static,
    {
        match self.with_home(Choice::InTurn, Arc::clone) {
            Ok(home) => spawn_blocking_at(&home, spawned, f),
            Err(_) => JoinHandle::cancelled(),
        }
    }
}
