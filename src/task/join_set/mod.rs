//! Waits for whichever of many tasks ends next.
//!
//! Each task of a set has its own waker. When the task ends, this waker queues the task's slot and
//! wakes the task that waits for the set. So the set polls only tasks that have ended, in the order
//! in which they ended, however many there are.

#[cfg(feature = "facade")]
pub(crate) mod builder;
pub(crate) mod ended;
pub(crate) mod local;
mod spawn;

use std::{
    fmt,
    future::poll_fn,
    mem,
    panic::resume_unwind,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use slab::Slab;

use crate::{
    engine::task_core::id::Id,
    task::{
        abort::AbortHandle,
        join::{JoinError, JoinHandle},
        join_set::ended::Ended,
    },
    util::budget,
};

/// A set of tasks with results of one type. Results are taken in the order in which the tasks end.
///
/// Dropping the set aborts all tasks in it, and does not wait for them. A set may move from task to
/// task and from thread to thread, and may hold tasks of several runtimes. If the runtime of a task
/// is shut down, the task ends as cancelled, and the waiting task is woken.
///
/// Waiting for the next task costs the same for any number of tasks: the waiting task is woken when
/// one has ended, and does not poll the others.
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

/// No value of type `T` is pinned here.
impl<T> Unpin for JoinSet<T> {}

struct Slot<T> {
    handle: JoinHandle<T>,
    /// Queues the index of this slot when the task ends.
    waker: Waker,
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
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

    /// Returns the number of tasks whose results were not taken: running ones and ended ones.
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

    /// Returns whether the set has no task whose result was not taken.
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

    fn insert(&mut self, mut handle: JoinHandle<T>) -> AbortHandle {
        let abort = handle.abort_handle();
        // The waker must name the slot, so take the index before the slot is filled.
        let vacant = self.tasks.vacant_entry();
        let place = vacant.key();
        let waker = ended::waker(&self.ended, place);
        // From here on the task queues its slot when it ends. If it has ended already, queue it
        // now.
        if handle
            .poll_ended(&mut Context::from_waker(&waker))
            .is_ready()
        {
            waker.wake_by_ref();
        }
        vacant.insert(Slot { handle, waker });
        abort
    }

    /// Takes the task of a queued slot out of the set, if that task has ended. It may not have: a
    /// waker may be woken twice, and the slot may have been given to another task meanwhile.
    fn take(&mut self, place: usize) -> Option<JoinHandle<T>> {
        let Slot { handle, waker } = self.tasks.get_mut(place)?;
        let ended = handle.poll_ended(&mut Context::from_waker(waker));
        ended.is_ready().then(|| self.tasks.remove(place).handle)
    }

    fn poll_joined(&mut self, cx: &mut Context<'_>) -> Poll<Option<JoinHandle<T>>> {
        while !self.is_empty() {
            let place = ready!(self.ended.poll_pop(cx));
            // A queued slot may be one whose task has not ended: see `take`.
            if let Some(joined) = self.take(place) {
                return Poll::Ready(Some(joined));
            }
        }
        Poll::Ready(None)
    }

    /// Waits for the next task to end, and returns its result, or `None` if the set is empty.
    ///
    /// Results come in the order in which the tasks ended.
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
    /// If this future is dropped before it is ready, no result is lost: it may be a branch of a
    /// `select!`.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Waits for the next task to end, as [`join_next`](JoinSet::join_next) does, and returns its
    /// result with the task's number. An error holds the number itself: [`JoinError::id`].
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

    /// Returns the result of a task that has ended, or `None` if there is none. Does not wait.
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

    /// Returns the result of a task that has ended with the task's number, or `None`. Does not
    /// wait.
    ///
    /// An error holds the number itself: [`JoinError::id`].
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

    /// Polls for the next task to end, as [`join_next`](JoinSet::join_next) does, for futures that
    /// are written by hand.
    ///
    /// If it returns `Pending`, the waker of the last call is woken when a task has ended. It also
    /// returns `Pending`, and wakes the waker at once, if the calling task has used up its
    /// [budget](crate::util::budget::consume_budget).
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

    /// Polls for the next task to end, as [`poll_join_next`](JoinSet::poll_join_next) does, and
    /// returns its result with the task's number. An error holds the number itself:
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

    /// Waits for all tasks, and returns their results in the order in which the tasks ended.
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
    /// Panics with the payload of the first task that panics, and if a task was cancelled. The
    /// remaining tasks are aborted then.
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

    /// Aborts all tasks, waits until they have ended, and drops their results. The set is empty
    /// then, and may be used again.
    ///
    /// A job of [`spawn_blocking`](JoinSet::spawn_blocking) that has begun cannot be aborted: this
    /// waits for it. If this future is dropped before it is ready, all tasks are aborted and stay
    /// in the set; [`join_next`](JoinSet::join_next) may wait for them.
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
        // `poll_in_budget` returns handles, whose drop also drops the result and catches a panic of
        // its destructor. So such a panic does not end the wait for the other tasks.
        while poll_fn(|cx| self.poll_in_budget(cx)).await.is_some() {}
    }

    /// Aborts all tasks, as [`AbortHandle::abort`] does. They stay in the set, and end as cancelled
    /// unless they had ended before.
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

    /// Takes all tasks out of the set without aborting them. They run on, and their results are
    /// dropped.
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
        // The detached tasks keep the old queue and put their slots there. Nothing reads it.
        let ended = mem::take(&mut self.ended);
        drop(mem::take(&mut self.tasks));
        // The set is empty: a task that waits for it gets `None`.
        if let Some(waiter) = ended.take_waiter() {
            waiter.wake();
        }
    }
}

/// Returns the result of a task that has ended, with the task's number.
fn into_result_with_id<T>(handle: JoinHandle<T>) -> Result<(Id, T), JoinError> {
    let id = handle.id();
    handle.into_result().map(|result| (id, result))
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
        // The tasks keep the queue alive for as long as they live. Take the waker out of it,
        // because a waker may keep a whole task alive.
        drop(self.ended.take_waiter());
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
