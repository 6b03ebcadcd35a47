//! The queue of the blocking threads, and how many there are.

use std::collections::BTreeMap;

use crate::{
    engine::threads::Threads,
    metrics::BlockingMetrics,
    sys::sync::{
        Condvar, Mutex,
        atomic::{AtomicUsize, Ordering, fence},
    },
    util::lock::lock,
};

/// The blocking threads of a runtime, and what waits for them.
pub(crate) struct Blocking<J> {
    pub(super) state: Mutex<State<J>>,
    /// Idle threads wait here.
    pub(super) work: Condvar,
    /// The thread that shuts the runtime down waits here.
    pub(super) ended: Condvar,
    /// Threads that have something to do, claimed and starting ones included, and are in no `block_on`.
    pub(super) busy: AtomicUsize,
}

pub(super) struct State<J> {
    /// By their numbers, so that one can be taken out from the middle.
    pub(super) queue: BTreeMap<u64, J>,
    /// The number of the next job.
    pub(super) next: u64,
    /// How many threads there are.
    pub(super) threads: usize,
    /// How many of them are idle, and not claimed.
    pub(super) idle: usize,
    /// How many were claimed, and have not taken notice.
    pub(super) claimed: usize,
    pub(super) handles: Threads,
    /// The queue is closed: no job is accepted any more.
    pub(super) stopping: bool,
    /// How many accepted jobs were dropped unrun at the deadline of a shutdown.
    pub(super) dropped: u64,
}

impl<J> Default for Blocking<J> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                queue: BTreeMap::new(),
                next: 0,
                threads: 0,
                idle: 0,
                claimed: 0,
                handles: Threads::default(),
                stopping: false,
                dropped: 0,
            }),
            work: Condvar::new(),
            ended: Condvar::new(),
            busy: AtomicUsize::new(0),
        }
    }
}

impl<J> Blocking<J> {
    /// Whether a thread has something to do. If none has, all that they have done is seen by what is
    /// looked at after this.
    pub(crate) fn is_busy(&self) -> bool {
        fence(Ordering::SeqCst);
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Accepts no more jobs, and tells the threads to end when none is queued any more.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.work.notify_all();
    }

    pub(crate) fn metrics(&self) -> BlockingMetrics {
        let state = lock(&self.state);
        BlockingMetrics {
            threads: state.threads,
            idle: state.idle,
            queued: state.queue.len(),
            dropped: state.dropped,
        }
    }
}
