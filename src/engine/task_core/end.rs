//! The end of tasks that stay on one thread. `task/local` says why no task is left behind.

use std::{iter, time::Duration};

use crate::{
    engine::{
        core::Core,
        job::TaskJob,
        task_core::{local_queue::LocalQueue, meta::TaskMeta, registry::Registry},
    },
    sys::sync::thread,
    util::contained::{each_or, forget},
};

/// Pause between checks, while the ending thread waits for another thread's push.
const PAUSE: Duration = Duration::from_micros(50);

/// Ends all tasks of a list, and lets no more in: see the head of `task/local`. Must be called on
/// the thread that the queue is bound to, and not in one of these tasks.
pub(crate) fn end_tasks(tasks: &Registry<TaskMeta>, list: usize, queue: &LocalQueue<TaskJob>) {
    // Close the list, and wake each task: a task that is woken is queued.
    each_or(tasks.close_list(list), |task| task.wake(), forget);
    loop {
        // Dropping a task takes it off the list.
        each_or(iter::from_fn(|| queue.take()), drop, forget);
        if tasks.len(list) == 0 {
            return;
        }
        // A remote thread has woken a task and has yet to push it.
        if !queue.has_work() {
            thread::sleep(PAUSE);
        }
    }
}

/// Ends the tasks that are pinned to a worker.
///
/// Must be called on the worker's thread before it leaves. If that thread was never started, any
/// thread may call it: then no task was polled, and everything in the tasks is Send.
pub(crate) fn end_pinned(core: &Core) {
    let queue = &core.pinned;
    if queue.bind() {
        let tasks = &core.shared.tasks;
        end_tasks(tasks, tasks.list_of_pinned(core.index), queue);
    }
}
