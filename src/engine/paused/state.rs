//! The shared state of a runtime's paused clock: waiting members and requested jumps.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Wake, Waker},
    time::Duration,
};

use slab::Slab;

use crate::{
    engine::core::WorkerShard,
    sys::sync::{
        Mutex,
        atomic::{AtomicU8, Ordering},
        thread::Thread,
    },
};

/// The waiting members of a runtime, and the jumps of its clock. See `quiescence.rs`.
#[derive(Default)]
pub(crate) struct Quiescence(pub(super) Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    /// How many workers sleep without a timeout, until they are woken.
    pub(super) idle: usize,
    /// How many judging threads outside of the workers hold wakers that they have yet to wake.
    /// Nothing is quiet meanwhile.
    pub(super) serving: usize,
    /// The threads in `block_on`.
    pub(super) blocked: Slab<Arc<Blocked>>,
    /// Jumps that `advance` has requested and that were not made yet, in order.
    pub(super) requested: VecDeque<Jump>,
    /// Jumps that were made. Their callers wait until everything that came due has run.
    pub(super) jumped: Vec<Jump>,
    /// How many jumps were ever requested. The number of the last one.
    pub(super) jumps: u64,
    /// Memory for the deadlines of the shards, which each judge writes anew.
    pub(super) nexts: Vec<u64>,
    /// Whether the runtime has ended, so that nothing runs any more.
    pub(super) closed: bool,
}

/// One jump of the clock, and the waker of the task that waits in `advance`.
pub(super) struct Jump {
    pub(super) number: u64,
    pub(super) by: Duration,
    pub(super) waker: Waker,
}

/// State of a thread in `block_on`: it polls its future.
pub(super) const RUNS: u8 = 0;
/// State of a thread in `block_on`: it sleeps, or is about to sleep.
pub(super) const WAITS: u8 = 1;
/// State of a thread in `block_on`: it was woken since it last began to poll.
pub(super) const WOKEN: u8 = 2;

/// A thread in `block_on`.
pub(crate) struct Blocked {
    pub(super) thread: Thread,
    /// The worker that the thread is meanwhile, if its runtime is a current-thread one. That worker
    /// sleeps in its epoll instance while the thread waits.
    pub(super) worker: Option<Arc<WorkerShard>>,
    /// One of the three states. The thread itself changes RUNS → WAITS and WOKEN → RUNS. The thread
    /// that wakes it changes any state → WOKEN.
    pub(super) word: AtomicU8,
}

impl Blocked {
    pub(super) fn is_waiting(&self) -> bool {
        self.word.load(Ordering::Acquire) == WAITS
    }

    /// Returns whether the future of `block_on` was woken since the thread began to wait. A worker
    /// calls it behind the fence of its announcement that it sleeps.
    pub(crate) fn is_woken(&self) -> bool {
        self.word.load(Ordering::Acquire) == WOKEN
    }
}

impl Wake for Blocked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Of several threads that wake it, one finds WAITS. A thread that still polls finds WOKEN
        // when it is about to wait.
        if self.word.swap(WOKEN, Ordering::AcqRel) == WAITS {
            match &self.worker {
                // `wake` fences, and wakes the worker if it has announced that it sleeps. If it has
                // not, it checks the word after its announcement.
                Some(worker) => _ = worker.wake(),
                None => self.thread.unpark(),
            }
        }
    }
}
