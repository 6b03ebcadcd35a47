//! The registry of a runtime's tasks: counts all tasks, and lists those that wait, so that a
//! shutdown can end these.
//!
//! A task that is queued is found in its queue, and a running task by its worker. So a task is
//! listed only when it waits for the first time. A task that ends at its first poll is never
//! listed: spawning it takes no lock. The list belongs to the worker that has polled the task, so
//! its lock is rarely contended. Local tasks are listed from their creation: see
//! `task/local/mod.rs`.
//!
//! Tasks are counted when they are created and when they end, for a thread that waits until there
//! is none. Each worker counts with plain stores on its own cache line. Other threads count on the
//! line of the task's home.

use std::{
    ops::ControlFlow,
    sync::PoisonError,
    time::{Duration, Instant},
};

use crossbeam::utils::CachePadded;
use tourbillon_tasks::{Task, TaskRef};

use crate::{
    engine::task_core::list::List,
    sys::{
        clock,
        sync::{
            Condvar, Mutex, MutexGuard,
            atomic::{
                AtomicBool, AtomicU64,
                Ordering::{Acquire, Relaxed, Release, SeqCst},
                fence,
            },
        },
    },
    util::lock::lock,
};

/// How long a thread that waits for the end of all tasks relies on being notified. The thread that
/// ends a task checks for a waiter without a fence, since each task would pay for it. So it may
/// miss a waiter that has just announced itself.
const RECHECK: Duration = Duration::from_millis(10);

/// How many indices of a list are looked at while it is locked: some µs.
const SEEN_AT_ONCE: usize = 128;

/// The place of a task in the registry: a list, and an index on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) list: u16,
}

impl Place {
    /// The place of a task that is on no list.
    pub(crate) const NOWHERE: Self = Self {
        list: u16::MAX,
        index: u32::MAX,
    };

    #[inline]
    pub(crate) fn is_nowhere(self) -> bool {
        self.index == u32::MAX
    }
}

/// The counts of one thread, or of all threads that have no line of their own.
#[derive(Debug, Default)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// The counts of one worker.
#[derive(Debug, Default)]
struct Counts {
    /// Tasks of any home that this worker has counted.
    own: CachePadded<Count>,
    /// Tasks of this worker that other threads have counted.
    remote: CachePadded<Count>,
}

/// On whose line a task is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CountOn {
    /// On the line of the worker of this number, which is the calling thread.
    Worker(usize),
    /// On the shared line of the worker of this number, which is the task's home.
    Other(usize),
}

/// The registry of a runtime, or of a `LocalSet`. See the head of this file.
pub(crate) struct Registry<M: 'static> {
    lists: Box<[CachePadded<Mutex<List<M>>>]>,
    counts: Box<[Counts]>,
    /// Whether no more tasks are accepted.
    closed: AtomicBool,
    /// Whether a thread waits until there is no task.
    awaited: AtomicBool,
    ends: Mutex<()>,
    ended: Condvar,
}

/// A reserved place in the registry. The list stays locked until the place is filled.
pub(crate) struct Reserved<'a, M: 'static> {
    list: MutexGuard<'a, List<M>>,
    place: Place,
}

impl<M: 'static> Reserved<'_, M> {
    pub(crate) fn place(&self) -> Place {
        self.place
    }

    pub(crate) fn fill(mut self, task: TaskRef<M>) {
        self.list.fill(self.place.index as usize, task);
    }
}

