//! Tasks: futures that run on the workers.

mod abort;
mod blocking;
pub(crate) mod budget;
mod home;
mod id;
mod join;
mod join_set;
mod local;
pub(crate) mod registry;
mod yield_now;

use std::{
    any::Any,
    future::Future,
    io,
    mem::ManuallyDrop,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    pin::Pin,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, Ordering},
    },
    task::{Context, Poll},
};

use async_task::{FallibleTask, Schedule, ScheduleInfo, WithInfo};
use tourbillon_shards::TypeName;

pub use self::{
    abort::AbortHandle,
    blocking::{block_in_place, spawn_blocking},
    budget::{Unconstrained, consume_budget, unconstrained},
    id::{Id, id, try_id},
    join::{JoinError, JoinHandle},
    join_set::JoinSet,
    local::{LocalEnterGuard, LocalSet, spawn_local, spawn_pinned, spawn_pinned_by_idx},
    yield_now::{YieldNow, yield_now},
};
use self::{abort::Target, home::Home};
pub(crate) use self::{
    blocking::spawn_blocking_at,
    local::{LocalQueue, end_pinned, spawn_pinned_at},
};
use crate::{
    error::NO_RUNTIME,
    runtime::{Choice, HomeError, Order, TaskJob, WorkerShard, with_home},
};

/// What a task's panic carries.
type Panic = Box<dyn Any + Send + 'static>;

/// What the scheduler knows of a task besides its future.
#[derive(Debug)]
pub(crate) struct TaskMeta {
    /// The type of its future, and where it was spawned.
    pub(crate) future: &'static TypeName,
    pub(crate) spawned: &'static Location<'static>,
    aborted: AtomicBool,
    /// The system's error, if it gave no thread to run it on; 0 otherwise.
    refused: AtomicI32,
}

impl TaskMeta {
    /// Whether the task was told to end.
    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Acquire)
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
    }

    /// Lets the task end, because the system gave no thread to run it on.
    pub(crate) fn refuse(&self, error: &io::Error) {
        let code = error.raw_os_error().unwrap_or(libc::EAGAIN);
        self.refused.store(code, Ordering::Relaxed);
        self.abort();
    }

    /// Why there was no thread to run it on, if there was none.
    fn refusal(&self) -> Option<io::Error> {
        match self.refused.load(Ordering::Relaxed) {
            0 => None,
            code => Some(io::Error::from_raw_os_error(code)),
        }
    }
}

/// Spawns a task on the runtime that the calling thread is in.
///
/// The task runs at once and by itself; the handle is to wait for its result, and may be dropped.
///
/// ```
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let task = tourbillon::spawn(async { 6 * 7 });
/// assert_eq!(task.await.unwrap(), 42);
/// # });
/// ```
///
/// # Panics
///
/// If the thread is in no runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let spawned = Location::caller();
    match with_home(Choice::InTurn, |home| spawn_at(home, future, spawned)) {
        Ok(handle) => handle,
        Err(HomeError::Shutdown) => JoinHandle::cancelled(),
        Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
    }
}

/// Spawns a task of the worker `home`; the user did so at `spawned`.
pub(crate) fn spawn_at<F>(
    home: &Arc<WorkerShard>,
    future: F,
    spawned: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The task keeps its home, which knows the runtime: a count that is one worker's alone, where
    // one for the whole runtime would be fought over by all cores.
    let scheduler = home.clone();
    let schedule = WithInfo(move |task: TaskJob, info: ScheduleInfo| {
        let order = if info.woken_while_running {
            Order::Last
        } else {
            Order::Next
        };
        scheduler.owner().shared.schedule(task, order);
    });
    let Some(registered) = register(home, future, spawned, schedule) else {
        // Dropped here, as it would be there.
        return JoinHandle::cancelled();
    };
    let shared = &home.owner().shared;
    shared.schedule(registered.runnable, Order::Last);
    JoinHandle::new(registered.task, registered.target)
}

/// A new task, which is in the registry and not yet scheduled.
struct NewTask<T> {
    runnable: TaskJob,
    task: FallibleTask<Product<T>, TaskMeta>,
    target: Target,
}

/// Makes a task in the books of the worker `home`, unless the runtime has ended.
fn register<F, S>(
    home: &Arc<WorkerShard>,
    future: F,
    spawned: &'static Location<'static>,
    schedule: S,
) -> Option<NewTask<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
    S: Schedule<TaskMeta> + Send + Sync + 'static,
{
    let home = Home::Worker(home.clone());
    let name = TypeName::of::<F>();
    // SAFETY: the future is Send, and so is what it answers.
    unsafe { register_unchecked(home, name, future, spawned, schedule) }
}

