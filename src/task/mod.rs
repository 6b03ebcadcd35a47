//! Tasks: futures that run on the workers.

mod abort;
mod blocking;
pub(crate) mod budget;
mod home;
mod id;
mod join;
mod join_set;
mod list;
mod local;
mod meta;
mod origin;
mod pointer;
pub(crate) mod registry;
mod rehearsed;
mod yield_now;

use std::{
    any::Any,
    future::Future,
    io,
    mem::{self, ManuallyDrop, needs_drop},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use async_task::{Schedule, ScheduleInfo, WithInfo};
use tourbillon_shards::TypeName;

pub(crate) use self::meta::TaskMeta;
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
pub(crate) use self::{
    blocking::spawn_blocking_at,
    local::{LocalQueue, end_pinned, spawn_pinned_at},
    rehearsed::{Rehearsing, rehearsed},
};
use self::{
    home::Home,
    origin::Origin,
    pointer::{Counted, MetaPointer, TaskPointer},
    registry::Place,
};
use crate::{
    error::NO_RUNTIME,
    runtime::{self, Choice, HomeError, Order, TaskJob, WorkerShard, contained, with_home},
};

/// What a task's panic carries.
type Panic = Box<dyn Any + Send + 'static>;

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
    let Some(new) = register(home, future, spawned, WithInfo(schedule)) else {
        // Dropped here, as it would be there.
        return JoinHandle::cancelled();
    };
    home.owner().shared.schedule(new.runnable, Order::Last);
    new.handle
}

/// Queues a task that any worker may run. (async-task counts a reference less for a function that holds
/// nothing.)
fn schedule(task: TaskJob, info: ScheduleInfo) {
    let order = if info.woken_while_running {
        Order::Last
    } else {
        Order::Next
    };
    runtime::schedule(task, order);
}

/// A new task, which is in the books and not yet scheduled.
struct NewTask<T> {
    runnable: TaskJob,
    handle: JoinHandle<T>,
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
    let home = Home::worker(home);
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
    let tasks = home.tasks();
    if tasks.is_closed() {
        return None;
    }
    let list = home.list_from_beginning();
    // Another reference for the time of this only, and only for local tasks: the first moves into the task.
    let local = list.is_some().then(|| home.clone());
    let reserved = match (&local, list) {
        (Some(home), Some(list)) => Some(home.tasks().reserve(list)?),
        _ => None,
    };
    let place = reserved
        .as_ref()
        .map_or(Place::NOWHERE, registry::Reserved::place);
    home.count_begun();
    let id = Id::fresh();
    let task = |meta: &TaskMeta| Registered {
        future: ManuallyDrop::new(future),
        meta: MetaPointer::of(meta),
    };
    let meta = TaskMeta::new(Origin::of(name, spawned), home, id, place);
    let builder = async_task::Builder::new().metadata(meta);
    // SAFETY: where the task is run and dropped is what the caller has seen to. All is 'static, and
    // `schedule` is Send and Sync.
    let (runnable, task) = unsafe { builder.spawn_unchecked(task, schedule) };
    let (pointer, runnable) = TaskPointer::of(runnable);
    if let Some(reserved) = reserved {
        let meta = MetaPointer::of(runnable.metadata());
        reserved.fill(Counted::of(runnable.waker(), meta));
    }
    // SAFETY: the two are of one task.
    let handle = unsafe { JoinHandle::new(id, task.fallible(), pointer) };
    Some(NewTask { runnable, handle })
}

/// A task's future: keeps the books, and its panics to itself.
struct Registered<F> {
    /// Dropped by hand: its destructor may panic, for which async-task ends the process.
    future: ManuallyDrop<F>,
    /// In the same allocation, which lives as long as its future.
    meta: MetaPointer,
}

