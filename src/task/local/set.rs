//! Tasks of one thread, which run where they are waited for.

use std::{
    fmt,
    future::{Future, poll_fn},
    marker::PhantomData,
    mem,
    panic::Location,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    api::runtime::Runtime,
    engine::task_core::{
        home::Home,
        local_queue::LocalQueue,
        registry::Registry,
        set::{Polling, Set},
    },
    sys::sync::{Mutex, atomic::AtomicBool},
    task::{
        join::JoinHandle,
        local::{
            context,
            context::{LocalEnterGuard, Within},
            end, spawn_here,
        },
    },
    util::{budget, contained::contained, lock::lock},
};

/// How many tasks are polled in one poll of the set, before others get their turn.
const TASKS_PER_POLL: usize = 61;

/// Tasks that stay on the thread of the set, and so need not be `Send`.
///
/// They run while the set is waited for: as a future, which is ready when all of them have ended, by
/// [`run_until`](LocalSet::run_until), or by [`block_on`](LocalSet::block_on). In between they stand still.
/// The set is bound to the thread that has made it, and is not `Send`: it may be waited for in a
/// `block_on`, in a [pinned](crate::task::local::pinned::spawn_pinned) task, or in a task of another set.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use tourbillon::task::{LocalSet, spawn_local};
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let count = Rc::new(Cell::new(0));
/// let set = LocalSet::new();
/// let in_task = count.clone();
/// set.spawn_local(async move {
///     in_task.set(1);
///     spawn_local(async move { in_task.set(2) });
/// });
/// assert_eq!(count.get(), 0, "nobody waits for it yet");
/// runtime.block_on(set);
/// assert_eq!(count.get(), 2);
/// ```
///
/// One poll of the set polls 61 tasks at most, in the order in which they were woken; then whoever else is
/// in the task or the `block_on` that waits for it, and other tasks of the worker, get their turn. To the
/// runtime, and to its [metrics](crate::runtime::Handle::metrics), the tasks of a set are a part of what waits for
/// it: [`shutdown_graceful`](Runtime::shutdown_graceful) does not wait for them otherwise.
///
/// ```compile_fail
/// fn to_another_thread<T: Send>(_: T) {}
/// to_another_thread(tourbillon::task::LocalSet::new());
/// ```
///
/// Dropping the set drops its tasks, on this thread; who joins them is told that they were cancelled.
pub struct LocalSet {
    /// Always that of a set.
    home: Home,
    set: Arc<Set>,
    /// Bound to the thread.
    _here: PhantomData<*const ()>,
}

impl LocalSet {
    /// A set of no tasks, of the calling thread, which need not be in a runtime.
    pub fn new() -> Self {
        let set = Arc::new(Set {
            queue: LocalQueue::of_this_thread(),
            tasks: Registry::of_set(),
            waiting: Mutex::default(),
            polled: AtomicBool::new(false),
        });
        Self {
            home: Home::set(set.clone()),
            set,
            _here: PhantomData,
        }
    }

    /// Spawns a task of the set, which begins to run when the set is waited for.
    ///
    /// ```
    /// use std::rc::Rc;
    ///
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let set = tourbillon::task::LocalSet::new();
    /// let task = set.spawn_local(async { Rc::new(42) });
    /// assert_eq!(*set.block_on(&runtime, task).unwrap(), 42);
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_here(self.home.clone(), future, Location::caller())
    }

    /// Enters the set: until the guard is dropped, what this thread spawns by
    /// [`spawn_local`](super::spawn_local) goes there, but that in a local task it goes where that is, and
    /// unless another set is entered meanwhile.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let set = tourbillon::task::LocalSet::new();
    /// let task = {
    ///     let _entered = set.enter();
    ///     tourbillon::task::spawn_local(async { 42 })
    /// };
    /// assert_eq!(set.block_on(&runtime, task).unwrap(), 42);
    /// ```
    pub fn enter(&self) -> LocalEnterGuard {
        context::enter(&self.home)
    }

    /// Runs a future, in the context of the set, and the set's tasks beside it until the future has ended.
    /// Tasks that have not ended by then go on when the set is waited for again.
    ///
    /// ```
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// use tourbillon::task::{LocalSet, spawn_local};
    ///
    /// let set = LocalSet::new();
    /// let task = set.run_until(async { spawn_local(async { 6 }).await.unwrap() * 7 });
    /// assert_eq!(task.await, 42);
    /// # });
    /// ```
    ///
    /// # Cancel safety
    ///
    /// If it is dropped before it was ready the future is dropped, and the tasks stay in the set. Several
    /// may be awaited at once, on the set's thread: each runs what there is.
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let waiter = self.set.begin();
        poll_fn(|cx| self.poll_beside(cx, waiter.number, |cx| future.as_mut().poll(cx))).await
    }

    /// Runs a future to its end on the calling thread, in the contexts of a runtime and of the set, and the
    /// set's tasks beside it: as [`run_until`](LocalSet::run_until) in
    /// [`Runtime::block_on`].
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// let set = tourbillon::task::LocalSet::new();
    /// let task = set.spawn_local(tourbillon::time::sleep(std::time::Duration::from_millis(1)));
    /// set.block_on(&runtime, task).unwrap();
    /// ```
    ///
    /// # Panics
    ///
    /// If the calling thread is a worker of a runtime, and with the future's own panics.
    #[track_caller]
    pub fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> F::Output {
        runtime.block_on(self.run_until(future))
    }

    /// Polls `first`, and then the tasks that are ready, if that is not.
    fn poll_beside<R>(
        &self,
        cx: &mut Context<'_>,
        number: u64,
        first: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        let set = &*self.set;
        // Before the queue is looked at: who pushes after that look finds the waker.
        set.register(number, cx.waker());
        let _polling = Polling::begin(set);
        let poll = {
            let _within = Within::begin(&self.home);
            first(cx)
        };
        if poll.is_pending() {
            for _ in 0..TASKS_PER_POLL {
                let Some(task) = set.queue.take() else { break };
                budget::limited(|| task.run());
            }
            if set.queue.has_work() {
                // All, this one among them: who polls now need not come back, and the others would wait for it.
                set.wake();
            }
        }
        poll
    }

    fn is_empty(&self) -> bool {
        self.set.tasks.len(0) == 0
    }
}

/// The number of the set itself among those who wait for it.
const ITSELF: u64 = 0;

/// Ready when there is no task.
impl Future for LocalSet {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _pending = self.poll_beside(cx, ITSELF, |_| Poll::<()>::Pending);
        if self.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for LocalSet {
    fn drop(&mut self) {
        // Nobody is woken for what is queued from here on.
        let wakers = mem::take(&mut lock(&self.set.waiting).wakers);
        contained(|| drop(wakers));
        end(&self.set.tasks, 0, &self.set.queue);
    }
}

impl Default for LocalSet {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LocalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSet")
            .field("tasks", &self.set.tasks.len(0))
            .finish()
    }
}
