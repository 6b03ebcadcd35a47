//! The tasks of a runtime that are alive: how many there are, and which of them wait for something, so that
//! a shutdown can end those.
//!
//! A task that is queued, or runs, is found where it is queued, or when its worker is through with it. So it
//! is put on a list only when it waits for the first time, and one that is over by then never is: a spawn
//! takes no lock. The list is that of the worker which has polled it, so the lock is that worker's alone for
//! the most part. Local tasks are on their lists from the beginning, see `local/mod.rs`.
//!
//! For who waits until there are no tasks they are counted, as they are made and as they end: each worker
//! counts with plain stores on a line of its own, other threads on the line of the task's home.

use std::{
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

/// How long who waits until there is no task relies on being told. Who ends a task looks whether somebody
/// waits, without a fence, which each task would pay for: it may just miss that.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Where a task that waits is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) index: u32,
    pub(crate) list: u16,
}

impl Place {
    /// On no list.
    pub(crate) const NOWHERE: Self = Self {
        list: u16::MAX,
        index: u32::MAX,
    };

    #[inline]
    pub(crate) fn is_nowhere(self) -> bool {
        self.index == u32::MAX
    }
}

/// How many tasks there were, as one thread has counted them, or all threads that have no line of their own.
#[derive(Debug, Default)]
struct Count {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// What is counted of a worker's tasks.
#[derive(Debug, Default)]
struct Counts {
    /// By the worker, of any tasks.
    own: CachePadded<Count>,
    /// By others, of this worker's tasks.
    foreign: CachePadded<Count>,
}

/// Who counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    /// The worker of this number, which the calling thread is.
    Worker(usize),
    /// Another thread, and this is the number of the task's home.
    Other(usize),
}

pub(crate) struct Registry<M: 'static> {
    lists: Box<[CachePadded<Mutex<List<M>>>]>,
    counts: Box<[Counts]>,
    /// No more tasks are let in.
    closed: AtomicBool,
    /// Somebody waits until there is no task.
    watched: AtomicBool,
    ends: Mutex<()>,
    ended: Condvar,
}

