//! A list of tasks in a registry: eight bytes for each task, and one reference to it.

use std::{
    marker::PhantomData,
    mem::{self, ManuallyDrop},
    ptr,
    ptr::NonNull,
};

use tourbillon_tasks::TaskRef;

/// How many entries an empty list keeps.
const KEPT: usize = 1_024;

/// References to tasks, each at an index that does not change. The list keeps its tasks allocated.
/// A task leaves the list by itself, when it ends.
pub(crate) struct List<M: 'static> {
    /// For each index: the address of a task; or null, if it is reserved for a new task; or, if it
    /// is free, the index of the next free entry, as an odd number. No task has an odd address.
    entries: Vec<*mut ()>,
    /// The index of the first free entry, or the length of `entries` if none is free.
    free: usize,
    len: usize,
    pub(crate) closed: bool,
    _tasks: PhantomData<TaskRef<M>>,
}

impl<M: 'static> Default for List<M> {
    fn default() -> Self {
        Self {
            entries: Vec::new(),
            free: 0,
            len: 0,
            closed: false,
            _tasks: PhantomData,
        }
    }
}

// SAFETY: the list holds only references to tasks, which may be sent.
unsafe impl<M: 'static> Send for List<M> where TaskRef<M>: Send {}

/// Returns whether an entry is free.
fn is_free(entry: *mut ()) -> bool {
    entry.addr() % 2 == 1
}

impl<M: 'static> List<M> {
    /// Reserves an index for a new task.
    pub(crate) fn reserve(&mut self) -> usize {
        // Take the first free entry, or add one.
        let index = self.free;
        if index == self.entries.len() {
            self.entries.push(ptr::null_mut());
            self.free = index + 1;
        } else {
            let entry = mem::replace(&mut self.entries[index], ptr::null_mut());
            debug_assert!(is_free(entry));
            self.free = entry.addr() / 2;
        }
        self.len += 1;
        index
    }

    /// Puts a task at the index that was reserved for it.
    pub(crate) fn fill(&mut self, index: usize, task: TaskRef<M>) {
        debug_assert!(self.entries[index].is_null());
        self.entries[index] = task.into_raw().as_ptr();
    }

    /// Frees an index, and returns its task. Returns `None` if the index was reserved and not
    /// filled.
    pub(crate) fn remove(&mut self, index: usize) -> Option<TaskRef<M>> {
        // Put the entry at the head of the chain of free entries.
        let free = ptr::without_provenance_mut(2 * self.free + 1);
        let entry = mem::replace(&mut self.entries[index], free);
        debug_assert!(!is_free(entry));
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.entries.capacity() > KEPT {
            // A burst of tasks is over. Nothing names an index any more.
            self.entries = Vec::new();
            self.free = 0;
        }
        // SAFETY: a non-null entry that is not free is from `into_raw`, and it is taken out once.
        NonNull::new(entry).map(|raw| unsafe { TaskRef::from_raw(raw) })
    }

    /// Returns how many indices are reserved or filled.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns references to all tasks.
    pub(crate) fn tasks(&self) -> Vec<TaskRef<M>> {
        Self::references(&self.entries)
    }

    /// Returns references to the tasks at `count` indices from `first` on, or `None` if there are
    /// no such indices.
    pub(crate) fn some_tasks(&self, first: usize, count: usize) -> Option<Vec<TaskRef<M>>> {
        let rest = self.entries.get(first..).filter(|rest| !rest.is_empty())?;
        Some(Self::references(&rest[..count.min(rest.len())]))
    }

    fn references(entries: &[*mut ()]) -> Vec<TaskRef<M>> {
        let taken = entries.iter().filter(|&&entry| !is_free(entry));
        let tasks = taken.filter_map(|&entry| NonNull::new(entry));
        // SAFETY: the entry is from `into_raw`. It is not dropped here: the list keeps this
        // reference.
        let tasks = tasks.map(|raw| ManuallyDrop::new(unsafe { TaskRef::from_raw(raw) }));
        tasks.map(|task| TaskRef::clone(&task)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_burst_goes_with_its_last_task() {
        let mut list = List::<()>::default();
        for _ in 0..2 {
            let indices: Vec<_> = (0..5_000).map(|_| list.reserve()).collect();
            assert!(indices.iter().copied().eq(0..5_000));
            indices.into_iter().for_each(|index| _ = list.remove(index));
            assert_eq!((list.len(), list.entries.capacity()), (0, 0));
        }
    }

    #[test]
    fn freed_indices_are_reused_and_never_shared() {
        let mut list = List::<()>::default();
        assert_eq!([(); 4].map(|()| list.reserve()), [0, 1, 2, 3]);
        for index in [1, 3, 0] {
            assert!(list.remove(index).is_none(), "it was never filled");
        }
        assert_eq!(list.len(), 1);
        assert_eq!([(); 4].map(|()| list.reserve()), [0, 3, 1, 4]);
        assert_eq!(list.len(), 5);
        assert!(list.tasks().is_empty());
        for (first, is_there) in [(0, true), (4, true), (5, false), (9, false)] {
            assert_eq!(list.some_tasks(first, 9).is_some(), is_there, "{first}");
        }
    }
}
