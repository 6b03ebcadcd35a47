//! Work that blocks, on threads of its own.

use std::{
    future::Future,
    panic::Location,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use tourbillon_tasks::Woken;

use crate::{
    engine::{
        context::placement::{Choice, HomeError, with_home},
        core::WorkerShard,
        job::TaskJob,
    },
    error::NO_RUNTIME,
    task::{join::JoinHandle, policy::Schedule, register},
};

/// Runs `f`, which may block, on a thread that is there for it, of the runtime that the calling thread
/// is in.
///
/// For system calls that wait, for files, for locks that are held for long, and for computations of
/// more than some 100 µs: on a worker they would keep its timers and sockets waiting. The threads are
/// named `tourbillon-blocking-0` and so on. One is started if none is idle, up to
/// [`max_blocking_threads`](crate::runtime::Builder::max_blocking_threads); past that `f` waits for its
/// turn, first come first served. One that has been idle for
/// [`thread_keep_alive`](crate::runtime::Builder::thread_keep_alive) ends. They are pinned to no core:
/// they may run wherever the process may. They are in the context of the runtime, so `f` may arm timers
/// and spawn tasks, and it may call [`Handle::block_on`](crate::runtime::Handle::block_on).
///
/// - A panic of `f` goes to who awaits the handle, as that of a task.
/// - [`abort`](JoinHandle::abort) drops `f` if it has not begun, and does nothing if it has.
/// - Dropping the handle lets `f` run on.
/// - When the runtime is shut down after this has returned, `f` runs all the same, if it can begin
///   within the time that the shutdown has:
///   [how long that is](crate::runtime::Runtime#blocking-jobs-at-the-shutdown). When the shutdown has begun
///   before, `f` is dropped unrun, and the handle says cancelled.
/// - Where the system gives no thread, `f` waits for one that there is. If there is none at all, it is
///   dropped, and the handle gives an error that [is refused](crate::task::join::JoinError::is_refused).
/// - On a [paused clock](crate::time::paused::pause) the time stands still until `f` is through, but while it
///   waits in `block_on`.
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
/// If the thread is in no runtime.
#[track_caller]
pub fn spawn_blocking<F, R>(f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    match with_home(Choice::InTurn, Arc::clone) {
        Ok(home) => spawn_blocking_at(&home, f),
        Err(HomeError::Shutdown) => JoinHandle::cancelled(),
        Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
    }
}

/// Runs `f`, which may block, here and now, and lets others do meanwhile what this worker should.
///
/// For a callback, or a task, that has to block in the midst of what it does and cannot give that away to
/// [`spawn_blocking`]. The tasks and callbacks that wait for this worker are passed on at once; its timers
/// and sockets are seen to by its peers, as those of any worker that is
/// [stuck](crate::runtime::Builder::rescue_grace), and without waiting to see whether it is. If all peers are
/// busy, or there are none, a [helper](crate::runtime::Builder::helpers) is started for them, which is in
/// addition to those that the runtime may have. `f` may call
/// [`Handle::block_on`](crate::runtime::Handle::block_on).
///
/// What this thread alone may run waits: tasks that are [pinned](crate::task::local::pinned::spawn_pinned) to this worker, and
/// those of a [`LocalSet`](crate::task::local::set::LocalSet) that is waited for here. An `f` that waits for one of them, in
/// `block_on` say, waits for ever.
///
/// The task that calls this does not go on before `f` is through, nor does anything else that it is
/// about, such as the other branches of a `select!`. On a thread that is no worker `f` is just called, and
/// so it is inside of another `block_in_place`. On a [paused clock](crate::time::paused::pause) the time stands
/// still until `f` is through, in a `block_on` too: one that waits there for a timer waits for ever.
///
/// ```
/// use std::{thread, time::Duration};
/// use tourbillon::task::block_in_place;
///
/// # fn main() -> Result<(), tourbillon::BuildError> {
/// let runtime = tourbillon::Runtime::builder().worker_threads(1).build()?;
/// runtime.block_on(async {
///     let blocks = tourbillon::spawn(async {
///         let other = tourbillon::spawn(async { 42 });
///         // The only worker waits for a task, which a helper runs.
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
/// As `f` does.
pub fn block_in_place<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    crate::engine::in_place::block_in_place(f)
}

/// Runs `f` on a blocking thread, in the books of the worker `home`.
#[track_caller]
pub(crate) fn spawn_blocking_at<F, R>(home: &Arc<WorkerShard>, f: F) -> JoinHandle<R>
where
    F: FnOnce() -> R + Send + 'static,
    R: Send + 'static,
{
    let Some(new) = register::<NeverWoken, _>(home, Call(Some(f)), Location::caller()) else {
        return JoinHandle::cancelled();
    };
    let shared = &home.owner().shared;
    let number = shared.blocking.push(shared, new.runnable);
    new.handle.queued(number)
}

/// A job is queued from the beginning, and has ended when it was polled.
struct NeverWoken;

impl Schedule for NeverWoken {
    fn schedule(task: TaskJob, _: Woken) {
        drop(task);
    }
}

/// Calls what it holds when it is polled.
struct Call<F>(Option<F>);

/// What it holds is not pinned, but taken out.
impl<F> Unpin for Call<F> {}

impl<F: FnOnce() -> R, R> Future for Call<F> {
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<R> {
        // Polled again, which nobody does, it stays as it is.
        self.0.take().map_or(Poll::Pending, |f| Poll::Ready(f()))
    }
}
