//! Tasks that stay on one thread, and so may hold values that are not `Send`.
//!
//! | file | contents |
//! |---|---|
//! | `context` | the local context of a thread, which decides where `spawn_local` puts its tasks |
//! | `pinned` | tasks of one worker |
//! | `set` | `LocalSet`: tasks of the thread that polls the set |
//!
//! **Why it is sound.** A local task is made by `spawn_unchecked` of `tourbillon_tasks`, which
//! requires that one thread runs and drops it. While the task is queued, a [`TaskJob`] of it
//! exists. It is pushed into the queue of its home and nowhere else, and only the thread that the
//! queue is bound to takes jobs out of the queue.
//!
//! **How it ends.** A task is on a list of its home's registry from before it is queued until its
//! future is gone. The thread that ends the tasks (`end_tasks`) is the one that the queue is bound
//! to. It closes the list (`Registry::close_list`), so that no task is added; wakes each task, so
//! that waiting tasks are queued; and drops what it takes from the queue until the list is empty.
//! If another thread is just waking a task, the ending thread waits for that push. So once the list
//! is empty nothing can be pushed any more: a waker that is called later finds that its task has
//! ended.

pub(crate) mod context;
pub(crate) mod pinned;
pub(crate) mod set;

use std::future::Future;

use tourbillon_tasks::Woken;

use crate::{
    engine::{job::TaskJob, task_core::home::Home},
    metrics::spawned::Spawned,
    task::{join::JoinHandle, policy::Schedule, register_unchecked},
};

/// Spawns a task that stays on the calling thread, and so need not be `Send`.
///
/// The task goes to the local context of the thread: to the [`LocalSet`](crate::task::LocalSet)
/// whose task or [`run_until`](crate::task::LocalSet::run_until) calls this, or that was
/// [entered](crate::task::LocalSet::enter); or to the worker whose
/// [pinned](crate::task::spawn_pinned) task, or whose local task, calls this.
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use tourbillon::task::{LocalSet, spawn_local};
///
/// let runtime = tourbillon::Runtime::new().unwrap();
/// let sum = Rc::new(Cell::new(0));
/// LocalSet::new().block_on(&runtime, async {
///     let tasks = (1..=3).map(|n| {
///         let sum = sum.clone();
///         spawn_local(async move { sum.set(sum.get() + n) })
///     });
///     for task in tasks.collect::<Vec<_>>() {
///         task.await.unwrap();
///     }
/// });
/// assert_eq!(sum.get(), 6);
/// ```
///
/// Local tasks can be joined, and [aborted](JoinHandle::abort) from any thread, like other tasks.
/// They have numbers and a [budget](crate::util::budget::consume_budget), and their panics are
/// caught. If the result is not `Send`, the handle is not `Send` either, so only this thread can
/// join the task:
///
/// ```compile_fail
/// # use std::{rc::Rc, thread};
/// # let set = tourbillon::task::LocalSet::new();
/// let task = set.spawn_local(async { Rc::new(1) });
/// thread::spawn(move || drop(task)); // `Rc<i32>` cannot be sent between threads
/// ```
///
/// If the set or the worker is ending, the future is dropped, and the handle returns a "cancelled"
/// error.
///
/// # Panics
///
/// Panics if the calling thread is in no local context. That is the case in a task of
/// [`spawn`](crate::task::spawn), which any worker may run, and in the callback of a timer.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_local_as(Spawned::here(), future)
}

/// Spawns a task in the local context of the calling thread.
///
/// # Panics
///
/// As [`spawn_local`].
#[track_caller]
pub(super) fn spawn_local_as<F>(spawned: Spawned, future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let home = context::current();
    #[cfg(feature = "facade")]
    let home = home.or_else(crate::engine::facade::local_home);
    let Some(home) = home else {
        #[cfg(feature = "facade")]
        if crate::engine::facade::has_local_ended() {
            return JoinHandle::cancelled();
        }
        panic!(
            "`spawn_local` called from outside of a `task::LocalSet` or `runtime::LocalRuntime`: call \
             it in a task or in the `run_until` of a `LocalSet`, after `LocalSet::enter`, or in a \
             task of `spawn_pinned`"
        );
    };
    spawn_here(home, future, spawned)
}

/// Spawns a task of `home`, whose queue is bound to the calling thread.
pub(crate) fn spawn_here<F>(home: Home, future: F, spawned: Spawned) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: the calling thread is the one that the queue is bound to.
    unsafe { spawn_at::<OnItsThread, F>(home.in_present_group(), future, spawned) }
}

/// Spawns a local task. `S` says under which name metrics and stall reports show it.
///
/// # Safety
///
/// `S` must schedule as [`OnItsThread`] does.
///
/// The calling thread must be the one that the queue of `home` is bound to; or the future must be
/// Send until it is first polled, and its output must be Send.
unsafe fn spawn_at<S, F>(home: Home, future: F, spawned: Spawned) -> JoinHandle<F::Output>
where
    S: Schedule,
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: only the task's `schedule` queues it, and only the thread that the queue is bound to
    // takes it out, to run or drop it: see the head of this file. If that is another thread, the
    // caller guarantees that the future is Send until then and that its output is Send.
    let new = unsafe { register_unchecked::<S, F>(home, future, spawned) };
    let Some(new) = new else {
        return JoinHandle::cancelled();
    };
    #[cfg(feature = "facade")]
    {
        let meta = new.runnable.metadata();
        crate::engine::facade::tell_spawned(meta.home(), meta.id(), spawned);
    }
    new.runnable.schedule();
    new.handle
}

/// Scheduling policy of local tasks: they go to the queue of their home, and to no other.
struct OnItsThread;

impl Schedule for OnItsThread {
    #[cfg(all(feature = "facade", feature = "tracing", tokio_unstable))]
    const KIND: &'static str = "local";

    fn schedule(task: TaskJob, _: Woken) {
        // Clone the home first: once the task is pushed, its thread may run and free it.
        let home = task.metadata().home().clone();
        home.schedule_local(task);
    }
}
