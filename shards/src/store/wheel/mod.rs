//! [`Wheel`], a lazy hierarchical wheel with exact keys: it has no tick and no horizon.
//!
//! The hierarchy is that of Varghese and Lauck ("Hashed and hierarchical timing wheels", 1987),
//! without a hand that moves. The level of a key is that of the highest digit in which it differs
//! from `base`, as in a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan, "Faster algorithms for the
//! shortest path problem", 1990). So eleven levels of 64 buckets cover all 64 bits. A bucket that
//! gets long is split, as in a ladder queue (Tang, Goh and Thng, 2005), but when it is filled, and
//! not when it is due.
//!
//! - A table has the key of each slot. It alone defines what the store holds. A removal writes to
//!   the table only. A move writes to the table, and adds an entry where the new key belongs. The
//!   old entry is stale, and stays until it comes up or is swept.
//! - All keys up to `base` are in the *front*. All others are in the buckets, which have slots
//!   only. The first live entry of the front is known, so the first key is known at any moment
//!   without a search.
//! - When the front is empty, the first bucket moves into it. A small bucket is sorted, and becomes
//!   the front's *run*. A larger bucket is distributed to the levels below it.
//! - An entry that is inserted with a key up to `base` goes to a heap, the *tree*, which is the
//!   other half of the front. A store with few entries has all of them in the tree. If the tree
//!   gets large, `base` goes back to the first key.
//! - If there are many slots, their keys are in no cache. A move to an earlier key that is not the
//!   first one leaves a *note*, and prefetches the key. After some notes all these moves are made
//!   together, so that their cache misses overlap.
//! - If there are more stale entries than live ones, operations that make more sweep a few buckets.

use std::collections::BTreeSet;

use self::levels::Levels;
use super::{
    interface::{Entry, Store},
    keys::{FREE, Keys},
    slots::VACANT,
    tree::{Nowhere, Tree},
};

mod fast;
mod front;
mod levels;

/// The tree may always have this many entries before `base` goes back.
const MIN_TREE_LIMIT: usize = if cfg!(loom) {
    1
} else if cfg!(test) {
    12
} else {
    512
};

/// This many entries may always be stale, however few are live.
const STALE: usize = 64;

/// The number of notes: this many moves to earlier keys are made together.
const NOTES: usize = 16;

/// A store with this many slots restarts when none is held. A restart takes as long as some ten
/// insertions.
const RESTART: usize = if cfg!(test) { 24 } else { 1_024 };

/// The largest slot.
const MAX_SLOT: u32 = (1 << 29) - 1;

/// Stands for no entry. Its key is not below any other.
const NO_ENTRY: Entry = Entry {
    key: u64::MAX,
    slot: VACANT,
};

/// A store for very many timers of any distribution: a lazy hierarchical wheel.
///
/// Inserting, removing and moving an entry touch about one cold cache line each. An entry moves
/// once for each level that it passes, few entries more than twice, and is sorted among some
/// hundreds. The average costs do not depend on the number of entries. But single calls differ: the
/// removal of the last entry of the front prepares the next bucket, and some removals and moves
/// sweep a bucket. A bucket has 8,192 entries at most, unless their keys are equal. Keys are exact,
/// and any key is allowed at any time.
///
/// An entry takes 12 bytes. Each removed or moved entry takes 4 more until it is swept; there are
/// at most about as many as entries. Each bucket in use takes up to a cache line more, and each
/// free slot 4 bytes. No memory is freed, but a [shard replaces](crate::Shard::shrink) a store that
/// is too large. The wheel holds up to 2^29 entries.
///
/// ```
/// use tourbillon_shards::store::{Store, Wheel};
///
/// let mut wheel = Wheel::new();
/// let years = wheel.insert(100 * 365 * 24 * 3_600 * 1_000_000_000);
/// let soon = wheel.insert(11);
/// let sooner = wheel.insert(10);
/// assert_eq!(wheel.first(), Some((10, sooner)));
/// wheel.remove(sooner);
/// assert_eq!(wheel.first(), Some((11, soon)));
/// wheel.rekey(years, 0);
/// assert_eq!(wheel.first(), Some((0, years)));
/// ```
#[derive(Debug)]
pub struct Wheel {
    /// The first entry, or `NO_ENTRY` if the store is empty.
    first: Entry,
    len: usize,
    keys: Keys,
    /// The entries of the front that were inserted with a key up to `base`.
    tree: Tree,
    /// How large `tree` may get before `base` may go back.
    tree_limit: usize,
    /// The bucket that moved into the front, sorted.
    run: Vec<Entry>,
    /// How many entries at the start of `run` were passed.
    head: usize,
    levels: Levels,
    /// How many entries may get stale before the next check; never 0.
    stale_budget: usize,
    /// The first `noted` entries are moves that were noted, in their order. No key is earlier than
    /// the first one. A move to a key that is not earlier than the slot's present key is skipped.
    notes: [Entry; NOTES],
    noted: usize,
    /// The held slots whose key is `FREE`, the largest key. The table cannot tell them from free
    /// slots.
    max_keys: BTreeSet<u32>,
    /// How often entries moved between the buckets and the front.
    #[cfg(test)]
    moves: usize,
}

