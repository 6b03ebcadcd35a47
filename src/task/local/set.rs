//! `LocalSet`: tasks that stay on one thread, and run while that thread waits for the set.

use std::{
    fmt,
    future::{Future, poll_fn},
    marker::PhantomData,
    mem,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

#[cfg(feature = "facade")]
use crate::sys::sync::atomic::Ordering::Relaxed;
use crate::{
    engine::task_core::{
        end::end_tasks,
        home::Home,
        id::Id,
        local_queue::LocalQueue,
        registry::Registry,
        set::{Polling, Set},
    },
    metrics::spawned::Spawned,
    sys::sync::{Mutex, atomic::AtomicBool},
    task::{
        join::JoinHandle,
        local::{
            context,
            context::{LocalEnterGuard, Within},
            spawn_here,
        },
    },
    util::{
        budget,
        contained::{each_or, forget},
        lock::lock,
    },
};

/// How many tasks one poll of the set polls at most, before other tasks get their turn.
const TASKS_PER_POLL: usize = 61;

/// A set of tasks that stay on one thread, and so need not be `Send`.
///
/// The tasks run only while the set is waited for: by awaiting the set itself, which is ready when
/// all tasks have ended, by [`run_until`](LocalSet::run_until), or by
/// [`block_on`](LocalSet::block_on). The set is bound to the thread that created it, and is not
/// `Send`. It may be awaited in a `block_on`, in a
/// [pinned](crate::task::local::pinned::spawn_pinned) task, or in a task of another set.
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
/// assert_eq!(count.get(), 0, "the set is not awaited yet");
/// runtime.block_on(set);
/// assert_eq!(count.get(), 2);
/// ```
///
/// One poll of the set polls at most 61 tasks, in the order in which they were woken. After that,
/// other futures of the awaiting task and other tasks of the worker get their turn. They get it
/// before a task that has yielded runs again.
///
/// To the runtime and its [metrics](crate::runtime::Handle::metrics), the tasks of a set are a part
/// of the task that awaits it. [`shutdown_graceful`](crate::Runtime::shutdown_graceful) does not
/// wait for them separately.
///
/// ```compile_fail
/// fn to_another_thread<T: Send>(_: T) {}
/// to_another_thread(tourbillon::task::LocalSet::new());
/// ```
///
/// Dropping the set drops its tasks, on this thread. Their handles then return a "cancelled" error.
pub struct LocalSet {
    /// A home of `set`, as the tasks hold it.
    home: Home,
    set: Arc<Set>,
    id: Id,
    /// Makes the set neither `Send` nor `Sync`.
    _here: PhantomData<*const ()>,
}

impl LocalSet {
    /// Creates an empty set on the calling thread, which need not be in a runtime.
    pub fn new() -> Self {
        let set = Arc::new(Set {
            queue: LocalQueue::of_this_thread(),
            tasks: Registry::of_set(),
            waiting: Mutex::default(),
            polled: AtomicBool::new(false),
            #[cfg(feature = "facade")]
            unhandled_panic: Default::default(),
        });
        Self {
            home: Home::set(set.clone()),
            set,
            id: Id::fresh(),
            _here: PhantomData,
        }
    }

    /// Returns the number of the set. No other set or runtime of the process has it.
    pub fn id(&self) -> Id {
        self.id
    }

    /// Spawns a task in the set. It begins to run when the set is waited for.
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
        self.spawn_local_as(Spawned::here(), future)
    }

    pub(in crate::task) fn spawn_local_as<F>(
        &self,
        spawned: Spawned,
        future: F,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_here(self.home.clone(), future, spawned)
    }

    /// Sets what a panic of a task does.
    #[cfg(feature = "facade")]
    #[doc(hidden)]
    pub fn unhandled_panic(&mut self, behavior: crate::facade::UnhandledPanic) -> &mut Self {
        self.set.unhandled_panic[0].store(behavior.shuts_down(), Relaxed);
        self
    }

    /// Enters the set: until the guard is dropped, [`spawn_local`](super::spawn_local) on this
    /// thread puts tasks into this set.
    ///
    /// The innermost context counts: a local task that is polled meanwhile spawns into its own set
    /// or worker, and a set that is entered later takes precedence until its guard is dropped.
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

    /// Runs a future in the context of the set, and the set's tasks beside it, until the future has
    /// ended. Tasks that have not ended by then continue when the set is waited for again.
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
    /// If this is dropped before it is ready, `future` is dropped and the tasks stay in the set.
    /// Several `run_until` may be awaited at once on the set's thread: each runs any task that is
    /// ready.
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        // Dropping the waiter also passes on a wake-up that no poll has used.
        let waiter = self.set.begin();
        poll_fn(|cx| self.poll_with_tasks(cx, waiter.number, |cx| future.as_mut().poll(cx))).await
    }

    /// Polls `first`, and then the ready tasks of the set if `first` is pending. `number`
    /// identifies the waiter, whose waker is kept.
    fn poll_with_tasks<R>(
        &self,
        cx: &mut Context<'_>,
        number: u64,
        first: impl FnOnce(&mut Context<'_>) -> Poll<R>,
    ) -> Poll<R> {
        let set = &*self.set;
        // Register before checking the queue: a thread that pushes after the check finds the waker.
        set.register(number, cx.waker());
        let _polling = Polling::begin(set);
        let poll = {
            // `spawn_local` in the future goes to this set.
            let _within = Within::begin(&self.home);
            first(cx)
        };
        if poll.is_pending() {
            // A bounded number of tasks, so that the rest of the awaiting task gets its turn.
            let mut left = TASKS_PER_POLL;
            while left > 0 {
                let Some(task) = set.queue.take() else { break };
                left -= 1;
                if budget::yields(|| budget::limited(|| task.run())) {
                    // The task yields to all others, also to those outside of the set. It is the
                    // last one in the queue.
                    left = left.min(set.queue.own_len().saturating_sub(1));
                }
            }
            // A panic has emptied the queue, so that it ended the loop.
            #[cfg(feature = "facade")]
            set.assert_no_panic();
            if set.queue.has_work() {
                // Wake all waiters, also this one: this one may not poll again, and the others
                // would wait for it.
                set.wake();
            }
        }
        poll
    }

    fn is_empty(&self) -> bool {
        self.set.tasks.len(0) == 0
    }
}

/// The waiter number of the set itself, when it is awaited as a future.
const SET_WAITER: u64 = 0;

/// Waits until the set has no task.
impl Future for LocalSet {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _pending = self.poll_with_tasks(cx, SET_WAITER, |_| Poll::<()>::Pending);
        if self.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }
}

impl Drop for LocalSet {
    fn drop(&mut self) {
        // From here on a push wakes no waiter.
        let wakers = mem::take(&mut lock(&self.set.waiting).wakers);
        each_or(wakers, drop, forget);
        end_tasks(&self.set.tasks, 0, &self.set.queue);
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
