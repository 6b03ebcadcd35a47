//! Which connections are open, and how they hear that the server closes.

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
    /// Who waits for all of them to be gone.
    waiting: Option<Waker>,
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
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

    /// How many connections are open.
    pub(super) fn open(&self) -> usize {
        self.0.lock().tasks.len()
    }

    /// Tells all connections that the server closes; answers how many there are.
    pub(super) fn close(&self) -> usize {
        let mut open = self.0.lock();
        self.0.closing.store(true, Ordering::Release);
        let wakers: Vec<_> = open
            .tasks
            .iter_mut()
            .filter_map(|(_, waker)| waker.take())
            .collect();
        let count = open.tasks.len();
        drop(open);
        wakers.into_iter().for_each(Waker::wake);
        count
    }

    /// Waits until no connection is open. For one task at a time.
    pub(super) async fn emptied(&self) {
        poll_fn(|cx| {
            let mut open = self.0.lock();
            if open.tasks.is_empty() {
                return Poll::Ready(());
            }
            open.waiting = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Pass {
    /// Whether the server closes. If not, the task of `cx` is woken when it does.
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
        let waiting = if open.tasks.is_empty() {
            open.waiting.take()
        } else {
            None
        };
        drop(open);
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}