impl Default for Wheel {
    fn default() -> Self {
        Self {
            first: NO_ENTRY,
            len: 0,
            keys: Keys::default(),
            tree: Tree::default(),
            tree_limit: MIN_TREE_LIMIT,
            run: Vec::new(),
            head: 0,
            levels: Levels::new(),
            stale_budget: STALE,
            notes: [NO_ENTRY; NOTES],
            noted: 0,
            max_keys: BTreeSet::new(),
            #[cfg(test)]
            moves: 0,
        }
    }
}

impl Wheel {
    /// Creates an empty wheel.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry whose slot has its key in the table already.
    #[inline]
    fn accept(&mut self, entry: Entry) {
        if entry.key > self.levels.base {
            // While the buckets are empty, `base` is `FREE` itself. Then `accept_near` makes this
            // test.
            if entry.key == FREE {
                return self.accept_max(entry.slot);
            }
            self.levels.push(entry, &mut self.keys);
        } else {
            self.accept_near(entry);
        }
    }

    /// Adds an entry to the front.
    #[inline]
    fn accept_near(&mut self, entry: Entry) {
        if entry.key == FREE {
            return self.accept_max(entry.slot);
        }
        self.tree.push(entry, &mut Nowhere);
        if entry.key < self.first.key {
            self.first = entry;
        }
        if self.tree.len() > self.tree_limit {
            self.spread_front();
        }
    }

    /// Adds a slot whose key is `FREE`.
    #[cold]
    fn accept_max(&mut self, slot: u32) {
        self.max_keys.insert(slot);
        if self.first.slot == VACANT {
            self.first = Entry { key: FREE, slot };
        }
    }

    /// Removes a slot whose key is `FREE`. Panics if it is not held.
    #[cold]
    fn remove_max(&mut self, slot: u32) {
        assert!(
            self.max_keys.remove(&slot),
            "slot {slot} is not in the store"
        );
    }

    /// Returns the key of a slot. Panics if the slot is not held.
    #[inline]
    fn held_key(&self, slot: u32) -> u64 {
        let key = self.keys.get(slot);
        if key == FREE {
            self.check_max(slot);
        }
        key
    }

    /// Panics if a slot whose key is `FREE` is not held.
    #[cold]
    fn check_max(&self, slot: u32) {
        let held = self.max_keys.contains(&slot);
        assert!(held, "slot {slot} is not in the store");
    }

    /// Moves the entry of a slot from the key `old` to another key.
    #[inline]
    fn relocate(&mut self, slot: u32, old: u64, key: u64) {
        if old == FREE {
            self.remove_max(slot);
        }
        self.keys.set(slot, key);
        let base = self.levels.base;
        // In the same bucket the slot serves for both keys.
        if old > base
            && key > base
            && old != FREE
            && key != FREE
            && self.levels.are_together(old, key)
        {
            return;
        }
        self.accept(Entry { key, slot });
        // The first entry has moved to a later key. (To an earlier one, `accept` has changed
        // `first`.)
        if slot == self.first.slot && key != self.first.key {
            self.find_first();
        }
        self.count_stale();
    }

