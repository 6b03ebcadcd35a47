//! Counts that each worker keeps for itself, so that counting costs next to nothing.

use std::{
    cell::Cell,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use rustix::thread::gettid;

/// The counts of one thread, a worker, which is their only writer; those of [`OUTSIDE`] have many.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Lane {
    /// Callbacks that ran.
    pub(super) fired: AtomicU64,
    /// Timers that ended, by running or by being cancelled.
    pub(super) ended: AtomicU64,
    /// Timers that were armed.
    pub(super) armed: AtomicU64,
    /// The thread, as the system knows it.
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

/// The workers that there are. They last as long as the process.
static WORKERS: Mutex<Vec<&'static Lane>> = Mutex::new(Vec::new());
/// All other threads.
static OUTSIDE: Lane = Lane::new(0);

thread_local! {
    /// The lane of this thread, if it is a worker.
    static LANE: Cell<Option<&'static Lane>> = const { Cell::new(None) };
}

fn workers() -> MutexGuard<'static, Vec<&'static Lane>> {
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives the calling thread, a worker, counts of its own.
pub(super) fn enlist() {
    let lane: &'static Lane = Box::leak(Box::new(Lane::new(gettid().as_raw_nonzero().get())));
    workers().push(lane);
    LANE.set(Some(lane));
}

/// Counts one on behalf of the calling thread.
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

/// The workers' threads, as the system knows them.
pub(super) fn threads() -> Vec<i32> {
    workers().iter().map(|lane| lane.thread).collect()
}

/// What each worker counted.
pub(super) fn by_worker(which: impl Fn(&Lane) -> &AtomicU64) -> Vec<u64> {
    let workers = workers();
    workers
        .iter()
        .map(|lane| which(lane).load(Relaxed))
        .collect()
}

/// What all threads counted together.
pub(super) fn total(which: impl Fn(&Lane) -> &AtomicU64) -> u64 {
    by_worker(&which).iter().sum::<u64>() + which(&OUTSIDE).load(Relaxed)
}
