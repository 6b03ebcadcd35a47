//! Which connections are open, and how they hear that the server closes.
//!
//! The program `tourbillon` has this module, too: it needs nothing of the library's.

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use slab::Slab;

/// Counts connections in and out. A reference: clones are the same gate.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<Inner>);

#[derive(Default)]
struct Inner {
    closing: AtomicBool,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    /// The connections, each with its task once that has asked.
    tasks: Slab<Option<Waker>>,
    /// Who waits until no more than so many are left.
    waiting: Vec<(usize, Waker)>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns how many connections a server has at most by default, in a process that may have so many
/// descriptors open: all but an eighth, and but 32 at least, which are for files, other sockets and
/// the runtime; but half of them in any case.
pub(super) fn room(descriptors: Option<u64>) -> usize {
    let limit = descriptors.unwrap_or(u64::MAX);
    let others = (limit / 8).max(32).min(limit / 2);
    usize::try_from(limit - others).unwrap_or(usize::MAX).max(1)
}

/// A connection's place in the gate; it is out when this is dropped.
pub(super) struct Pass {
    gate: Gate,
    key: usize,
    /// Whether the gate has the connection's waker. A task keeps its waker for life.
    known: AtomicBool,
}

impl Gate {
    /// Counts a connection in.
    pub(super) fn enter(&self) -> Pass {
        Pass {
            gate: self.clone(),
            key: self.0.lock().tasks.insert(None),
            known: AtomicBool::new(false),
        }
    }

    /// Returns how many connections are open.
    pub(super) fn open(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Wakes all connections, which find that the server closes; answers how many there are.
    pub(super) fn close(&self) -> usize {
        let open = self.0.lock();
        self.0.closing.store(true, Ordering::Release);
        let wakers: Vec<_> = open
            .tasks
            .iter()
            .filter_map(|(_, waker)| waker.clone())
            .collect();
        let count = open.tasks.len();
        drop(open);
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// Waits until no more than so many connections are open.
    pub(super) async fn at_most(&self, count: usize) {
        poll_fn(|cx| {
            let mut open = self.0.lock();
            if open.tasks.len() <= count {
                return Poll::Ready(());
            }
            let waker = cx.waker();
            if !open.waiting.iter().any(|(_, known)| known.will_wake(waker)) {
                open.waiting.push((count, waker.clone()));
            }
            Poll::Pending
        })
        .await;
    }
}

impl Pass {
    /// Returns whether the server closes. If not, the task of `cx` is woken when it does.
    pub(super) fn is_closing(&self, cx: &Context<'_>) -> bool {
        if !self.known.load(Ordering::Relaxed) {
            self.known.store(true, Ordering::Relaxed);
            // Under the lock, so that who closes either finds the waker or was seen by us below.
            self.gate.0.lock().tasks[self.key] = Some(cx.waker().clone());
        }
        self.gate.0.closing.load(Ordering::Acquire)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut open = self.gate.0.lock();
        open.tasks.remove(self.key);
        let left = open.tasks.len();
        let mut woken = Vec::new();
        open.waiting.retain(|(count, waker)| {
            let waits_on = left > *count;
            if !waits_on {
                woken.push(waker.clone());
            }
            waits_on
        });
        drop(open);
        woken.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn most_descriptors_are_for_connections_and_some_for_others() {
        let rooms = [0, 1, 24, 64, 256, 1024, 1 << 20].map(|limit| room(Some(limit)));
        assert_eq!(rooms, [1, 1, 12, 32, 224, 896, 7 << 17]);
        assert!(room(None) > 1 << 30);
    }
}
