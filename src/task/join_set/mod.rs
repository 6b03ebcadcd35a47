//! Waiting for whichever of many tasks ends next.
//!
//! Each task of a set has a waker of its own, which queues the task's place when the task has ended,
//! and wakes who waits for the set. So the set looks at those alone that ended, in the order in which
//! they did, however many there are.

pub(crate) mod ended;
pub(crate) mod local;

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    panic::resume_unwind,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use slab::Slab;

use crate::{
    api::handle::Handle,
    task::{
        abort::AbortHandle,
        blocking::spawn_blocking,
        id::Id,
        join::{JoinError, JoinHandle},
        join_set::ended::Ended,
        spawn,
    },
    util::budget,
};

/// Tasks whose results are of one type, and come in the order in which the tasks end.
///
/// Dropping the set aborts all tasks that are in it, and does not wait for them. A set may be moved
/// from task to task and from thread to thread, and have tasks of several runtimes. If the runtime of
/// its tasks is shut down, they end as cancelled, and who waits for them is told.
///
/// To wait for the next task costs the same however many there are: who waits is woken when one has
/// ended, and is not shown the others.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{task::JoinSet, time::sleep};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut set = JoinSet::new();
/// for ms in [30, 1] {
///     set.spawn(async move {
///         sleep(Duration::from_millis(ms)).await;
///         ms
///     });
/// }
/// let mut sum = 0;
/// while let Some(ended) = set.join_next().await {
///     sum += ended.unwrap();
/// }
/// assert_eq!(sum, 31);
/// # });
/// ```
pub struct JoinSet<T> {
    tasks: Slab<Slot<T>>,
    ended: Arc<Ended>,
}

/// Nothing of type `T` is pinned here.
impl<T> Unpin for JoinSet<T> {}

struct Slot<T> {
    handle: JoinHandle<T>,
    /// Queues the place of this slot.
    waker: Waker,
}

impl<T> JoinSet<T> {
    /// A set of no tasks.
    ///
    /// ```
    /// let set = tourbillon::task::JoinSet::<()>::new();
    /// assert!(set.is_empty());
    /// ```
    pub fn new() -> Self {
        Self {
            tasks: Slab::new(),
            ended: Arc::default(),
        }
    }

