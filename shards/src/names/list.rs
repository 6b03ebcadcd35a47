//! Lists of timers, each from the oldest to the newest, whose entries share one array.
//!
//! An entry knows its two neighbours, so adding and removing take constant time and keep the order.
//! An entry of 16 bytes per timer is all that a list needs. A list of its own for each name would
//! need an allocation, and most names have one timer.

use std::mem;

use crate::{
    node::{NodeRef, extras::NOWHERE},
    owner::Owner,
};

/// An array with room for more entries than this is freed when its last timer leaves. A smaller one
/// is kept for the next timer.
const KEPT: usize = 256;

/// The timers of one name.
pub(super) struct List {
    /// Index of the oldest entry, or [`NOWHERE`].
    first: u32,
    /// Index of the newest entry, or [`NOWHERE`].
    last: u32,
    len: u32,
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }
}

impl Default for List {
    fn default() -> Self {
        Self {
            first: NOWHERE,
            last: NOWHERE,
            len: 0,
        }
    }
}

struct Entry<O: Owner> {
    /// The timer, or `None` if the entry is free.
    node: Option<NodeRef<O>>,
    /// Index of the next older entry, or [`NOWHERE`].
    older: u32,
    /// Index of the next newer entry, or [`NOWHERE`]. If the entry is free: of another free entry.
    newer: u32,
}

/// The entries of all lists of a part of the table.
pub(super) struct Entries<O: Owner> {
    array: Vec<Entry<O>>,
    /// Index of a free entry, or [`NOWHERE`].
    free: u32,
    /// The number of entries that are not free.
    held: u32,
}

impl<O: Owner> Entries<O> {
    pub(super) fn new() -> Self {
        Self {
            array: Vec::new(),
            free: NOWHERE,
            held: 0,
        }
    }

    /// Returns whether no index is left for another timer.
    pub(super) fn is_full(&self) -> bool {
        self.held == NOWHERE
    }

    /// Appends a timer to a list as its newest one, and returns its index.
    pub(super) fn push(&mut self, list: &mut List, node: NodeRef<O>) -> u32 {
        let entry = Entry {
            node: Some(node),
            older: list.last,
            newer: NOWHERE,
        };
        let at = match self.free {
            NOWHERE => {
                self.array.push(entry);
                self.array.len() as u32 - 1
            }
            at => {
                self.free = self.array[at as usize].newer;
                self.array[at as usize] = entry;
                at
            }
        };
        self.set_newer(list, list.last, at);
        list.last = at;
        list.len += 1;
        self.held += 1;
        at
    }

    /// Removes the timer with this index from its list.
    pub(super) fn remove(&mut self, list: &mut List, at: u32) -> NodeRef<O> {
        let entry = &mut self.array[at as usize];
        let node = entry.node.take().expect("the list has this timer");
        let (older, newer) = (entry.older, entry.newer);
        entry.newer = mem::replace(&mut self.free, at);
        self.set_newer(list, older, newer);
        match newer {
            NOWHERE => list.last = older,
            newer => self.array[newer as usize].older = older,
        }
        list.len -= 1;
        self.held -= 1;
        node
    }

    /// Removes the oldest timer from a list.
    pub(super) fn remove_oldest(&mut self, list: &mut List) -> Option<NodeRef<O>> {
        (list.len > 0).then(|| self.remove(list, list.first))
    }

    /// Sets which entry follows the one with the index `older`, or the first one of the list.
    fn set_newer(&mut self, list: &mut List, older: u32, newer: u32) {
        match older {
            NOWHERE => list.first = newer,
            older => self.array[older as usize].newer = newer,
        }
    }

    /// Returns the timers of a list, the oldest first.
    pub(super) fn iter(&self, list: &List) -> impl Iterator<Item = &NodeRef<O>> {
        let mut at = list.first;
        std::iter::from_fn(move || {
            // NOWHERE is beyond the array.
            let entry = self.array.get(at as usize)?;
            at = entry.newer;
            entry.node.as_ref()
        })
    }

    /// Takes a large array out if no entry is held. The caller drops it after it has released the
    /// mutex, because freeing it takes the system some time.
    pub(super) fn take_outgrown(&mut self) -> Self {
        if self.held == 0 && self.array.capacity() > KEPT {
            return mem::replace(self, Self::new());
        }
        Self::new()
    }
}
