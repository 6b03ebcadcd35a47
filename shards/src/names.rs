//! Timers by name.
//!
//! A name is shared by any number of timers, and found in a table that is split into parts, so that
//! threads seldom meet. A named timer stands in its name's list from when it is built until it is
//! over, or can be cancelled no more; its place in the list stands in the timer. Both are written
//! under the lock of the part, so that it is taken out in constant time. A name without timers is
//! not in the table.
//!
//! The list owns a reference to each of its timers. No timer is cancelled, moved or freed under a
//! lock: what is found is taken out, or referred to, first. So a timer may be found that has just
//! ended; its claim word says so, as it does to any handle.

use std::{collections::HashMap, fmt, hash::BuildHasher, sync::Arc as Shared};

use crossbeam_utils::CachePadded;

use crate::{
    foreign::each,
    moving::refresh,
    node::NodeRef,
    owner::Owner,
    sync::{Arc, AtomicU32, Mutex, Ordering, RandomState, lock},
    timer::{Cancel, Reset, cancel},
};

/// In no list, and never again.
const NOWHERE: u32 = u32::MAX;

/// How many are taken out of a list at a time to be cancelled.
const BATCH: usize = if cfg!(loom) { 1 } else { 256 };

type Part<O> = HashMap<Shared<str>, Vec<NodeRef<O>>, RandomState>;

/// The timers that have names, of any number of shards.
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
///     Timer::build(&shard, wait, None, options, Flow::Break).start(0);
/// }
/// assert_eq!(names.count("user 17"), 3);
/// assert_eq!(names.refresh("user 17", || 100), 3);
/// assert_eq!(shard.next_deadline(), 10, "or earlier than is needed: it hears of it then");
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
    /// An empty table of so many parts (at least one): some for each thread that uses it.
    pub fn new(parts: usize) -> Self {
        let part = || CachePadded::new(Mutex::new(Part::default()));
        Self {
            hasher: RandomState::default(),
            parts: (0..parts.max(1)).map(|_| part()).collect(),
        }
    }

    fn part(&self, name: &str) -> &Mutex<Part<O>> {
        let hash = self.hasher.hash_one(name);
        // The upper half: the map uses the lower.
        &self.parts[(hash >> 32) as usize % self.parts.len()]
    }

    /// How many timers have this name.
    pub fn count(&self, name: &str) -> usize {
        lock(self.part(name)).get(name).map_or(0, Vec::len)
    }

    /// Cancels timers of this name, `max` at most; answers how many this call cancelled. Those that
    /// were named last come first, as long as none has ended: its place goes to the last.
    ///
    /// A timer that is running for the last time is not cancelled and not counted.
    ///
    /// # Panics
    ///
    /// As [`Owner::panicked`] does where a callback's destructor panics, which it does by default.
    /// Some timers may not have been cancelled then, and can be found by their name.
    pub fn cancel(&self, name: &str, max: usize) -> usize {
        let mut cancelled = 0;
        while cancelled < max {
            let found = self.take(name, (max - cancelled).min(BATCH));
            if found.is_empty() {
                break;
            }
            // All of them, for nobody will find them here again.
            each(found, |node| {
                let answer = cancel(&node);
                cancelled += usize::from(matches!(answer, Cancel::Cancelled | Cancel::AfterRun));
            });
        }
        cancelled
    }

    /// Begins the waits of all timers of this name anew: see
    /// [`Timer::refresh`](crate::Timer::refresh). Answers how many were in time.
    ///
    /// `now` reads the clock, in ns. It is asked for each timer: a walk over many takes some time,
    /// in which others start and refresh them.
    pub fn refresh(&self, name: &str, now: impl Fn() -> u64) -> usize {
        let nodes = lock(self.part(name)).get(name).cloned().unwrap_or_default();
        nodes
            .iter()
            .filter(|node| matches!(refresh(node, now()), Reset::Waiting | Reset::AfterRun))
            .count()
    }

    /// All names, with how many timers each has, in no order. For looking at: it takes one part
    /// after the other.
    pub fn list(&self) -> Vec<(Shared<str>, usize)> {
        let mut names = Vec::new();
        for part in &self.parts {
            let part = lock(part);
            names.extend(part.iter().map(|(name, nodes)| (name.clone(), nodes.len())));
        }
        names
    }

    /// Takes the last timers out of a list: they cannot be found any more.
    fn take(&self, name: &str, count: usize) -> Vec<NodeRef<O>> {
        let mut part = lock(self.part(name));
        let Some(nodes) = part.get_mut(name) else {
            return Vec::new();
        };
        let taken = nodes.split_off(nodes.len().saturating_sub(count));
        for node in &taken {
            place(node).store(NOWHERE, Ordering::Release);
        }
        if nodes.is_empty() {
            part.remove(name);
        }
        taken
    }
}

/// The place of a named node in the list of its name.
fn place<O: Owner>(node: &NodeRef<O>) -> &AtomicU32 {
    let name = node.extras().and_then(|extras| extras.name.as_ref());
    &name.expect("only named nodes are in lists").place
}

/// The name of one timer.
pub struct Name<O: Owner> {
    names: Arc<Names<O>>,
    name: Shared<str>,
    place: AtomicU32,
}

impl<O: Owner> Name<O> {
    /// A name for one timer, by which it will be found in `names`.
    pub fn new(names: &Arc<Names<O>>, name: &str) -> Self {
        // All timers of a name share its text.
        let known = lock(names.part(name))
            .get_key_value(name)
            .map(|(name, _)| name.clone());
        Self {
            names: names.clone(),
            name: known.unwrap_or_else(|| name.into()),
            place: AtomicU32::new(NOWHERE),
        }
    }

    /// Puts the timer into the list. Once, before anybody else has it.
    ///
    /// # Panics
    ///
    /// If 2^32 − 1 timers have this name.
    pub(crate) fn join(&self, node: &NodeRef<O>) {
        let mut part = lock(self.names.part(&self.name));
        let nodes = part.entry(self.name.clone()).or_default();
        assert!(
            nodes.len() < NOWHERE as usize,
            "too many timers of one name"
        );
        self.place.store(nodes.len() as u32, Ordering::Release);
        nodes.push(node.clone());
    }

    /// Takes the timer out of the list, if it still stands there.
    pub(crate) fn leave(&self) {
        // Without the lock: who is out never comes in again.
        if self.place.load(Ordering::Acquire) == NOWHERE {
            return;
        }
        let mut part = lock(self.names.part(&self.name));
        let at = self.place.swap(NOWHERE, Ordering::AcqRel);
        if at == NOWHERE {
            return;
        }
        let nodes = part
            .get_mut(&self.name)
            .expect("a timer's place is in the list of its name");
        let node = nodes.swap_remove(at as usize);
        if let Some(moved) = nodes.get(at as usize) {
            place(moved).store(at, Ordering::Release);
        }
        if nodes.is_empty() {
            part.remove(&self.name);
        }
        drop(part);
        // Perhaps the last reference, after the lock.
        drop(node);
    }
}

impl<O: Owner> fmt::Debug for Names<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.list()).finish()
    }
}

impl<O: Owner> fmt::Debug for Name<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.name).finish()
    }
}
