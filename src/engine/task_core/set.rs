//! The state that a [`LocalSet`](crate::task::LocalSet) shares with its tasks and their wakers.

use std::{mem, task::Waker};

use crate::{
    engine::{
        job::TaskJob,
        task_core::{
            local_queue::{LocalQueue, Pushed},
            meta::TaskMeta,
            registry::Registry,
        },
    },
    sys::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    util::{
        contained::{contained, each_or, forget},
        lock::lock,
    },
};

/// The shared part of a `LocalSet`.
#[repr(align(128))]
pub(crate) struct Set {
    pub(crate) queue: LocalQueue<TaskJob>,
    pub(crate) tasks: Registry<TaskMeta>,
    pub(crate) waiting: Mutex<Waiting>,
    /// Whether the set is being polled. The polling code checks the queue before it returns, so a
    /// push by the set's thread need not wake it. Only the set's thread accesses this.
    pub(crate) polled: AtomicBool,
    /// Whether the panic of a task cancels all, and whether one has. Only the set's thread accesses
    /// both.
    #[cfg(feature = "facade")]
    pub(crate) unhandled_panic: [AtomicBool; 2],
}

/// The waiters of a set: the waker of each, by its number.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) wakers: Vec<(u64, Waker)>,
    last_number: u64,
}

#[cfg(feature = "facade")]
impl Set {
    /// Cancels all tasks, if the set was told so, after one has panicked.
    #[cold]
    pub(crate) fn task_panicked(&self) {
        let [shuts_down, has_panicked] = &self.unhandled_panic;
        if shuts_down.load(Relaxed) {
            has_panicked.store(true, Relaxed);
            each_or(self.tasks.close_list(0), |task| task.wake(), forget);
            // The task that panicked is not there: it runs.
            each_or(std::iter::from_fn(|| self.queue.take()), drop, forget);
        }
    }

    /// Panics if the tasks were cancelled because one has panicked.
    pub(crate) fn assert_no_panic(&self) {
        assert!(
            !self.unhandled_panic[1].load(Relaxed),
            "a spawned task panicked and the LocalSet is configured to shutdown on unhandled panic"
        );
    }
}

impl Set {
    /// Queues a task that is ready, from any thread.
    pub(crate) fn schedule(&self, task: TaskJob) {
        let pushed = self.queue.push(task);
        // A push by the set's own thread, while the set is polled, is found by that poll.
        if pushed == Pushed::Remote || !self.polled.load(Relaxed) {
            self.wake();
        }
    }

    /// Wakes all waiters of the set. The first that polls runs the queued tasks.
    pub(crate) fn wake(&self) {
        // Take all wakers out, and wake them after unlocking.
        let wakers = mem::take(&mut lock(&self.waiting).wakers);
        // A waker is user code. If it panics, the others are still woken.
        each_or(wakers, |(_, waker)| waker.wake(), forget);
    }

    /// Begins to wait for the set, under a new number.
    pub(crate) fn begin(&self) -> Waiter<'_> {
        let mut waiting = lock(&self.waiting);
        waiting.last_number += 1;
        Waiter {
            set: self,
            number: waiting.last_number,
        }
    }

    /// Stores the waker of the waiter with this number.
    pub(crate) fn register(&self, number: u64, waker: &Waker) {
        // Clone before locking and drop after unlocking: wakers are user code.
        let mut new = waker.clone();
        let mut waiting = lock(&self.waiting);
        let ours = waiting.wakers.iter_mut().find(|(it, _)| *it == number);
        let _old = match ours {
            Some((_, old)) => {
                mem::swap(old, &mut new);
                Some(new)
            }
            None => {
                waiting.wakers.push((number, new));
                None
            }
        };
        drop(waiting);
    }
}

/// A waiter of a set, until it is dropped.
pub(crate) struct Waiter<'a> {
    set: &'a Set,
    pub(crate) number: u64,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        let ours = {
            let mut waiting = lock(&self.set.waiting);
            let at = waiting.wakers.iter().position(|(it, _)| *it == self.number);
            at.map(|at| waiting.wakers.swap_remove(at))
        };
        // Drop the waker after unlocking: its destructor is user code.
        contained(|| drop(ours));
        // Tasks that were woken while this waiter polled were left to it: wake the others for them.
        if self.set.queue.has_work() {
            self.set.wake();
        }
    }
}

/// Marks the set as being polled, until it is dropped.
pub(crate) struct Polling<'a>(&'a Set);

impl<'a> Polling<'a> {
    pub(crate) fn begin(set: &'a Set) -> Self {
        // From here on a push by this thread wakes no waiter: the poll finds it before it returns.
        set.polled.store(true, Relaxed);
        Self(set)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        // A nested poll, by one of the set's own tasks that may block now, also clears the flag.
        // The outer poll is then woken without need, which is harmless.
        self.0.polled.store(false, Relaxed);
    }
}
