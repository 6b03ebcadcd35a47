//! What is known of a runtime whose clock is paused: who waits, and which jumps were asked for.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Wake, Waker},
    time::Duration,
};

use slab::Slab;

use crate::sys::sync::{
    Mutex,
    atomic::{AtomicU8, Ordering},
    thread::Thread,
};

/// Who of a runtime waits, and for what.
#[derive(Default)]
pub(crate) struct Quiescence(pub(super) Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    /// How many workers sleep until they are woken.
    pub(super) idle: usize,
    /// How many threads that are no workers have judged, and are waking whom that served.
    pub(super) serving: usize,
    /// The threads in `block_on`.
    pub(super) blocked: Slab<Arc<Blocked>>,
    /// Jumps that were asked for.
    pub(super) asked: VecDeque<Jump>,
    /// Jumps that were made, whose callers wait for what came due.
    pub(super) made: Vec<Jump>,
    /// How many jumps were ever asked for: their numbers.
    pub(super) jumps: u64,
    /// Nothing runs any more.
    pub(super) closed: bool,
}

/// Somebody waits in `advance`.
pub(super) struct Jump {
    pub(super) number: u64,
    pub(super) by: Duration,
    pub(super) waker: Waker,
}

/// The thread polls its future.
pub(super) const RUNS: u8 = 0;
/// It sleeps, or is about to.
pub(super) const WAITS: u8 = 1;
/// It was woken since it last began to poll.
pub(super) const WOKEN: u8 = 2;

/// A thread in `block_on`.
pub(crate) struct Blocked {
    pub(super) thread: Thread,
    /// What it does. RUNS → WAITS and WOKEN → RUNS by itself; → WOKEN by whoever wakes it.
    pub(super) word: AtomicU8,
}

impl Blocked {
    pub(super) fn is_waiting(&self) -> bool {
        self.word.load(Ordering::Acquire) == WAITS
    }
}

impl Wake for Blocked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.word.swap(WOKEN, Ordering::AcqRel) == WAITS {
            self.thread.unpark();
        }
    }
}
