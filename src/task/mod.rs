//! Tasks: futures that run on the workers.

pub(crate) mod abort;
pub(crate) mod blocking;
pub(crate) mod builder;
pub(crate) mod group;
mod handle;
pub(crate) mod join;
pub(crate) mod join_set;
pub(crate) mod label;
pub(crate) mod local;
pub(crate) mod policy;
pub(crate) mod task_local;
#[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
pub(crate) mod traced;
pub(crate) mod yield_now;

use std::{future::Future, sync::Arc};

use tourbillon_tasks::spawn_unchecked;

use crate::{
    engine::{
        context::{
            group::current as present_group,
            placement::{Choice, HomeError, with_home},
        },
        core::WorkerShard,
        groups::GroupId,
        job::{Job, Order, TaskJob},
        task_core::{home::Home, meta::TaskMeta, registry, registry::Place},
    },
    error::NO_RUNTIME,
    metrics::spawned::Spawned,
    task::policy::{AnyWorker, Registered, Schedule},
};
pub use crate::{
    engine::{
        task_core::id::{Id, id, try_id},
        telemetry::polls::{PollTimes, PresentPoll, TaskPolls, ThreadPolls},
    },
    metrics::label::Label,
    task::{
        abort::AbortHandle,
        blocking::{block_in_place, spawn_blocking},
        builder::Builder,
        group::{Group, GroupBuilder, Scope},
        join::{JoinError, JoinHandle},
        join_set::JoinSet,
        label::label,
        local::{
            context::LocalEnterGuard,
            pinned::{spawn_pinned, spawn_pinned_by_idx},
            set::LocalSet,
            spawn_local,
        },
        task_local::{AccessError, LocalKey, TaskLocalFuture},
        yield_now::{YieldNow, yield_now},
    },
    util::budget::{Unconstrained, consume_budget, unconstrained},
};

/// The budget of a task: how many operations it may do before it lets other tasks run.
///
/// Each poll of a task has a budget of 128 operations, and the futures of this crate spend it: see
/// [`consume_budget`]. The functions here let other futures spend it, too.
pub mod coop {
    pub use crate::util::budget::{
        Coop, RestoreOnPending, Unconstrained, consume_budget, cooperative, has_budget_remaining,
        poll_proceed, unconstrained,
    };
}

/// Spawns a task on the runtime that the calling thread is in, and returns a handle to its result.
///
/// The task starts running without being awaited. Dropping the handle detaches the task, which runs
/// on. If the runtime has been shut down, the task is cancelled at once.
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
/// Panics if the calling thread is in no runtime.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_as(Spawned::here(), future)
}

/// Spawns a task on the runtime of the calling thread.
///
/// # Panics
///
/// As [`spawn`].
#[track_caller]
fn spawn_as<F>(spawned: Spawned, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match with_home(Choice::InTurn, |home| spawn_at(home, future, spawned)) {
        Ok(handle) => handle,
        Err(HomeError::Shutdown) => JoinHandle::cancelled(),
        Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
    }
}

/// Spawns a task in the registry of worker `home`, in the group of the calling thread. The user's
/// call is at `spawned`.
pub(crate) fn spawn_at<F>(
    home: &Arc<WorkerShard>,
    future: F,
    spawned: Spawned,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let group = present_group(&home.owner().shared);
    spawn_in(home, group, future, spawned)
}

/// As [`spawn_at`], in this group.
pub(crate) fn spawn_in<F>(
    home: &Arc<WorkerShard>,
    group: GroupId,
    future: F,
    spawned: Spawned,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let Some(new) = register::<AnyWorker, _>(home, group, future, spawned) else {
        // `register` has dropped the future on this thread, as the worker would have.
        return JoinHandle::cancelled();
    };
    #[cfg(feature = "facade")]
    crate::engine::facade::tell_spawned(new.runnable.metadata().home(), new.handle.id(), spawned);
    #[cfg(all(feature = "facade", tokio_unstable))]
    crate::engine::facade::note_queued(&new.runnable);
    let shared = &home.owner().shared;
    match group {
        GroupId::DEFAULT => shared.schedule(new.runnable, Order::Last),
        group => shared.queue_in(group, Job::Task(new.runnable)),
    }
    new.handle
}

/// A new task that is registered but not yet scheduled.
struct NewTask<T> {
    runnable: TaskJob,
    handle: JoinHandle<T>,
}

/// Creates a task of this group in the registry of worker `home`. Returns `None` if the runtime has
/// ended.
fn register<S, F>(
    home: &Arc<WorkerShard>,
    group: GroupId,
    future: F,
    spawned: Spawned,
) -> Option<NewTask<F::Output>>
where
    S: Schedule,
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let home = Home::worker(home, group);
    // SAFETY: the future is Send, and so is its output.
    unsafe { register_unchecked::<S, F>(home, future, spawned) }
}

/// Creates a task in the registry of `home`. Returns `None` if the registry is closed.
///
/// # Safety
///
/// If the future is not Send, `S::schedule` must run and drop each task that it is given on the
/// calling thread. Another thread is allowed, always the same one, if the future is Send until it
/// is first polled and its output is Send.
unsafe fn register_unchecked<S, F>(
    home: Home,
    future: F,
    spawned: Spawned,
) -> Option<NewTask<F::Output>>
where
    S: Schedule,
    F: Future + 'static,
    F::Output: 'static,
{
    let tasks = home.tasks();
    // Refuse early, before memory is allocated. A close after this check is found when the task is
    // listed.
    if tasks.is_closed() {
        return None;
    }
    let id = Id::fresh();
    // A span calls the user's subscriber: make it before a list is locked and a task is counted.
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    let future = traced::task::<S, F>(future, spawned, id);
    let list = home.initial_list();
    // Local tasks are listed before they are queued: reserve their place in the list now. This
    // needs a second reference to the home, since the first moves into the task.
    let local = list.is_some().then(|| home.clone());
    let reserved = match (&local, list) {
        (Some(home), Some(list)) => Some(home.tasks().reserve(list)?),
        _ => None,
    };
    let place = reserved
        .as_ref()
        .map_or(Place::NOWHERE, registry::Reserved::place);
    // Count the task before it can run, since its end is counted, too.
    home.count_begun();
    // The metadata is allocated with the future, in one block.
    #[allow(unused_mut, reason = "the span of the task")]
    let mut meta = TaskMeta::new(spawned, home, id, place);
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    let (runnable, join) = {
        meta.span = traced::number(&future);
        // SAFETY: the caller guarantees on which thread the task is run and dropped.
        unsafe { spawn_unchecked::<Registered<traced::Inside<S, F>>, _>(future, meta) }
    };
    #[cfg(not(all(feature = "facade", feature = "tracing", tokio_unstable)))]
    // SAFETY: the caller guarantees on which thread the task is run and dropped.
    let (runnable, join) = unsafe { spawn_unchecked::<Registered<S>, F>(future, meta) };
    if let Some(reserved) = reserved {
        // The list stays locked from the reservation until here, so a close finds the task or
        // refuses it.
        reserved.fill(runnable.reference());
    }
    let handle = JoinHandle::new(join);
    Some(NewTask { runnable, handle })
}
