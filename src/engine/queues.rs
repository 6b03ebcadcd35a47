//! The queues that all workers of a runtime share, and the count of those that search them.

use std::iter;

use crossbeam::{
    deque::{Injector, Steal, Stealer, Worker},
    queue::SegQueue,
    utils::CachePadded,
};
use tourbillon_sched::Searchers;

use crate::sys::sync::{
    atomic::{AtomicBool, Ordering},
    point,
};

/// The most jobs that one search takes from a peer's deque or from the injector. Of a deque it
/// takes half, if that is less. The first job runs at once, and the others go into the deque of the
/// worker that searched, from which its peers may take them again.
///
/// A higher number shares a long queue out in fewer steps. But jobs that are moved wait behind the
/// first one, and each move reads and writes the queue of another core.
const MOST_STOLEN: usize = 32;

/// The shared queues of a runtime: of jobs `J`, and of batches `B` of timers of closed shards.
pub(crate) struct Queues<J, B> {
    /// Jobs from outside of the workers.
    injector: CachePadded<Injector<J>>,
    /// Timers of closed shards, which all workers end together.
    closed: SegQueue<B>,
    /// Which workers are parked, and how many search.
    pub(crate) searchers: CachePadded<Searchers>,
    /// Set when no worker will read the injector, or the queue of a group, again.
    is_drained: AtomicBool,
}

impl<J, B> Queues<J, B> {
    /// Creates the queues of a runtime that has `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            injector: CachePadded::new(Injector::new()),
            closed: SegQueue::new(),
            searchers: CachePadded::new(Searchers::new(workers)),
            is_drained: AtomicBool::new(false),
        }
    }

    /// Queues a job.
    pub(crate) fn push(&self, job: J) {
        self.injector.push(job);
    }

    /// Takes the job that has waited for longest.
    pub(crate) fn steal(&self) -> Option<J> {
        steal(|| self.injector.steal())
    }

    /// Takes a job, and moves some of those behind it to `deque`, which is empty.
    pub(crate) fn steal_batch(&self, deque: &Worker<J>) -> Option<J> {
        let job = steal(|| {
            self.injector
                .steal_batch_with_limit_and_pop(deque, MOST_STOLEN)
        });
        move_on(deque);
        job
    }

    /// Returns how many jobs are queued.
    pub(crate) fn len(&self) -> usize {
        self.injector.len()
    }

    /// Returns whether no job is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.injector.is_empty()
    }

    /// Queues a batch of timers of a closed shard.
    pub(crate) fn push_closed(&self, batch: B) {
        self.closed.push(batch);
    }

    /// Takes a batch of timers of a closed shard.
    pub(crate) fn steal_closed(&self) -> Option<B> {
        self.closed.pop()
    }

    /// Returns whether timers of closed shards are left.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// Records that no worker will read the injector again.
    pub(crate) fn set_drained(&self) {
        self.is_drained.store(true, Ordering::Release);
    }

    /// Returns whether no worker will read the injector again.
    pub(crate) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }
}

/// Takes a job of a peer, and moves some of those behind it to `deque`, which is empty.
pub(crate) fn steal_batch_of<J>(peer: &Stealer<J>, deque: &Worker<J>) -> Option<J> {
    let job = steal(|| peer.steal_batch_with_limit_and_pop(deque, MOST_STOLEN));
    move_on(deque);
    job
}

/// Lets the simulation run other threads while the jobs that were stolen into `deque` are in no
/// queue. crossbeam has no points, so there it would never see such a moment.
fn move_on<J>(deque: &Worker<J>) {
    if cfg!(tourbillon_sim) {
        let moving: Vec<J> = iter::from_fn(|| deque.pop()).collect();
        point();
        moving.into_iter().for_each(|job| deque.push(job));
    }
}

/// Steals until the answer is definite.
pub(crate) fn steal<T>(mut attempt: impl FnMut() -> Steal<T>) -> Option<T> {
    loop {
        match attempt() {
            Steal::Success(job) => return Some(job),
            Steal::Empty => return None,
            // Another thread has changed the queue meanwhile. An answer of "empty" must be certain:
            // callers go to sleep on it.
            Steal::Retry => std::hint::spin_loop(),
        }
    }
}