impl<M: 'static> Registry<M> {
    /// Creates the registry of a runtime. Each worker has two lists: one of the tasks that it has
    /// polled and that any worker may run, and one of the tasks that are
    /// [pinned](Registry::list_of_pinned) to it.
    pub(crate) fn new(workers: usize) -> Self {
        Self::with(2 * workers, workers)
    }

    /// Creates the registry of a set of local tasks, which counts no tasks.
    pub(crate) fn of_set() -> Self {
        Self::with(1, 0)
    }

    fn with(lists: usize, counts: usize) -> Self {
        Self {
            lists: (0..lists).map(|_| CachePadded::default()).collect(),
            counts: (0..counts).map(|_| Counts::default()).collect(),
            closed: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            ends: Mutex::new(()),
            ended: Condvar::new(),
        }
    }

    /// Returns the list of the tasks that are pinned to this worker.
    pub(crate) fn list_of_pinned(&self, worker: usize) -> usize {
        self.lists.len() / 2 + worker
    }

    /// Returns whether no more tasks are accepted.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    fn place(&self, list: usize, index: usize) -> Place {
        Place {
            list: u16::try_from(list).expect("there are at most some thousand workers"),
            index: u32::try_from(index).expect("memory runs out before 2^32 tasks"),
        }
    }

    /// Reserves a place for a new task. Returns `None` if the list is closed.
    pub(crate) fn reserve(&self, list: usize) -> Option<Reserved<'_, M>> {
        let mut guard = lock(&self.lists[list]);
        // Under the lock: either `close_list` finds the task on the list, or the task finds it
        // closed.
        if guard.closed {
            return None;
        }
        let index = guard.reserve();
        let place = self.place(list, index);
        Some(Reserved { list: guard, place })
    }

    /// Puts a task that waits on a list. Returns `None` if the list is closed.
    pub(crate) fn enter(&self, list: usize, task: &Task<M>) -> Option<Place> {
        let reserved = self.reserve(list)?;
        let place = reserved.place;
        reserved.fill(task.reference());
        Some(place)
    }

    /// Removes a task. The caller drops the returned reference after unlocking.
    pub(crate) fn leave(&self, place: Place) -> Option<TaskRef<M>> {
        lock(&self.lists[usize::from(place.list)]).remove(place.index as usize)
    }

    /// Returns how many tasks are on a list.
    pub(crate) fn len(&self, list: usize) -> usize {
        lock(&self.lists[list]).len()
    }

    /// Returns how many tasks are on all lists.
    pub(crate) fn num_listed(&self) -> usize {
        (0..self.lists.len()).map(|list| self.len(list)).sum()
    }

    /// Counts a new task.
    #[inline]
    pub(crate) fn begin(&self, on: CountOn) {
        match on {
            CountOn::Worker(worker) => add_alone(&self.counts[worker].own.begun),
            // Relaxed is enough for a beginning: what publishes the task publishes this, too.
            CountOn::Other(home) => _ = self.counts[home].remote.begun.fetch_add(1, Relaxed),
        }
    }

    /// Counts a task that has ended.
    #[inline]
    pub(crate) fn end(&self, on: CountOn) {
        match on {
            // A release store: a thread that sees this end also sees what the task has counted
            // before it.
            CountOn::Worker(worker) => add_alone(&self.counts[worker].own.ended),
            CountOn::Other(home) => _ = self.counts[home].remote.ended.fetch_add(1, Release),
        }
        // No fence here: see `RECHECK`.
        if self.awaited.load(Relaxed) {
            self.notify_if_empty();
        }
    }

    /// Wakes the waiting threads if this was the last task. If two tasks end at once, neither
    /// thread may see that: the waiting thread checks again by itself.
    #[cold]
    fn notify_if_empty(&self) {
        if self.is_empty() {
            // Take the lock once: a waiter holds it from its check until it sleeps, so it is either
            // before its check or asleep when it is notified.
            drop(lock(&self.ends));
            self.ended.notify_all();
        }
    }

    /// Returns how many tasks exist, and how many ever existed. Reads one worker's counts after the
    /// other.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let (begun, ended) = self.begun_and_ended();
        (begun.saturating_sub(ended) as usize, begun)
    }

    /// Returns whether there was no task at some moment during this call.
    ///
    /// Ends are read before beginnings. A thread that sees a task's end also sees its beginning,
    /// and the beginnings of all tasks that it has spawned. So both sums are equal only if no other
    /// task exists.
    pub(crate) fn is_empty(&self) -> bool {
        let (begun, ended) = self.begun_and_ended();
        begun == ended
    }

    /// Returns the sums of beginnings and ends. Reads the ends first: see `is_empty`.
    fn begun_and_ended(&self) -> (u64, u64) {
        let lines = || {
            let counts = self.counts.iter();
            counts.flat_map(|counts| [&*counts.own, &*counts.remote])
        };
        // All ends first, then all beginnings: see `is_empty`.
        let ended: u64 = lines().map(|count| count.ended.load(Acquire)).sum();
        let begun: u64 = lines().map(|count| count.begun.load(Relaxed)).sum();
        (begun, ended)
    }

    /// Waits until there is no task, at most until `deadline`. Returns whether there is none.
    pub(crate) fn wait_until_empty(&self, deadline: Option<Instant>) -> bool {
        // Announce the wait before the first check. A thread that ends a task later sees this,
        // unless it checks at the same moment: therefore `RECHECK`.
        self.awaited.store(true, Relaxed);
        fence(SeqCst);
        let mut ends = lock(&self.ends);
        loop {
            if self.is_empty() {
                return true;
            }
            // Sleep for a short time only: a notification may be missed.
            let left = deadline.map_or(RECHECK, |deadline| {
                deadline.saturating_duration_since(clock::instant())
            });
            if left.is_zero() {
                return false;
            }
            let waited = self.ended.wait_timeout(ends, left.min(RECHECK));
            ends = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Accepts no more tasks. Returns the waiting tasks, which the caller must wake.
    pub(crate) fn close(&self) -> Vec<TaskRef<M>> {
        self.closed.store(true, Release);
        // The flag first: it stops most spawns. A spawn that misses it meets a closed list when its
        // task is listed.
        let lists = 0..self.lists.len();
        lists.flat_map(|list| self.close_list(list)).collect()
    }

    /// Calls `see` for the tasks on the lists, until it breaks. It is called without a lock. Tasks
    /// that are listed meanwhile may be left out.
    pub(crate) fn see_tasks(&self, mut see: impl FnMut(&TaskRef<M>) -> ControlFlow<()>) {
        for list in &self.lists {
            let mut first = 0;
            loop {
                let Some(tasks) = lock(list).some_tasks(first, SEEN_AT_ONCE) else {
                    break;
                };
                if tasks.iter().any(|task| see(task).is_break()) {
                    return;
                }
                first += SEEN_AT_ONCE;
            }
        }
    }

    /// Accepts no more tasks on one list. Returns the tasks on it.
    pub(crate) fn close_list(&self, list: usize) -> Vec<TaskRef<M>> {
        let mut list = lock(&self.lists[list]);
        list.closed = true;
        list.tasks()
    }
}

/// Adds one to a count that only the calling thread writes. A plain store is cheaper than a
/// `fetch_add`.
#[inline]
fn add_alone(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_count_until_they_have_ended_on_any_line() {
        let registry = Registry::<()>::new(2);
        assert!(registry.wait_until_empty(Some(Instant::now())));
        for (begins, ends) in [
            (CountOn::Worker(0), CountOn::Worker(1)),
            (CountOn::Worker(1), CountOn::Other(0)),
            (CountOn::Other(1), CountOn::Worker(0)),
        ] {
            registry.begin(begins);
            assert!(!registry.wait_until_empty(Some(Instant::now())));
            registry.end(ends);
            assert!(registry.wait_until_empty(None));
        }
    }
}
