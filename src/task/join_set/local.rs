//! Tasks of a `JoinSet` that stay on their thread.

use std::future::Future;

use super::JoinSet;
use crate::task::{AbortHandle, LocalSet, spawn_local};

impl<T: 'static> JoinSet<T> {
    /// Spawns a task in the set that stays on the calling thread, as [`spawn_local`] does.
    ///
    /// If `T` is not `Send`, the set is not `Send` either.
    ///
    /// ```
    /// use std::rc::Rc;
    /// use tourbillon::task::{JoinSet, LocalSet};
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// LocalSet::new().block_on(&runtime, async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn_local(async { Rc::new(42) });
    ///     assert_eq!(*set.join_next().await.unwrap().unwrap(), 42);
    /// });
    /// ```
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is in no local context.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.insert(spawn_local(future))
    }

    /// Spawns a task in the set that runs on `local_set`, as [`LocalSet::spawn_local`] does.
    ///
    /// ```
    /// use tourbillon::task::{JoinSet, LocalSet};
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let (local, mut set) = (LocalSet::new(), JoinSet::new());
    /// set.spawn_local_on(async { 42 }, &local);
    /// assert_eq!(local.block_on(&runtime, set.join_all()), [42]);
    /// ```
    #[track_caller]
    pub fn spawn_local_on<F>(&mut self, future: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.insert(local_set.spawn_local(future))
    }
}
