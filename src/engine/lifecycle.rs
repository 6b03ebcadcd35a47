//! Whether a runtime runs, stops, or has ended, and the threads that wait for its end.

use std::{
    pin::Pin,
    sync::PoisonError,
    task::{Context, Poll, Waker},
    time::Duration,
};

use slab::Slab;

use crate::{
    sys::sync::{
        Condvar, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering, fence},
    },
    util::{contained::each, lock::lock},
};

/// The life of a runtime: running, stopping, ended.
pub(crate) struct Lifecycle {
    /// Set when the runtime must end: workers leave their loops.
    stopping: AtomicBool,
    /// How many workers and helpers have not left their loops.
    running: Mutex<usize>,
    /// Notified when one of them leaves.
    left: Condvar,
    /// The futures that wait until all have left, each with its waker.
    waiting: Mutex<Slab<Option<Waker>>>,
}

/// The future that is ready when a runtime has ended.
pub(crate) struct Ended<'a> {
    lifecycle: &'a Lifecycle,
    /// Its place among those that wait, once it waits.
    key: Option<usize>,
}

impl Lifecycle {
    /// Creates the state of a runtime with `workers` workers, all of which count as running.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            stopping: AtomicBool::new(false),
            running: Mutex::new(workers),
            left: Condvar::new(),
            waiting: Mutex::default(),
        }
    }

    /// Returns whether workers must leave their loops.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Marks the runtime as stopping. What the caller looks at next is looked at after the mark.
    pub(crate) fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
        // Pairs with the fence of a worker that goes to sleep: either the worker sees the mark, or
        // the caller sees that the worker sleeps, and wakes it.
        fence(Ordering::SeqCst);
    }

    /// Locks the count of workers and helpers that have not left their loops.
    pub(crate) fn running(&self) -> MutexGuard<'_, usize> {
        lock(&self.running)
    }

    /// Notifies the threads that wait for the end that a worker has left.
    pub(crate) fn notify_left(&self) {
        // The caller has changed the count under its mutex before. So a waiter sees the new count,
        // or is asleep and is notified.
        self.left.notify_all();
    }

    /// Waits until all workers have left. For tasks of other runtimes: this one's are gone by then.
    pub(crate) fn ended(&self) -> Ended<'_> {
        Ended {
            lifecycle: self,
            key: None,
        }
    }

    /// Wakes the tasks that wait for the [end](Self::ended). The caller has set the count to zero.
    pub(crate) fn notify_end(&self) {
        let mut waiting = lock(&self.waiting);
        let wakers = waiting.iter_mut().filter_map(|(_, waker)| waker.take());
        let wakers: Vec<_> = wakers.collect();
        drop(waiting);
        // Wakers are user code: wake after unlocking.
        each(wakers, Waker::wake);
    }

    /// Waits until all workers have left, for `timeout` at most. Returns whether they have.
    pub(crate) fn wait_for_end(&self, timeout: Option<Duration>) -> bool {
        let running = self.running();
        match timeout {
            None => {
                // A panic elsewhere must not keep the shutdown from its end: ignore poisoning.
                let ended = self.left.wait_while(running, |running| *running > 0);
                drop(ended.unwrap_or_else(PoisonError::into_inner));
                true
            }
            Some(timeout) => {
                // The wait timed out only if the count is above zero at its end: a worker that left
                // in the last moment counts.
                let waited = self
                    .left
                    .wait_timeout_while(running, timeout, |running| *running > 0);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            }
        }
    }
}

impl Future for Ended<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Wakers are user code: clone before locking, drop after unlocking.
        let waker = cx.waker().clone();
        let mut waiting = lock(&self.lifecycle.waiting);
        // Checked under the lock: the last worker sets the count first, and wakes those that wait
        // after that.
        if *self.lifecycle.running() == 0 {
            drop(waiting);
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| waiting.insert(None));
        let before = waiting[key].replace(waker);
        drop(waiting);
        drop(before);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let waker = lock(&self.lifecycle.waiting).remove(key);
            drop(waker);
        }
    }
}