    /// How many tasks there are whose results were not taken: those that run, and those that ended.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(async {});
    /// assert_eq!(set.len(), 1);
    /// set.join_next().await;
    /// assert_eq!(set.len(), 0);
    /// # });
    /// ```
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there is no task whose result was not taken.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(async {});
    /// assert!(!set.is_empty());
    /// # });
    /// ```
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Spawns a task of the set, as [`spawn`](crate::task::spawn) does, on the runtime that the calling thread
    /// is in.
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
    /// If the thread is in no runtime.
    #[track_caller]
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn(future))
    }

    /// Spawns a task of the set on a certain runtime. On one that has been shut down it is cancelled at
    /// once.
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

    /// Runs `f`, which may block, on a thread that is there for it, as
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) does.
    ///
    /// If it is aborted, also by the drop of the set, it is dropped if it has not begun, and runs on if it
    /// has.
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
    /// If the thread is in no runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.insert(spawn_blocking(f))
    }

    /// As [`spawn_blocking`](JoinSet::spawn_blocking), on a certain runtime. On one that has been shut
    /// down `f` is dropped, and the task cancelled.
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

    fn insert(&mut self, mut handle: JoinHandle<T>) -> AbortHandle {
        let abort = handle.abort_handle();
        let vacant = self.tasks.vacant_entry();
        let place = vacant.key();
        let waker = ended::waker(&self.ended, place);
        // From here on the task queues itself when it ends, unless it has ended by now.
        if handle
            .poll_ended(&mut Context::from_waker(&waker))
            .is_ready()
        {
            waker.wake_by_ref();
        }
        vacant.insert(Slot { handle, waker });
        abort
    }

    /// Takes what was queued for a place out of the set, if the task there has ended: a waker may
    /// be woken once too often, and its place have been given away.
    fn take(&mut self, place: usize) -> Option<JoinHandle<T>> {
        let Slot { handle, waker } = self.tasks.get_mut(place)?;
        let ended = handle.poll_ended(&mut Context::from_waker(waker));
        ended.is_ready().then(|| self.tasks.remove(place).handle)
    }

    fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<Option<JoinHandle<T>>> {
        while !self.is_empty() {
            let place = ready!(self.ended.poll_pop(cx));
            if let Some(joined) = self.take(place) {
                return Poll::Ready(Some(joined));
            }
        }
        Poll::Ready(None)
    }

    /// What the next task that ends came to, or `None` if there is no task.
    ///
    /// The first that ended is the first to be taken.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(async { if false { 1 } else { panic!("no result") } });
    /// assert!(set.join_next().await.unwrap().unwrap_err().is_panic());
    /// assert!(set.join_next().await.is_none());
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped before it was ready, no result was taken: it may be a branch of a
    /// `select!`.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// As [`join_next`](JoinSet::join_next), with the number of the task; in an error it is
    /// [`JoinError::id`].
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// let id = set.spawn(async { 42 }).id();
    /// assert_eq!(set.join_next_with_id().await.unwrap().unwrap(), (id, 42));
    /// # });
    /// ```
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        poll_fn(|cx| self.poll_join_next_with_id(cx)).await
    }

    /// What a task came to, if one has ended and was not taken; does not wait.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(std::future::pending::<()>());
    /// assert!(set.try_join_next().is_none());
    /// # });
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.try_joined().map(JoinHandle::into_result)
    }

    /// As [`try_join_next`](JoinSet::try_join_next), with the number of the task; in an error it is
    /// [`JoinError::id`].
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// let id = set.spawn(async { 42 }).id();
    /// let ended = loop {
    ///     match set.try_join_next_with_id() {
    ///         Some(ended) => break ended,
    ///         None => tourbillon::task::yield_now().await,
    ///     }
    /// };
    /// assert_eq!(ended.unwrap(), (id, 42));
    /// # });
    /// ```
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        self.try_joined().map(into_result_with_id)
    }

    fn try_joined(&mut self) -> Option<JoinHandle<T>> {
        loop {
            let place = self.ended.pop()?;
            if let Some(joined) = self.take(place) {
                return Some(joined);
            }
        }
    }

    /// Polls for what the next task that ends came to: as [`join_next`](JoinSet::join_next), for futures
    /// that are written by hand.
    ///
    /// If it is pending, the waker of the last call is woken when a task has ended. It is pending, and
    /// woken at once, where the task that asks has used up its [budget](crate::util::budget::consume_budget).
    ///
    /// ```
    /// use std::future::poll_fn;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(async { 42 });
    /// let ended = poll_fn(|cx| set.poll_join_next(cx)).await;
    /// assert_eq!(ended.unwrap().unwrap(), 42);
    /// # });
    /// ```
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.poll_in_budget(cx)
            .map(|joined| joined.map(JoinHandle::into_result))
    }

    /// As [`poll_join_next`](JoinSet::poll_join_next), with the number of the task; in an error it is
    /// [`JoinError::id`].
    ///
    /// ```
    /// use std::future::poll_fn;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// let id = set.spawn(async { 42 }).id();
    /// let ended = poll_fn(|cx| set.poll_join_next_with_id(cx)).await;
    /// assert_eq!(ended.unwrap().unwrap(), (id, 42));
    /// # });
    /// ```
    pub fn poll_join_next_with_id(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<(Id, T), JoinError>>> {
        self.poll_in_budget(cx)
            .map(|joined| joined.map(into_result_with_id))
    }

    fn poll_in_budget(&mut self, cx: &mut Context<'_>) -> Poll<Option<JoinHandle<T>>> {
        if self.is_empty() {
            return Poll::Ready(None);
        }
        ready!(budget::check(cx));
        let joined = ready!(self.poll_joined(cx));
        budget::spend();
        Poll::Ready(joined)
    }

    /// The results of all tasks, in the order in which they ended.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let set: tourbillon::task::JoinSet<_> = (1..=3).map(|n| async move { n * n }).collect();
    /// let mut squares = set.join_all().await;
    /// squares.sort();
    /// assert_eq!(squares, [1, 4, 9]);
    /// # });
    /// ```
    ///
    /// # Panics
    ///
    /// As the first task that panics, and if one is cancelled. The others are aborted then.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(ended) = self.join_next().await {
            match ended.map_err(JoinError::try_into_panic) {
                Ok(result) => all.push(result),
                Err(Ok(panic)) => resume_unwind(panic),
                Err(Err(error)) => panic!("{error}"),
            }
        }
        all
    }

    /// Aborts all tasks, and waits until they have ended; their results are dropped. The set is empty
    /// then, and may be used again.
    ///
    /// What was given to [`spawn_blocking`](JoinSet::spawn_blocking) and has begun is waited for. If the
    /// future is dropped before it was ready, all are aborted, and may be waited for by
    /// [`join_next`](JoinSet::join_next).
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// let task = set.spawn(std::future::pending::<()>());
    /// set.shutdown().await;
    /// assert!(set.is_empty() && task.is_finished());
    /// # });
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        // A result is dropped as one that nobody joined: its destructor may panic, and keeps no other
        // from being waited for.
        while poll_fn(|cx| self.poll_in_budget(cx)).await.is_some() {}
    }

    /// Aborts all tasks, as [`AbortHandle::abort`] does. They stay in the set, as cancelled if they had
    /// not ended before.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// set.spawn(std::future::pending::<()>());
    /// set.abort_all();
    /// assert!(set.join_next().await.unwrap().unwrap_err().is_cancelled());
    /// # });
    /// ```
    pub fn abort_all(&mut self) {
        for (_, slot) in &self.tasks {
            slot.handle.abort();
        }
    }

    /// Takes all tasks out of the set, without aborting them: they run on, and nobody learns how they end.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let mut set = tourbillon::task::JoinSet::new();
    /// let (sender, receiver) = channel();
    /// set.spawn(async move { sender.send("still there") });
    /// set.detach_all();
    /// drop(set);
    /// assert_eq!(receiver.recv().unwrap(), "still there");
    /// # });
    /// ```
    pub fn detach_all(&mut self) {
        // Those that are let go queue themselves where nobody looks.
        let ended = mem::take(&mut self.ended);
        drop(mem::take(&mut self.tasks));
        // There is nothing to wait for any more.
        if let Some(waiter) = ended.take_waiter() {
            waiter.wake();
        }
    }
}

/// The result of a task that has ended, with its number.
fn into_result_with_id<T>(handle: JoinHandle<T>) -> Result<(Id, T), JoinError> {
    let id = handle.id();
    handle.into_result().map(|result| (id, result))
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
        // The tasks keep the queue for as long as they live; a waiter, which may keep much, need not
        // be in it.
        drop(self.ended.take_waiter());
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// Spawns all futures, as [`JoinSet::spawn`] does.
impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        for future in futures {
            set.spawn(future);
        }
        set
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
