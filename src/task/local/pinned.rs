//! Tasks that one worker runs, and no other.

use std::{any::type_name, future::Future, marker::PhantomData, sync::Arc};

use tourbillon_tasks::Woken;

use crate::{
    engine::{core::WorkerShard, handle::Handle, job::TaskJob, task_core::home::Home},
    error::SpawnError,
    metrics::spawned::Spawned,
    task::{
        join::JoinHandle,
        local::{OnItsThread, spawn_at},
        policy::Schedule,
    },
};

/// Spawns a task that runs on one worker only, of the runtime that the calling thread is in.
///
/// `create` is called on that worker, and the future that it returns may hold values that are not
/// `Send`. tokio-util's `LocalPoolHandle` uses the same name.
///
/// The runtime takes the workers in turn, but prefers a worker that sleeps to one that is awake and
/// may be blocked. [`spawn_pinned_by_idx`] selects a certain worker. In the task,
/// [`spawn_local`](super::spawn_local) spawns more tasks on that worker, and timers and sockets
/// that are created there belong to that worker. No other worker can run a pinned task: it waits
/// while its worker is blocked, or in [`block_in_place`](crate::task::blocking::block_in_place).
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
/// Pinned tasks can be joined and aborted, and have numbers and a budget, like other tasks. A panic
/// of `create` counts as the task's. At the shutdown of the runtime the worker's thread drops the
/// future. [`shutdown_graceful`](crate::runtime::Runtime::shutdown_graceful) waits for the task.
///
/// # Panics
///
/// Panics if the calling thread is in no runtime.
#[track_caller]
pub fn spawn_pinned<F, Fut>(create: F) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    Handle::current().spawn_pinned(create)
}

/// Spawns a task that runs only on worker number `worker`, as [`spawn_pinned`] does for any worker.
///
/// Workers are numbered from 0.
///
/// ```
/// use tourbillon::{SpawnError, task::spawn_pinned_by_idx};
///
/// # tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap().block_on(async {
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
/// Returns an error, and drops `create`, if the calling thread is in no runtime, if the runtime has
/// been shut down, or if there is no such worker. (The method of tokio-util's pool panics.)
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

/// Spawns on worker `home` the task that `create` makes there. The user's call is at `spawned`.
pub(crate) fn spawn_pinned_at<F, Fut>(
    home: Arc<WorkerShard>,
    create: F,
    spawned: Spawned,
) -> JoinHandle<Fut::Output>
where
    F: FnOnce() -> Fut + Send + 'static,
    Fut: Future + 'static,
    Fut::Output: Send + 'static,
{
    // `create` runs in the first poll, on the worker's thread. From then on the future may hold
    // values that are not `Send`.
    let future = async move { create().await };
    let home = Home::pinned(&home).in_present_group();
    // SAFETY: before it is first polled the future holds only `create`, which is Send.
    unsafe { spawn_at::<NamedBy<Fut>, _>(home, future, spawned) }
}

/// Schedules a task on its thread. The task has the name of `Fut`, which its future will create.
struct NamedBy<Fut>(PhantomData<Fut>);

impl<Fut: 'static> Schedule for NamedBy<Fut> {
    fn schedule(task: TaskJob, woken: Woken) {
        OnItsThread::schedule(task, woken);
    }

    fn name<F>() -> &'static str {
        type_name::<Fut>()
    }
}
