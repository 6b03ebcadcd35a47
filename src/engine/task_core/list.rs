//! The tasks of a list in the books: eight bytes for each, and one reference.

use std::{
    marker::PhantomData,
    mem::{self, ManuallyDrop},
    ptr,
    ptr::NonNull,
};

use tourbillon_tasks::TaskRef;

/// References to tasks, each at an index that it keeps. One that is left here is never given up, so that its
/// task stays; tasks leave by themselves, when they end.
pub(crate) struct List<M: 'static> {
    /// The address of a task; null for one that is being made; and for a place that is free, as an odd number,
    /// the index of the next such place. No task's address is odd.
    entries: Vec<*mut ()>,
    /// The first place that is free; how many there are, if none is.
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

// SAFETY: what it holds are references to tasks, which may be sent.
unsafe impl<M: 'static> Send for List<M> where TaskRef<M>: Send {}

/// Whether a place is free.
fn is_free(entry: *mut ()) -> bool {
    entry.addr() % 2 == 1
}

impl<M: 'static> List<M> {
    /// A place for a task that is being made.
    pub(crate) fn reserve(&mut self) -> usize {
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

    /// Puts a task into the place that was reserved for it.
    pub(crate) fn fill(&mut self, index: usize, task: TaskRef<M>) {
        debug_assert!(self.entries[index].is_null());
        self.entries[index] = task.into_raw().as_ptr();
    }

    /// Frees a place. `None` if it was not filled.
    pub(crate) fn remove(&mut self, index: usize) -> Option<TaskRef<M>> {
        let free = ptr::without_provenance_mut(2 * self.free + 1);
        let entry = mem::replace(&mut self.entries[index], free);
        debug_assert!(!is_free(entry));
        self.free = index;
        self.len -= 1;
        // SAFETY: not null, it is from `into_raw`, and is taken out once.
        NonNull::new(entry).map(|raw| unsafe { TaskRef::from_raw(raw) })
    }

    /// How many places are taken.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// References to all tasks.
    pub(crate) fn tasks(&self) -> Vec<TaskRef<M>> {
        let taken = self.entries.iter().filter(|&&entry| !is_free(entry));
        let tasks = taken.filter_map(|&entry| NonNull::new(entry));
        // SAFETY: it is from `into_raw`, and is not dropped: the reference stays here.
        let tasks = tasks.map(|raw| ManuallyDrop::new(unsafe { TaskRef::from_raw(raw) }));
        tasks.map(|task| TaskRef::clone(&task)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again_and_none_is_had_twice() {
        let mut list = List::<()>::default();
        assert_eq!([(); 4].map(|()| list.reserve()), [0, 1, 2, 3]);
        for index in [1, 3, 0] {
            assert!(list.remove(index).is_none(), "it was never filled");
        }
        assert_eq!(list.len(), 1);
        assert_eq!([(); 4].map(|()| list.reserve()), [0, 3, 1, 4]);
        assert_eq!(list.len(), 5);
        assert!(list.tasks().is_empty());
    }
}
