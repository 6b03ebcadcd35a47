//! Tasks that stay on their thread, and may hold what is not `Send`.
//!
//! | file | what is there |
//! |---|---|
//! | `queue` | the tasks of one thread that are ready |
//! | `context` | where `spawn_local` puts its tasks |
//! | `pinned` | tasks of one worker |
//! | `set` | `LocalSet`: tasks of whatever thread polls it |
//!
//! **Why it is sound.** Such a task is made by the `spawn_unchecked` of `tourbillon_tasks`, which
//! asks that it be run and dropped on one thread. A [`TaskJob`](crate::engine::local::TaskJob) of it
//! exists while it is queued. It is pushed into the queue of its home and nowhere else; and only
//! the thread that the queue is bound to takes anything out.
//!
//! **How it ends.** A task is on a list of its home's books from before it is queued until its future is
//! gone. Who ends them, on their own thread, [closes](Registry::close_list) the list, so that there are no
//! more; wakes each, so that those that wait are queued; and drops what it takes from the queue until the
//! list is empty. A task that another thread is just waking comes by that thread's push, which is waited
//! for. So when the list is empty nothing can be pushed any more: a waker that is called later finds a task
//! that is over.

pub(crate) mod context;
pub(crate) mod pinned;
pub(crate) mod set;

use std::{future::Future, panic::Location, time::Duration};

use tourbillon_tasks::Woken;

use crate::{
    engine::{
        core::Core,
        job::TaskJob,
        task_core::{home::Home, local_queue::LocalQueue, meta::TaskMeta, registry::Registry},
    },
    task::{join::JoinHandle, policy::Schedule, register_unchecked},
    util::contained::contained,
};

/// For how long who ends tasks waits for a thread that is just waking one.
const MOMENT: Duration = Duration::from_micros(50);

/// Spawns a task that stays on the calling thread, and so need not be `Send`: on the
/// [`LocalSet`] whose task or [`run_until`](LocalSet::run_until) calls this, or that was
/// [entered](LocalSet::enter); or on the worker whose [pinned](spawn_pinned) task calls it, whose tasks
/// are local, too.
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
/// What is said of tasks is said of these: joining, [aborting](JoinHandle::abort) from any thread, panics,
/// numbers, the [budget](crate::util::budget::consume_budget). A result that is not `Send` can be joined on this thread
/// alone, for the handle is not `Send` then:
///
/// ```compile_fail
/// # use std::{rc::Rc, thread};
/// # let set = tourbillon::task::LocalSet::new();
/// let task = set.spawn_local(async { Rc::new(1) });
/// thread::spawn(move || drop(task)); // `Rc<i32>` cannot be sent between threads
/// ```
///
/// Where the set, or the worker, is being ended, the future is dropped, and the handle says cancelled.
///
/// # Panics
///
/// If the thread is in no local context: in a task of [`spawn`](crate::task::spawn), for example, which may be
/// run by any worker, or in the callback of a timer.
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let Some(home) = context::current() else {
        panic!(
            "`spawn_local` was called in no local context: call it in a task or in the `run_until` of a \
             `LocalSet`, after `LocalSet::enter`, or in a task of `spawn_pinned`"
        );
    };
    spawn_here(home, future, Location::caller())
}

/// Spawns a task of `home`, which is the calling thread's.
fn spawn_here<F>(
    home: Home,
    future: F,
    spawned: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: the calling thread is the one that the queue is bound to.
    unsafe { spawn_at::<OnItsThread, F>(home, future, spawned) }
}

/// Spawns a local task.
///
/// # Safety
///
/// `S` schedules as [`OnItsThread`] does.
///
/// The calling thread is the one that the queue of `home` is bound to; or the future is Send before it
/// is first polled, and its output is Send.
unsafe fn spawn_at<S, F>(
    home: Home,
    future: F,
    spawned: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    S: Schedule,
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: the task is queued by its `schedule` alone, and taken, to be run or dropped, by the
    // thread that the queue is bound to: see the head of this file. Where that is another thread
    // than this, the future is Send until then, and its output is Send, as the caller says.
    let new = unsafe { register_unchecked::<S, F>(home, future, spawned) };
    let Some(new) = new else {
        return JoinHandle::cancelled();
    };
    new.runnable.schedule();
    new.handle
}

/// The task goes to the thread of its home, and to no other.
struct OnItsThread;

impl Schedule for OnItsThread {
    fn schedule(task: TaskJob, _: Woken) {
        // The task may be over, and have let go of its home, before this has told whom it is for.
        let home = task.metadata().home().clone();
        home.schedule_local(task);
    }
}

/// Ends all tasks of a list, and lets no more in: see the head of this file. For the thread that the
/// queue is bound to, in none of these tasks.
fn end(tasks: &Registry<TaskMeta>, list: usize, queue: &LocalQueue<TaskJob>) {
    for task in tasks.close_list(list) {
        contained(|| task.wake());
    }
    loop {
        while let Some(task) = queue.take() {
            contained(|| drop(task));
        }
        if tasks.len(list) == 0 {
            return;
        }
        if !queue.has_work() {
            crate::sys::sync::thread::sleep(MOMENT);
        }
    }
}

/// Ends the tasks that are pinned to a worker. On its thread, before it leaves; or on any, if its thread
/// was never started: then none of them was ever polled, and all that they are is Send.
pub(crate) fn end_pinned(core: &Core) {
    let queue = &core.pinned;
    if queue.bind() {
        let tasks = &core.shared.tasks;
        end(tasks, tasks.list_of_pinned(core.index), queue);
    }
}