/// Makes a task in the books of `home`, unless that has ended. Its future is called `name`.
///
/// # Safety
///
/// If the future is not Send, what `schedule` is given is run and dropped on the calling thread; or on
/// another, which is always the same, if it is Send until it is first polled.
unsafe fn register_unchecked<F, S>(
    home: Home,
    name: &'static TypeName,
    future: F,
    spawned: &'static Location<'static>,
    schedule: S,
) -> Option<NewTask<F::Output>>
where
    F: Future + 'static,
    F::Output: 'static,
    S: Schedule<TaskMeta> + Send + Sync + 'static,
{
    let place = home.tasks().reserve(home.list())?;
    let key = place.key();
    let task = |meta: &TaskMeta| Registered {
        future: ManuallyDrop::new(future),
        meta: NonNull::from(meta),
        key,
        home: home.clone(),
    };
    let meta = TaskMeta {
        future: name,
        spawned,
        aborted: AtomicBool::new(false),
        refused: AtomicI32::new(0),
    };
    let builder = async_task::Builder::new().metadata(meta);
    // SAFETY: where the task is run and dropped is what the caller has seen to. All is 'static, and
    // `schedule` is Send and Sync.
    let (runnable, task) = unsafe { builder.spawn_unchecked(task, schedule) };
    place.fill(&runnable);
    Some(NewTask {
        runnable,
        task: task.fallible(),
        target: Target::new(key, home),
    })
}

/// A task's future: leaves the registry when it ends, and keeps its panics to itself.
struct Registered<F> {
    /// Dropped by hand: its destructor may panic, for which async-task ends the process.
    future: ManuallyDrop<F>,
    /// In the same allocation, which lives as long as its future.
    meta: NonNull<TaskMeta>,
    key: registry::Key,
    home: Home,
}

impl<F: Future> Future for Registered<F> {
    type Output = Product<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned whenever `self` is: nothing moves it, and `drop` drops it in
        // its place. The metadata lives, since the future does.
        let (future, home, meta, id) = unsafe {
            let this = self.get_unchecked_mut();
            let meta = this.meta.as_ref();
            let future = Pin::new_unchecked(&mut *this.future);
            (future, &this.home, meta, this.key.id())
        };
        // Here, and not before the task is run: async-task has taken the mark away by now that it is
        // scheduled. Who aborted it before that is seen, and who does so later schedules it again.
        if meta.is_aborted() {
            return Poll::Ready(Product {
                result: None,
                refusal: meta.refusal(),
                home: home.clone(),
            });
        }
        let poll = || home.within(|| id::within(id, || future.poll(cx)));
        let result = match catch_unwind(AssertUnwindSafe(poll)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(panic) => {
                // The panic hook has reported it; whoever joins the task gets it.
                home.count_panic();
                Err(panic)
            }
        };
        Poll::Ready(Product {
            result: Some(result),
            refusal: None,
            home: home.clone(),
        })
    }
}

impl<F> Drop for Registered<F> {
    fn drop(&mut self) {
        let (home, id, future) = (&self.home, self.key.id(), &mut self.future);
        // SAFETY: it is not used after this.
        let end = || unsafe { ManuallyDrop::drop(future) };
        home.inside(|| home.contain(|| home.within(|| id::within(id, end))));
        // Not before: an `AbortHandle` takes it from the registry whether the task has ended, and so does
        // who ends local tasks.
        drop(home.tasks().remove(self.key));
    }
}

/// What a task came to, until somebody joins it.
struct Product<T> {
    /// Taken by who joins the task. None if it was aborted, or refused.
    result: Option<Result<T, Panic>>,
    /// Why there was no thread to run it on, if there was none.
    refusal: Option<io::Error>,
    home: Home,
}

impl<T> Product<T> {
    fn into_result(mut self, id: Id) -> Result<T, JoinError> {
        match self.result.take() {
            Some(Ok(output)) => Ok(output),
            Some(Err(panic)) => Err(JoinError::panicked(id, panic)),
            None => Err(self.refusal.take().map_or_else(
                || JoinError::cancelled(id),
                |why| JoinError::refused(id, why),
            )),
        }
    }
}

impl<T> Drop for Product<T> {
    /// Drops what nobody joined; its destructor may panic, for which async-task ends the process.
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            self.home.contain(|| drop(result));
        }
    }
}
