//! Tasks that one worker runs, and no other.

use std::{any::type_name, future::Future, marker::PhantomData, panic::Location, sync::Arc};

use tourbillon_tasks::Woken;

use crate::{
    api::handle::Handle,
    engine::{core::WorkerShard, job::TaskJob, task_core::home::Home},
    error::SpawnError,
    task::{
        join::JoinHandle,
        local::{OnItsThread, spawn_at},
        policy::Schedule,
    },
};

/// Runs a task on one worker of the runtime that the calling thread is in, and on no other: `create` is
/// called there, and what it answers may hold what is not `Send`. tokio-util's `LocalPoolHandle` has this
/// name for it.
///
/// The worker is the next in turn, but one that sleeps before one that is awake and may be stuck; to
/// choose it, see [`spawn_pinned_by_idx`]. Inside, [`spawn_local`](super::spawn_local) spawns more on that
/// worker, and timers and sockets that are made there are that worker's. Nobody else can run such a task:
/// it waits while its worker is stuck, or in [`block_in_place`](crate::task::blocking::block_in_place).
///
/// ```
/// use std::{cell::RefCell, rc::Rc};
/// use tourbillon::task::{spawn_local, spawn_pinned};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let words = spawn_pinned(|| async {
///     let words = Rc::new(RefCell::new(Vec::new()));
///     let mine = words.clone();
///     let other = spawn_local(async move { mine.borrow_mut().push("here") });
///     other.await.unwrap();
///     words.take()
/// });
/// assert_eq!(words.await.unwrap(), ["here"]);
/// # });
/// ```
///
/// What is said of tasks is said of these: joining, aborting, panics, also those of `create`, numbers, the
/// budget. At the shutdown of the runtime the future is dropped by its worker's thread.
/// [`shutdown_graceful`](crate::runtime::Runtime::shutdown_graceful) waits for it.
///
/// # Panics
///
/// If the thread is in no runtime.
#[track_caller]
pub fn spawn_pinned<F, Fut>(create: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    Handle::current().spawn_pinned(create)
}

/// As [`spawn_pinned`], on the worker of this number; they are numbered from 0.
///
/// ```
/// use tourbillon::{SpawnError, task::spawn_pinned_by_idx};
///
/// # tourbillon::Runtime::builder().worker_threads(2).build().unwrap().block_on(async {
/// let name = || async { std::thread::current().name().map(str::to_owned) };
/// let task = spawn_pinned_by_idx(name, 1)?;
/// assert_eq!(task.await.unwrap().unwrap(), "tourbillon-1");
///
/// let error = spawn_pinned_by_idx(|| async {}, 2).unwrap_err();
/// assert_eq!(error, SpawnError::NoSuchWorker { worker: 2, workers: 2 });
/// # Ok::<_, SpawnError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// If the thread is in no runtime, the runtime has been shut down, or there is no such worker. (The
/// method of tokio-util's pool panics.) `create` is dropped.
#[track_caller]
pub fn spawn_pinned_by_idx<F, Fut>(
    create: F,
    worker: usize,
) -> Result<JoinHandle<Fut::Output>, SpawnError>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    let handle = Handle::try_current().map_err(|_| SpawnError::NoRuntime)?;
    handle.spawn_pinned_by_idx(create, worker)
}

/// Runs on the worker `home` what `create` makes there; the user asked for it at `spawned`.
pub(crate) fn spawn_pinned_at<F, Fut>(
    home: Arc<WorkerShard>,
    create: F,
    spawned: &'static Location<'static>,
) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    let future = async move { create().await };
    // SAFETY: before it is polled the future has `create` alone, which is Send.
    unsafe { spawn_at::<NamedBy<Fut>, _>(Home::pinned(&home), future, spawned) }
}

/// The task goes to its thread, and has the name of `Fut`, which its future will make.
struct NamedBy<Fut>(PhantomData<Fut>);

impl<Fut: 'static> Schedule for NamedBy<Fut> {
    fn schedule(task: TaskJob, woken: Woken) {
        OnItsThread::schedule(task, woken);
    }

    fn name<F>() -> &'static str {
        type_name::<Fut>()
    }
}
