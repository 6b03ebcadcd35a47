//! Tasks of a `JoinSet` that may run on any thread.

use std::future::Future;

use super::JoinSet;
use crate::{
    engine::handle::Handle,
    task::{abort::AbortHandle, blocking::spawn_blocking, spawn},
};

impl<T> JoinSet<T> {
    /// Spawns a task in the set, on the runtime that the calling thread is in, as
    /// [`spawn`](crate::task::spawn) does.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(async { 6 * 7 });
    /// assert_eq!(set.join_next().await.unwrap().unwrap(), 42);
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is in no runtime.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn(future))
    }

    /// Spawns a task in the set, on the runtime of `handle`. On a runtime that has been shut down
    /// the task is cancelled at once.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn_on(async { 6 * 7 }, runtime.handle());
    /// assert_eq!(runtime.block_on(set.join_all()), [42]);
    /// ```
    #[track_caller]
    pub fn spawn_on<F>(&mut self, future: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(handle.spawn(future))
    }

    /// Runs `f`, which may block, on a thread for blocking jobs, as a task of the set.
    ///
    /// See [`spawn_blocking`](crate::task::blocking::spawn_blocking). If the task is aborted, also
    /// by dropping the set, `f` is dropped if it has not begun, and runs on if it has.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
    /// assert!(set.join_next().await.unwrap().unwrap().is_ok());
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is in no runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn_blocking(f))
    }

    /// Runs `f`, which may block, on a blocking thread of the runtime of `handle`, as a task of the
    /// set. On a runtime that has been shut down `f` is dropped, and the task is cancelled.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn_blocking_on(|| 6 * 7, runtime.handle());
    /// assert_eq!(runtime.block_on(set.join_all()), [42]);
    /// ```
    #[track_caller]
    pub fn spawn_blocking_on<F>(&mut self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.insert(handle.spawn_blocking(f))
    }
}

/// Spawns each future, as [`JoinSet::spawn`] does.
impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

/// Spawns each future, as [`JoinSet::spawn`] does.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut set = tourbillon::task::JoinSet::new();
/// set.extend((1..=3).map(|n| async move { n * n }));
/// assert_eq!(set.len(), 3);
/// # });
/// ```
impl<T, F> Extend<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}
