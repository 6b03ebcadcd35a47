//! What the tasks of a [`LocalSet`](crate::task::LocalSet) and their wakers share.

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
    util::{contained::contained, lock::lock},
};

/// What the tasks of a set, and their wakers, share.
pub(crate) struct Set {
    pub(crate) queue: LocalQueue<TaskJob>,
    pub(crate) tasks: Registry<TaskMeta>,
    pub(crate) waiting: Mutex<Waiting>,
    /// Whether the set is being polled: who does that looks at the queue before it returns. Written and
    /// read by the set's thread alone.
    pub(crate) polled: AtomicBool,
}

/// Who waits for a set, each with a number.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) wakers: Vec<(u64, Waker)>,
    numbers: u64,
}

impl Set {
    /// Queues a task that became ready, from any thread.
    pub(crate) fn schedule(&self, task: TaskJob) {
        let pushed = self.queue.push(task);
        if pushed == Pushed::Elsewhere || !self.polled.load(Relaxed) {
            self.wake();
        }
    }

    /// Wakes all who wait for the set: whichever comes first runs what there is.
    pub(crate) fn wake(&self) {
        let wakers = mem::take(&mut lock(&self.waiting).wakers);
        for (_, waker) in wakers {
            // Foreign code. One that panics keeps no other from being woken.
            contained(|| waker.wake());
        }
    }

    /// Somebody begins to wait for the set.
    pub(crate) fn begin(&self) -> Waiter<'_> {
        let mut waiting = lock(&self.waiting);
        waiting.numbers += 1;
        Waiter {
            set: self,
            number: waiting.numbers,
        }
    }

    /// Leaves the waker of who waits under this number.
    pub(crate) fn register(&self, number: u64, waker: &Waker) {
        // Wakers are foreign code: cloned and dropped under no lock.
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

/// Who waits for a set, until this is dropped.
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
        contained(|| drop(ours));
        // What was woken while this one polled was left to it; the others go on with that.
        if self.set.queue.has_work() {
            self.set.wake();
        }
    }
}

/// The set is being polled until this is dropped.
pub(crate) struct Polling<'a>(&'a Set);

impl<'a> Polling<'a> {
    pub(crate) fn begin(set: &'a Set) -> Self {
        set.polled.store(true, Relaxed);
        Self(set)
    }
}

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        // Also if one of the set's own tasks has polled it, which may block now: who polls around that is woken
        // for nothing.
        self.0.polled.store(false, Relaxed);
    }
}