/// A place in the registry, whose list stays locked until it is filled.
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
    /// The books of a runtime: for each worker a list of the tasks that it has polled and any worker runs, and
    /// one of those that are [pinned](Registry::list_of_pinned) to it.
    pub(crate) fn new(workers: usize) -> Self {
        Self::with(2 * workers, workers)
    }

    /// The books of a set of local tasks, which are not counted.
    pub(crate) fn of_set() -> Self {
        Self::with(1, 0)
    }

    fn with(lists: usize, counts: usize) -> Self {
        Self {
            lists: (0..lists).map(|_| CachePadded::default()).collect(),
            counts: (0..counts).map(|_| Counts::default()).collect(),
            closed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            ends: Mutex::new(()),
            ended: Condvar::new(),
        }
    }

    /// The list of the tasks that this worker of a runtime runs, and no other.
    pub(crate) fn list_of_pinned(&self, worker: usize) -> usize {
        self.lists.len() / 2 + worker
    }

    /// Whether no more tasks are let in.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    fn place(&self, list: usize, index: usize) -> Place {
        Place {
            list: u16::try_from(list).expect("workers are some thousands at most"),
            index: u32::try_from(index).expect("memory does not do for so many tasks"),
        }
    }

    /// A place for a new task, unless the list is closed.
    pub(crate) fn reserve(&self, list: usize) -> Option<Reserved<'_, M>> {
        let mut guard = lock(&self.lists[list]);
        if guard.closed {
            return None;
        }
        let index = guard.reserve();
        let place = self.place(list, index);
        Some(Reserved { list: guard, place })
    }

    /// Puts a task on a list that is to wait, unless the list is closed.
    pub(crate) fn enter(&self, list: usize, task: &Task<M>) -> Option<Place> {
        let reserved = self.reserve(list)?;
        let place = reserved.place;
        reserved.fill(task.reference());
        Some(place)
    }

    /// Strikes a task off. The caller gives its reference up, under no lock.
    pub(crate) fn leave(&self, place: Place) -> Option<TaskRef<M>> {
        lock(&self.lists[usize::from(place.list)]).remove(place.index as usize)
    }

    /// How many tasks are on a list.
    pub(crate) fn len(&self, list: usize) -> usize {
        lock(&self.lists[list]).len()
    }

    /// Counts a task that is made.
    #[inline]
    pub(crate) fn begin(&self, by: By) {
        match by {
            By::Worker(worker) => add_alone(&self.counts[worker].own.begun),
            By::Other(home) => _ = self.counts[home].foreign.begun.fetch_add(1, Relaxed),
        }
    }

    /// Counts a task that has ended.
    #[inline]
    pub(crate) fn end(&self, by: By) {
        match by {
            By::Worker(worker) => add_alone(&self.counts[worker].own.ended),
            By::Other(home) => _ = self.counts[home].foreign.ended.fetch_add(1, Release),
        }
        if self.watched.load(Relaxed) {
            self.tell();
        }
    }

    /// Tells who waits, if this was the last. Of two that end at once neither may see that: who waits looks
    /// again by itself.
    #[cold]
    fn tell(&self) {
        if self.is_empty() {
            drop(lock(&self.ends));
            self.ended.notify_all();
        }
    }

    /// How many tasks there are, and how many there ever were. Each worker's figures are read one after the other.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let (begun, ended) = self.begun_and_ended();
        (begun.saturating_sub(ended) as usize, begun)
    }

    /// Whether there was a moment, while this was asked, at which there was no task.
    ///
    /// The ends are read first. Who sees an end sees the beginnings of that task, and of all that it has spawned:
    /// as many as ends are then seen of beginnings only if there are no others.
    fn is_empty(&self) -> bool {
        let (begun, ended) = self.begun_and_ended();
        begun == ended
    }

    /// The ends first.
    fn begun_and_ended(&self) -> (u64, u64) {
        let lines = || {
            let counts = self.counts.iter();
            counts.flat_map(|counts| [&*counts.own, &*counts.foreign])
        };
        let ended: u64 = lines().map(|count| count.ended.load(Acquire)).sum();
        let begun: u64 = lines().map(|count| count.begun.load(Relaxed)).sum();
        (begun, ended)
    }

    /// Waits until there is no task, until `deadline` at the latest (if there is one); true if there
    /// is none.
    pub(crate) fn wait_until_empty(&self, deadline: Option<Instant>) -> bool {
        self.watched.store(true, Relaxed);
        fence(SeqCst);
        let mut ends = lock(&self.ends);
        loop {
            if self.is_empty() {
                return true;
            }
            let left = deadline.map_or(LOOK_AGAIN, |deadline| {
                deadline.saturating_duration_since(clock::instant())
            });
            if left.is_zero() {
                return false;
            }
            let waited = self.ended.wait_timeout(ends, left.min(LOOK_AGAIN));
            ends = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets no more tasks in, and returns those that wait, for the caller to wake them.
    pub(crate) fn close(&self) -> Vec<TaskRef<M>> {
        self.closed.store(true, Release);
        let lists = 0..self.lists.len();
        lists.flat_map(|list| self.close_list(list)).collect()
    }

    /// Lets no more tasks in on one list, and returns those that are there.
    pub(crate) fn close_list(&self, list: usize) -> Vec<TaskRef<M>> {
        let mut list = lock(&self.lists[list]);
        list.closed = true;
        list.tasks()
    }
}

/// For the one thread that writes it.
#[inline]
fn add_alone(count: &AtomicU64) {
    count.store(count.load(Relaxed) + 1, Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_count_until_they_have_ended_whoever_counts() {
        let registry = Registry::<()>::new(2);
        assert!(registry.wait_until_empty(Some(Instant::now())));
        for (begins, ends) in [
            (By::Worker(0), By::Worker(1)),
            (By::Worker(1), By::Other(0)),
            (By::Other(1), By::Worker(0)),
        ] {
            registry.begin(begins);
            assert!(!registry.wait_until_empty(Some(Instant::now())));
            registry.end(ends);
            assert!(registry.wait_until_empty(None));
        }
    }
}