    /// Makes the moves that were noted. Each operation that removes or moves an entry in another
    /// way does this first.
    #[inline]
    fn make_noted_moves(&mut self) {
        if self.noted > 0 {
            self.settle_notes();
        }
    }

    /// Slow path of [`make_noted_moves`](Wheel::make_noted_moves): there are notes.
    #[inline(never)]
    fn settle_notes(&mut self) {
        for note in 0..std::mem::take(&mut self.noted) {
            let Entry { key, slot } = self.notes[note];
            let old = self.held_key(slot);
            if key < old {
                self.relocate(slot, old, key);
            }
        }
    }

    /// Restarts the store, which is empty: forgets all slots and stale entries. Otherwise new
    /// entries would take the free slots in the order in which they were freed, and the processor
    /// could not prefetch what is indexed by slots.
    #[cold]
    fn restart(&mut self) {
        self.first = NO_ENTRY;
        self.keys.clear();
        self.tree.clear();
        self.tree_limit = MIN_TREE_LIMIT;
        self.run.clear();
        self.head = 0;
        self.levels.clear();
        self.stale_budget = STALE;
    }

    /// Returns whether the store is empty and a [restart](Wheel::restart) is worth its time.
    #[inline]
    fn should_restart(&self) -> bool {
        self.len == 0 && self.keys.len() >= RESTART
    }

    /// Counts moves of entries, for tests.
    fn count_moves(&mut self, _count: usize) {
        #[cfg(test)]
        (self.moves += _count);
    }
}

impl Store for Wheel {
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.keys.take(key, MAX_SLOT);
        self.len += 1;
        self.accept(Entry { key, slot });
        slot
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        // A note of this slot must not outlive it.
        self.make_noted_moves();
        let key = self.keys.get(slot);
        if key == FREE {
            self.remove_max(slot);
        }
        self.keys.give_back(slot);
        self.len -= 1;
        // The first entry is always live, so another one becomes the first.
        if slot == self.first.slot {
            if self.should_restart() {
                self.restart();
                return key;
            }
            self.find_first();
        }
        self.count_stale();
        key
    }

    #[inline]
    fn rekey(&mut self, slot: u32, key: u64) {
        self.make_noted_moves();
        let old = self.held_key(slot);
        if old != key {
            self.relocate(slot, old, key);
        }
    }

    #[inline]
    fn lower(&mut self, slot: u32, key: u64) {
        if key < self.first.key || !self.takes_notes() {
            self.make_noted_moves();
            let old = self.held_key(slot);
            if key < old {
                self.relocate(slot, old, key);
            }
            return;
        }
        // The key is probably in no cache. The move waits until several can be made together.
        self.keys.fetch(slot);
        self.notes[self.noted] = Entry { key, slot };
        self.noted += 1;
        if self.noted == NOTES {
            self.settle_notes();
        }
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        let notes = self.notes[..self.noted].iter().filter(|it| it.slot == slot);
        let notes = notes.map(|it| it.key);
        notes.fold(self.held_key(slot), u64::min)
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        let Entry { key, slot } = self.first;
        (slot != VACANT).then_some((key, slot))
    }

    #[inline]
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        let Entry { key, slot } = self.first;
        if key > now || slot == VACANT {
            return None;
        }
        // As in `remove`. No note is for an earlier key, so the first entry stays the first.
        self.make_noted_moves();
        if key == FREE {
            self.remove_max(slot);
        }
        self.keys.give_back(slot);
        self.len -= 1;
        if self.should_restart() {
            self.restart();
        } else {
            self.advance(soon);
        }
        Some((key, slot))
    }

    #[inline]
    fn len(&self) -> usize {
        self.len
    }

    #[inline]
    fn first_key(&self) -> u64 {
        self.first.key
    }
}

#[cfg(test)]
mod tests;
