//! Tasks: futures that run on the workers.

pub(crate) mod abort;
pub(crate) mod blocking;
pub(crate) mod id;
pub(crate) mod join;
pub(crate) mod join_set;
pub(crate) mod local;
pub(crate) mod policy;
pub(crate) mod yield_now;

use std::{future::Future, panic::Location, sync::Arc};

use tourbillon_tasks::spawn_unchecked;

use crate::{
    engine::{
        context::placement::{Choice, HomeError, with_home},
        core::WorkerShard,
        job::{Order, TaskJob},
        task_core::{home::Home, meta::TaskMeta, registry, registry::Place},
    },
    error::NO_RUNTIME,
    task::policy::{AnyWorker, Registered, Schedule},
};
pub use crate::{
    task::{
        abort::AbortHandle,
        blocking::{block_in_place, spawn_blocking},
        id::{Id, id, try_id},
        join::{JoinError, JoinHandle},
        join_set::JoinSet,
        local::{
            context::LocalEnterGuard,
            pinned::{spawn_pinned, spawn_pinned_by_idx},
            set::LocalSet,
            spawn_local,
        },
        yield_now::{YieldNow, yield_now},
    },
    util::budget::{Unconstrained, consume_budget, unconstrained},
};

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
    let Some(new) = register::<AnyWorker, _>(home, future, spawned) else {
        // Dropped here, as it would be there.
        return JoinHandle::cancelled();
    };
    home.owner().shared.schedule(new.runnable, Order::Last);
    new.handle
}

/// A new task, which is in the books and not yet scheduled.
struct NewTask<T> {
    runnable: TaskJob,
    handle: JoinHandle<T>,
}

/// Makes a task in the books of the worker `home`, unless the runtime has ended.
fn register<S, F>(
    home: &Arc<WorkerShard>,
    future: F,
    spawned: &'static Location<'static>,
) -> Option<NewTask<F::Output>>
where
    S: Schedule,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let home = Home::worker(home);
    // SAFETY: the future is Send, and so is what it answers.
    unsafe { register_unchecked::<S, F>(home, future, spawned) }
}

/// Makes a task in the books of `home`, unless that has ended.
///
/// # Safety
///
/// If the future is not Send, what `S::schedule` is given is run and dropped on the calling thread;
/// or on another, which is always the same, if the future is Send until it is first polled, and its
/// output is Send.
unsafe fn register_unchecked<S, F>(
    home: Home,
    future: F,
    spawned: &'static Location<'static>,
) -> Option<NewTask<F::Output>>
where
    S: Schedule,
    F: Future + 'static,
    F::Output: 'static,
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
    let meta = TaskMeta::new(spawned, home, id, place);
    // SAFETY: where the task is run and dropped is what the caller has seen to.
    let (runnable, join) = unsafe { spawn_unchecked::<Registered<S>, F>(future, meta) };
    if let Some(reserved) = reserved {
        reserved.fill(runnable.reference());
    }
    let handle = JoinHandle::new(join);
    Some(NewTask { runnable, handle })
}
