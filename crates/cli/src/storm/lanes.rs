//! Counters per worker, so that counting needs no contended write.

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::thread::gettid;

/// The counters of one worker. Only that worker writes them. [`OUTSIDE`] has many writers.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lane {
    /// Callbacks that ran.
    pub(super) fired: AtomicU64,
    /// Timers that ended: fired or cancelled.
    pub(super) ended: AtomicU64,
    /// Timers that were armed.
    pub(super) armed: AtomicU64,
    /// Thread id of the worker.
    thread: i32,
}

impl Lane {
    const fn new(thread: i32) -> Self {
        Self {
            fired: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            thread,
        }
    }
}

/// The lanes of all workers. They live as long as the process.
static WORKERS: Mutex<Vec<&'static Lane>> = Mutex::new(Vec::new());
/// The counters of all other threads.
static OUTSIDE: Lane = Lane::new(0);

thread_local! {
    /// This thread's lane, if it is a worker.
    static LANE: Cell<Option<&'static Lane>> = const { Cell::new(None) };
}

fn workers() -> MutexGuard<'static, Vec<&'static Lane>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the calling worker its own lane.
pub(super) fn enlist() {
    let lane: &'static Lane = Box::leak(Box::new(Lane::new(gettid().as_raw_nonzero().get())));
    workers().push(lane);
    LANE.set(Some(lane));
}

/// Adds one to a counter of the calling thread.
#[inline]
pub(super) fn count(which: impl Fn(&Lane) -> &AtomicU64) {
    match LANE.get() {
        Some(lane) => {
            let count = which(lane);
            count.store(count.load(Relaxed) + 1, Relaxed);
        }
        None => {
            which(&OUTSIDE).fetch_add(1, Relaxed);
        }
    }
}

/// Returns the workers' thread ids.
pub(super) fn threads() -> Vec<i32> {
    workers().iter().map(|lane| lane.thread).collect()
}

/// Returns a counter of each worker.
pub(super) fn by_worker(which: impl Fn(&Lane) -> &AtomicU64) -> Vec<u64> {
    let workers = workers();
    workers
        .iter()
        .map(|lane| which(lane).load(Relaxed))
        .collect()
}

/// Returns the sum of a counter over all threads.
pub(super) fn total(which: impl Fn(&Lane) -> &AtomicU64) -> u64 {
    by_worker(&which).iter().sum::<u64>() + which(&OUTSIDE).load(Relaxed)
}
