//! Table of timers by name.
//!
//! Any number of timers may share a name. The table is split into parts, so that threads seldom
//! contend for one lock. A named timer is in the list of its name from when it is built until it
//! ends. The list has the timers in the order in which they were named. A timer knows the index of
//! its entry, so it can be removed in constant time. List and index change under the lock of the
//! part. A name without timers is not in the table.
//!
//! The list owns a reference to each of its timers. No timer is cancelled, reset or freed under the
//! lock: the caller first takes timers out of the list, or copies the references. So it may find a
//! timer that has just ended. The timer's claim word says so, as it does for a handle. See "Names"
//! in `PROTOCOLS.md`.

use std::{collections::HashMap, fmt, hash::BuildHasher, sync::Arc as Shared};

use crossbeam_utils::CachePadded;
use tourbillon_sync::{Arc, AtomicU32, Mutex, Ordering, RandomState, lock};

use crate::{
    names::list::{Entries, List},
    node::{NodeRef, extras::NOWHERE},
    owner::Owner,
};

mod bulk;
mod list;

/// A part of the table: some names, and the entries of their lists.
struct Part<O: Owner> {
    lists: HashMap<Shared<str>, List, RandomState>,
    entries: Entries<O>,
}

impl<O: Owner> Part<O> {
    fn new() -> Self {
        Self {
            lists: HashMap::default(),
            entries: Entries::new(),
        }
    }
}

/// Table of named timers, which may wait in any number of shards.
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Flow, Name, Names, Options, Owner, Shard, Timer};
/// # struct Loop;
/// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
/// let shard = Arc::new(Shard::new(Loop));
/// let names = Arc::new(Names::new(16));
/// for wait in [10, 20, 30] {
///     let name = Some(Name::new(&names, "user 17"));
///     let options = Options { name, ..Options::default() };
///     Timer::build(&shard, wait, options, Flow::Break).start(0);
/// }
/// assert_eq!(names.count("user 17"), 3);
/// assert_eq!(names.refresh("user 17", || 100), 3);
/// assert_eq!(shard.next_deadline(), 10, "a later deadline is read when the owner wakes");
/// assert_eq!(names.cancel("user 17", 2), 2);
/// assert_eq!(names.cancel("user 17", usize::MAX), 1);
/// assert!(names.list().is_empty());
/// shard.close();
/// ```
pub struct Names<O: Owner> {
    hasher: RandomState,
    parts: Box<[CachePadded<Mutex<Part<O>>>]>,
}

impl<O: Owner> Names<O> {
    /// Creates an empty table of `parts` parts, at least one. Some parts for each thread that uses
    /// the table keep lock contention low.
    pub fn new(parts: usize) -> Self {
        let part = || CachePadded::new(Mutex::new(Part::new()));
        Self {
            hasher: RandomState::default(),
            parts: (0..parts.max(1)).map(|_| part()).collect(),
        }
    }

    /// Returns the part of the table that holds this name.
    fn part(&self, name: &str) -> &Mutex<Part<O>> {
        let hash = self.hasher.hash_one(name);
        // The upper half of the hash, because the map uses the lower.
        &self.parts[(hash >> 32) as usize % self.parts.len()]
    }

    /// Returns how many timers have this name.
    pub fn count(&self, name: &str) -> usize {
        lock(self.part(name)).lists.get(name).map_or(0, List::len)
    }

    /// Returns all names, each with its number of timers, in no particular order. The parts are
    /// read one after the other, so this is no atomic snapshot.
    pub fn list(&self) -> Vec<(Shared<str>, usize)> {
        let mut names = Vec::new();
        for part in &self.parts {
            let part = lock(part);
            names.extend((part.lists.iter()).map(|(name, list)| (name.clone(), list.len())));
        }
        names
    }

    /// Takes at most `count` timers out of a list, the oldest first. From then on the list does not
    /// lead to them. Returns them, and how many timers are left in the list.
    fn take(&self, name: &str, count: usize) -> (Vec<NodeRef<O>>, usize) {
        let mut guard = lock(self.part(name));
        let Part { lists, entries } = &mut *guard;
        let Some(list) = lists.get_mut(name) else {
            return (Vec::new(), 0);
        };
        let mut taken = Vec::with_capacity(count.min(list.len()));
        while taken.len() < count {
            let Some(node) = entries.remove_oldest(list) else {
                break;
            };
            // Under the lock, so that index and list agree. See "Names" in `PROTOCOLS.md`.
            place(&node).store(NOWHERE, Ordering::Release);
            taken.push(node);
        }
        let left = list.len();
        if left == 0 {
            lists.remove(name);
        }
        let outgrown = entries.take_outgrown();
        drop(guard);
        drop(outgrown);
        (taken, left)
    }

    /// Returns references to all timers of a name, the oldest first.
    fn copy(&self, name: &str) -> Vec<NodeRef<O>> {
        let part = lock(self.part(name));
        let nodes = |list| part.entries.iter(list).cloned().collect();
        part.lists.get(name).map(nodes).unwrap_or_default()
    }
}

/// Returns the index of the entry of a named node.
fn place<O: Owner>(node: &NodeRef<O>) -> &AtomicU32 {
    &node.extras().expect("only named nodes are in lists").place
}

/// Name of one timer, for [`Options::name`](crate::Options::name).
pub struct Name<O: Owner> {
    names: Arc<Names<O>>,
    name: Shared<str>,
}

impl<O: Owner> Name<O> {
    /// Creates the name of one timer, which `names` will find by it.
    pub fn new(names: &Arc<Names<O>>, name: &str) -> Self {
        // All timers of a name share one copy of its text.
        let known = lock(names.part(name))
            .lists
            .get_key_value(name)
            .map(|(name, _)| name.clone());
        Self {
            names: names.clone(),
            name: known.unwrap_or_else(|| name.into()),
        }
    }

    /// Adds the timer to the list of its name. Called once, before another thread has the timer.
    ///
    /// # Panics
    ///
    /// Panics if a part of the table has 2^32 − 1 timers.
    pub(crate) fn join(&self, node: &NodeRef<O>) {
        let mut guard = lock(self.names.part(&self.name));
        let Part { lists, entries } = &mut *guard;
        // First of all, so that no name without timers is left behind.
        assert!(!entries.is_full(), "too many timers with names");
        let list = lists.entry(self.name.clone()).or_default();
        let at = entries.push(list, node.clone());
        place(node).store(at, Ordering::Release);
    }

    /// Removes the timer whose entry has this index from the list of its name, if it is still
    /// there.
    pub(crate) fn leave(&self, index: &AtomicU32) {
        // This check needs no lock: NOWHERE is final, so a timer that is in no list never gets into
        // one again.
        if index.load(Ordering::Acquire) == NOWHERE {
            return;
        }
        let mut guard = lock(self.names.part(&self.name));
        // Another thread may have removed the timer before this one had the lock.
        let at = index.swap(NOWHERE, Ordering::AcqRel);
        if at == NOWHERE {
            return;
        }
        let Part { lists, entries } = &mut *guard;
        let list = lists
            .get_mut(&self.name)
            .expect("a timer's entry is in the list of its name");
        let node = entries.remove(list, at);
        if list.len() == 0 {
            lists.remove(&self.name);
        }
        let outgrown = entries.take_outgrown();
        drop(guard);
        // Drop after unlocking: this may be the last reference.
        drop((node, outgrown));
    }
}

impl<O: Owner> fmt::Debug for Names<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.list()).finish()
    }
}

debug!(Name, |it| it.name);