impl<F: Future> Future for Registered<F> {
    type Output = Product<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned whenever `self` is: nothing moves it, and it is dropped in its place.
        // The metadata lives, since the future does.
        let (this, meta) = unsafe {
            let this = self.get_unchecked_mut();
            let meta = this.meta.get();
            (this, meta)
        };
        let product = |result| Poll::Ready(Product::new(result, &meta.home()));
        // Here, and not before the task is run: async-task has taken the mark away by now that it is
        // scheduled. Who aborted it before that is seen, and who does so later schedules it again.
        if meta.is_aborted() {
            return Poll::Ready(Product::none());
        }
        let mut output = None;
        let future = &mut this.future;
        let poll = || {
            let poll = || {
                // SAFETY: it is pinned, as said above. async-task polls nothing that was ready.
                let pinned = unsafe { Pin::new_unchecked(&mut **future) };
                if let Poll::Ready(ready) = pinned.poll(cx) {
                    output = Some(ready);
                    // Here, since we are inside of the task.
                    meta.drops_future();
                    // SAFETY: it is not used after this, as the mark says.
                    unsafe { ManuallyDrop::drop(future) };
                }
            };
            meta.home().within(|| id::within(meta.id(), poll));
        };
        let caught = catch_unwind(AssertUnwindSafe(poll));
        if output.is_some() {
            if let Some(listed) = meta.end() {
                // SAFETY: async-task polls a task with a waker of this task.
                unsafe { listed.release_as(cx.waker()) };
            }
        }
        match (caught, output) {
            (Ok(()), None) => {
                if meta.place().is_nowhere() {
                    meta.wait(this.meta, cx.waker());
                }
                Poll::Pending
            }
            (Ok(()), Some(output)) => product(Ok(output)),
            (Err(panic), None) => {
                // The panic hook has reported it; whoever joins the task gets it.
                meta.home().count_panic();
                product(Err(panic))
            }
            // Its destructor's.
            (Err(panic), Some(output)) => {
                meta.home().count_panic();
                contained(|| drop(panic));
                product(Ok(output))
            }
        }
    }
}

impl<F> Drop for Registered<F> {
    fn drop(&mut self) {
        // SAFETY: the allocation is there as long as the future is.
        let meta = unsafe { self.meta.get() };
        if !meta.has_ended() {
            self.drop_unfinished(meta);
        }
        meta.home().count_ended();
    }
}

impl<F> Registered<F> {
    /// The task ends without a result.
    #[cold]
    fn drop_unfinished(&mut self, meta: &TaskMeta) {
        if !meta.is_future_dropped() {
            let (home, future) = (meta.home(), &mut self.future);
            // SAFETY: it is not used after this.
            let end = || unsafe { ManuallyDrop::drop(future) };
            home.inside(|| home.contain(|| home.within(|| id::within(meta.id(), end))));
        }
        if let Some(listed) = meta.end() {
            listed.release();
        }
    }
}

/// What a task came to, until somebody joins it. It may outlive the task: async-task takes it out of a task
/// that it frees, and drops it then.
struct Product<T>(ManuallyDrop<Outcome<T>>);

/// (One enum, and small: a task takes as much room as the larger of its future and this.)
enum Outcome<T> {
    /// It was aborted or refused, or this was taken by who joins the task.
    None,
    /// A result without a destructor.
    Bare(T),
    /// A result, or a panic, and where a panic of its destructor is counted: a reference more.
    Owned(Result<T, Panic>, Home),
}

impl<T> Product<T> {
    fn new(result: Result<T, Panic>, home: &Home) -> Self {
        Self(ManuallyDrop::new(match result {
            Ok(output) if !needs_drop::<T>() => Outcome::Bare(output),
            result => Outcome::Owned(result, home.clone()),
        }))
    }

    fn none() -> Self {
        Self(ManuallyDrop::new(Outcome::None))
    }

    /// Its destructor may panic, for which async-task ends the process.
    #[inline(never)]
    fn drop_owned(&mut self) {
        if let Outcome::Owned(result, home) = mem::replace(&mut *self.0, Outcome::None) {
            home.contain(|| drop(result));
        }
    }

    fn take(&mut self) -> Option<Result<T, Panic>> {
        match mem::replace(&mut *self.0, Outcome::None) {
            Outcome::None => None,
            Outcome::Bare(output) => Some(Ok(output)),
            Outcome::Owned(result, _) => Some(result),
        }
    }
}

impl<T> Drop for Product<T> {
    /// Drops what nobody joined. (By hand: most results need no more than this look.)
    #[inline]
    fn drop(&mut self) {
        if let Outcome::Owned(..) = *self.0 {
            self.drop_owned();
        }
    }
}

/// What a task came to, for who joins it.
struct Ended<T> {
    product: Product<T>,
    /// Why there was no thread to run it on, if there was none.
    refusal: Option<io::Error>,
}

impl<T> Ended<T> {
    fn into_result(mut self, id: Id) -> Result<T, JoinError> {
        match self.product.take() {
            Some(Ok(output)) => Ok(output),
            Some(Err(panic)) => Err(JoinError::panicked(id, panic)),
            None => Err(self.refusal.take().map_or_else(
                || JoinError::cancelled(id),
                |why| JoinError::refused(id, why),
            )),
        }
    }
}
