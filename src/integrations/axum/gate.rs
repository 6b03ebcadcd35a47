//! A registry of the open connections, which tells them that the server closes.
//!
//! The program `tourbillon` also includes this file, so it uses nothing of the library.

use std::{
    future::poll_fn,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use slab::Slab;
use tourbillon_sync::foreign::each;

/// Counts open connections. Clones refer to one gate.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    closing: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The connections, each with its waker once its task has checked the gate.
    tasks: Slab<Option<Waker>>,
    /// The tasks that wait until at most this many connections are open.
    waiting: Vec<(usize, Waker)>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the default limit of connections for a process with this limit of descriptors. An eighth
/// of the descriptors, and at least 32, but never more than half, stay free for files, other
/// sockets and the runtime.
pub(crate) fn room(descriptors: Option<u64>) -> usize {
    let limit = descriptors.unwrap_or(u64::MAX);
    // Leave descriptors to the rest of the program, but not more than half.
    let others = (limit / 8).max(32).min(limit / 2);
    usize::try_from(limit - others).unwrap_or(usize::MAX).max(1)
}

/// The place of a connection in the gate. Dropping it removes the connection.
pub(crate) struct Pass {
    gate: Gate,
    key: usize,
    /// Whether the gate has the connection's waker. A task keeps one waker for life.
    known: AtomicBool,
}

impl Gate {
    /// Adds a connection.
    pub(crate) fn enter(&self) -> Pass {
        Pass {
            gate: self.clone(),
            key: self.0.lock().tasks.insert(None),
            known: AtomicBool::new(false),
        }
    }

    /// Returns the number of open connections.
    pub(crate) fn open(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Tells all connections that the server closes, and returns their number.
    pub(crate) fn close(&self) -> usize {
        let mut open = self.0.lock();
        self.0.closing.store(true, Ordering::Release);
        let tasks = open.tasks.iter_mut();
        let wakers: Vec<_> = tasks.filter_map(|(_, waker)| waker.take()).collect();
        let count = open.tasks.len();
        drop(open);
        // Wakers are user code: wake after unlocking.
        each(wakers, Waker::wake);
        count
    }

    /// Waits until at most `count` connections are open.
    pub(crate) async fn at_most(&self, count: usize) {
        poll_fn(|cx| {
            // Wakers are user code: clone before locking, drop after unlocking.
            let mut waker = Some(cx.waker().clone());
            let mut open = self.0.lock();
            if open.tasks.len() <= count {
                return Poll::Ready(());
            }
            // Each task is listed once, however often it is polled.
            let mut waiting = open.waiting.iter();
            if !waiting.any(|(_, known)| known.will_wake(cx.waker())) {
                open.waiting
                    .extend(waker.take().map(|waker| (count, waker)));
            }
            Poll::Pending
        })
        .await;
    }
}

impl Pass {
    /// Returns whether the server closes. If not, its close wakes the task of `cx`.
    pub(crate) fn is_closing(&self, cx: &Context<'_>) -> bool {
        if !self.known.load(Ordering::Relaxed) {
            self.known.store(true, Ordering::Relaxed);
            // Wakers are user code: clone before locking, drop after unlocking.
            let waker = cx.waker().clone();
            // `close` sets the flag under this lock. So either it finds the waker, or the load
            // below sees the flag.
            let before = self.gate.0.lock().tasks[self.key].replace(waker);
            drop(before);
        }
        self.gate.0.closing.load(Ordering::Acquire)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.gate.0.lock();
        let own = open.tasks.remove(self.key);
        let left = open.tasks.len();
        // Those whose limit is reached poll again. The others wait on.
        let waiting = mem::take(&mut open.waiting).into_iter();
        let (woken, waits_on): (Vec<_>, _) = waiting.partition(|(count, _)| left <= *count);
        open.waiting = waits_on;
        drop(open);
        drop(own);
        each(woken, |(_, waker)| waker.wake());
    }
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn the_default_limit_leaves_descriptors_for_other_uses() {
        let rooms = [0, 1, 24, 64, 256, 1024, 1 << 20].map(|limit| room(Some(limit)));
        assert_eq!(rooms, [1, 1, 12, 32, 224, 896, 7 << 17]);
        assert!(room(None) > 1 << 30);
    }
}
