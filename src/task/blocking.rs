//! Blocking work: on threads for blocking jobs, or in place on a worker.

use std::{
    any::type_name,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tourbillon_tasks::Woken;

use crate::{
    engine::{
        context::{
            group,
            placement::{Choice, HomeError, with_home},
        },
        core::WorkerShard,
        job::TaskJob,
    },
    error::NO_RUNTIME,
    metrics::spawned::Spawned,
    task::{join::JoinHandle, policy::Schedule, register},
};

/// Runs `f`, which may block, on a thread for blocking jobs, in the runtime that the calling thread
/// is in.
///
/// Use it for system calls that wait, for files, for locks that are held for long, and for
/// computations of more than some 100 µs. On a worker these would delay its timers and sockets.
///
/// The threads are named `tourbillon-blocking-0` and so on. If none is idle, the runtime starts
/// one, up to [`max_blocking_threads`](crate::runtime::Builder::max_blocking_threads). Beyond
/// that, and beyond the bound of [their group](crate::task::GroupBuilder::max_blocking_threads),
/// jobs wait in the order in which they came. A thread that has been idle for
/// [`thread_keep_alive`](crate::runtime::Builder::thread_keep_alive) ends. The threads are not
/// pinned to cores. They are in the context of the runtime: `f` may arm timers, spawn tasks, and
/// call [`Handle::block_on`](crate::runtime::Handle::block_on).
///
/// - A panic of `f` is caught, and awaiting the handle returns it, as for a task.
/// - [`abort`](JoinHandle::abort) drops `f` if it has not begun, and does nothing if it has.
/// - Dropping the handle detaches `f`, which runs on.
/// - If the runtime is shut down after this has returned, `f` still runs if it can begin in the
///   time that the [shutdown leaves](crate::runtime::Runtime#blocking-jobs-at-shutdown). If the
///   shutdown has begun before this call, `f` is dropped, and the handle returns a "cancelled"
///   error.
/// - If the system refuses a new thread, `f` waits for an existing one. If there is none, `f` is
///   dropped, and the handle returns an error for which
///   [`is_refused`](crate::task::join::JoinError::is_refused) holds.
/// - A [paused clock](crate::time::paused::pause) does not advance before `f` has ended, except
///   while `f` waits in `block_on`.
///
/// ```
/// use tourbillon::task::spawn_blocking;
///
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// tourbillon::Runtime::new()?.block_on(async {
///     let read = spawn_blocking(|| std::fs::read_to_string("/proc/self/comm"));
///     assert!(!read.await.unwrap().unwrap().is_empty());
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Panics if the calling thread is in no runtime.
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    spawn_blocking_as(Spawned::here(), f)
}

/// Runs `f` on a thread for blocking jobs of the calling thread's runtime.
///
/// # Panics
///
/// As [`spawn_blocking`].
#[track_caller]
pub(super) fn spawn_blocking_as<F, R>(spawned: Spawned, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    match with_home(Choice::InTurn, Arc::clone) {
        Ok(home) => spawn_blocking_at(&home, spawned, f),
        Err(HomeError::Shutdown) => JoinHandle::cancelled(),
        Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
    }
}

/// Runs `f`, which may block, on the calling thread, and lets peers do the worker's other jobs
/// meanwhile.
///
/// Use it in a callback or task that has to block in the middle of its work, and cannot move that
/// part to [`spawn_blocking`]. Peers take over the worker's queued tasks and callbacks at once.
/// They also take over its timers and sockets, as for a worker that is
/// [blocked](crate::runtime::Builder::rescue_latency), but without a delay. If all peers are busy,
/// or there are none, the runtime starts a [helper](crate::runtime::Builder::helpers), in addition
/// to those that the options allow. `f` may call
/// [`Handle::block_on`](crate::runtime::Handle::block_on).
///
/// Tasks that only this thread may run wait for `f`: tasks that are
/// [pinned](crate::task::local::pinned::spawn_pinned) to this worker, and tasks of a
/// [`LocalSet`](crate::task::local::set::LocalSet) that is awaited on it. If `f` waits for such a
/// task, for example in `block_on`, it waits forever.
///
/// The calling task does not continue before `f` has returned, and neither do other branches of a
/// `select!` in it. On a thread that is not a worker, on a [current-thread
/// runtime](crate::runtime::Builder::new_current_thread), and inside of another `block_in_place`,
/// this only calls `f`. A [paused clock](crate::time::paused::pause) does not advance before `f`
/// has returned, not even in a `block_on`: if `f` waits there for a timer, it waits forever.
///
/// ```
/// use std::{thread, time::Duration};
/// use tourbillon::task::block_in_place;
///
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// let runtime = tourbillon::runtime::Builder::new().worker_threads(1).build()?;
/// runtime.block_on(async {
///     let blocks = tourbillon::spawn(async {
///         let other = tourbillon::spawn(async { 42 });
///         // The only worker waits for a task. A helper runs that task.
///         let handle = tourbillon::Handle::current();
///         block_in_place(move || handle.block_on(other).unwrap())
///     });
///     assert_eq!(blocks.await.unwrap(), 42);
/// });
/// # Ok(())
/// # }
/// ```
///
/// # Panics
///
/// Panics if `f` panics.
pub fn block_in_place<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    crate::engine::in_place::block_in_place(f)
}

/// Runs `f` on a blocking thread, as a task in the registry of worker `home`.
pub(crate) fn spawn_blocking_at<F, R>(
    home: &Arc<WorkerShard>,
    spawned: Spawned,
    f: F,
) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let shared = &home.owner().shared;
    // What `f` spawns belongs to the group of the caller.
    let group = group::current(shared);
    let Some(new) = register::<NeverWoken, _>(home, group, Call(Some(f)), spawned) else {
        return JoinHandle::cancelled();
    };
    // By this number an abort finds the job in the queue, as long as it has not begun.
    let number = shared.blocking.push(shared, new.runnable);
    new.handle.queued(number)
}

/// Scheduling policy of blocking jobs. A job is queued when it is made and ends at its first poll,
/// so nothing schedules it again.
struct NeverWoken;

impl Schedule for NeverWoken {
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    const KIND: &'static str = "blocking";

    fn schedule(task: TaskJob, _: Woken) {
        drop(task);
    }

    /// A blocking job has the name of the user's function.
    fn name<F>() -> &'static str {
        let name = type_name::<F>();
        let inner = name.strip_prefix(concat!(module_path!(), "::Call<"));
        inner.and_then(|it| it.strip_suffix('>')).unwrap_or(name)
    }
}

/// A future that calls `f` when it is first polled.
struct Call<F>(Option<F>);

/// `f` is not pinned: the poll moves it out.
impl<F> Unpin for Call<F> {}

impl<F: FnOnce() -> R, R> Future for Call<F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        // A second poll never happens. It would stay pending.
        self.0.take().map_or(Poll::Pending, |f| Poll::Ready(f()))
    }
}
