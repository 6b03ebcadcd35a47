//! The tasks of a runtime that are alive, so that a shutdown can end those that wait for something,
//! and a handle one that it has no hold of.
//!
//! One list for each worker, to which tasks belong that were spawned there: the locks are taken at
//! spawn and at the end of a task, for the most part by their own worker.

use std::{
    ptr::NonNull,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Instant,
};

use crossbeam::utils::CachePadded;
use slab::Slab;

use super::{
    TaskMeta,
    id::{Id, Source},
};
use crate::runtime::{TaskJob, lock};

/// Where a task is registered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    list: usize,
    index: usize,
    /// Tells the task from those that had or will have its place.
    id: Id,
}

impl Key {
    pub(crate) fn id(&self) -> Id {
        self.id
    }
}

struct Entry {
    id: Id,
    /// `None` for a task that is being made.
    task: Option<Alive>,
}

/// A task that is alive.
pub(crate) struct Alive {
    waker: Waker,
    /// Lies in the allocation that the waker keeps.
    meta: NonNull<TaskMeta>,
}

// SAFETY: the pointer is only ever read, to what is Sync and as alive as the waker beside it.
unsafe impl Send for Alive {}

#[derive(Default)]
struct List {
    entries: Slab<Entry>,
    ids: Source,
    closed: bool,
    /// Somebody waits until there is no task.
    watched: bool,
}

impl List {
    fn find(&self, key: Key) -> Option<&Entry> {
        self.entries
            .get(key.index)
            .filter(|entry| entry.id == key.id)
    }
}

pub(crate) struct Registry {
    lists: Box<[CachePadded<Mutex<List>>]>,
    /// Counts, for who waits until there is no task, the tasks that ended meanwhile.
    ends: Mutex<u64>,
    ended: Condvar,
}

/// A place in the registry, whose list stays locked until it is filled.
pub(crate) struct Place<'a> {
    list: MutexGuard<'a, List>,
    key: Key,
}

impl Place<'_> {
    pub(crate) fn key(&self) -> Key {
        self.key
    }

    pub(crate) fn fill(mut self, task: &TaskJob) {
        let alive = Alive {
            waker: task.waker(),
            meta: NonNull::from(task.metadata()),
        };
        self.list.entries[self.key.index].task = Some(alive);
    }
}

impl Registry {
    /// The books of a runtime: for each worker a list of the tasks that any worker runs, and one of those
    /// that are [pinned](Registry::list_of_pinned) to it.
    pub(crate) fn new(workers: usize) -> Self {
        Self::with_lists(2 * workers)
    }

    pub(crate) fn with_lists(lists: usize) -> Self {
        Self {
            lists: (0..lists).map(|_| CachePadded::default()).collect(),
            ends: Mutex::new(0),
            ended: Condvar::new(),
        }
    }

    /// The list of the tasks that this worker of a runtime runs, and no other.
    pub(crate) fn list_of_pinned(&self, worker: usize) -> usize {
        self.lists.len() / 2 + worker
    }

    /// A place for a new task, unless the list is closed.
    pub(crate) fn reserve(&self, list: usize) -> Option<Place<'_>> {
        let mut guard = lock(&self.lists[list]);
        if guard.closed {
            return None;
        }
        let id = guard.ids.next();
        let index = guard.entries.insert(Entry { id, task: None });
        Some(Place {
            list: guard,
            key: Key { list, index, id },
        })
    }

    /// How many tasks of a list are alive.
    pub(crate) fn len(&self, list: usize) -> usize {
        lock(&self.lists[list]).entries.len()
    }

    /// Strikes a task off. What is given back is dropped by the caller, under no lock.
    pub(crate) fn remove(&self, key: Key) -> Option<Alive> {
        let (removed, watched) = {
            let mut list = lock(&self.lists[key.list]);
            (list.entries.try_remove(key.index), list.watched)
        };
        if watched {
            *lock(&self.ends) += 1;
            self.ended.notify_all();
        }
        removed?.task
    }

    /// Waits until there is no task, until `deadline` at the latest (if there is one); true if there
    /// is none.
    pub(crate) fn wait_until_empty(&self, deadline: Option<Instant>) -> bool {
        loop {
            let seen = *lock(&self.ends);
            // All at once: a task that ends may have spawned one that another list has.
            let mut lists: Vec<_> = self.lists.iter().map(|list| lock(list)).collect();
            if lists.iter().all(|list| list.entries.is_empty()) {
                return true;
            }
            for list in &mut lists {
                list.watched = true;
            }
            drop(lists);
            let mut ends = lock(&self.ends);
            while *ends == seen {
                let Some(deadline) = deadline else {
                    ends = self
                        .ended
                        .wait(ends)
                        .unwrap_or_else(PoisonError::into_inner);
                    continue;
                };
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return false;
                }
                let waited = self.ended.wait_timeout(ends, left);
                ends = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Whether a task is alive.
    pub(crate) fn has(&self, key: Key) -> bool {
        lock(&self.lists[key.list]).find(key).is_some()
    }

    /// Tells a task to end, if it is alive.
    pub(crate) fn abort(&self, key: Key) {
        let waker = {
            let list = lock(&self.lists[key.list]);
            list.find(key)
                .and_then(|entry| entry.task.as_ref())
                .map(|task| {
                    // SAFETY: the task's allocation, of which this is a part, lives as long as the
                    // waker, and the lock keeps that in its place.
                    unsafe { task.meta.as_ref() }.abort();
                    task.waker.clone()
                })
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Lets no more tasks in, and answers the wakers of those that are alive.
    pub(crate) fn close(&self) -> Vec<Waker> {
        let lists = 0..self.lists.len();
        lists.flat_map(|list| self.close_list(list)).collect()
    }

    /// The same, of one list.
    pub(crate) fn close_list(&self, list: usize) -> Vec<Waker> {
        let mut list = lock(&self.lists[list]);
        list.closed = true;
        let alive = list
            .entries
            .iter()
            .filter_map(|(_, entry)| entry.task.as_ref());
        alive.map(|task| task.waker.clone()).collect()
    }
}
