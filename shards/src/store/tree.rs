//! A 4-ary min-heap that reports the position of each entry.
//!
//! With four children a node, the depth is half that of a binary heap, and the children are next to
//! each other. The shape is that of libev's heap. The index by slot is the textbook's (Sedgewick's
//! `IndexMinPQ`).

use super::{interface::Entry, slots::Slots};

const ARITY: usize = 4;

/// The positions from which entries are prefetched: the fourth row. An entry that comes up from
/// there comes out after some tens of pops, and not before the third.
const PREFETCHED: std::ops::Range<usize> = 21..85;

/// Receives the new position of each entry that moves.
pub(crate) trait Positions {
    /// Records that the entry of `slot` is at `position`.
    fn set(&mut self, slot: u32, position: u32);
}

impl Positions for Slots {
    #[inline]
    fn set(&mut self, slot: u32, position: u32) {
        Slots::set(self, slot, position);
    }
}

/// Ignores the positions.
pub(crate) struct Nowhere;

impl Positions for Nowhere {
    #[inline]
    fn set(&mut self, _slot: u32, _position: u32) {}
}

/// The entries of a heap. Each method that moves entries reports their positions to the
/// [`Positions`] that it is given.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn first(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    /// Returns the key at a position in the tree.
    #[inline]
    pub(super) fn key(&self, at: u32) -> u64 {
        self.entries[at as usize].key
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Removes the entries for which `keep` is false, like `Vec::retain`. Positions become invalid.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
        let parents = self.entries.len().div_ceil(ARITY);
        for at in (0..parents).rev() {
            self.sift_down(at, self.entries[at], &mut Nowhere, |_| ());
        }
    }

    /// Removes the entries for which `keep` is false, and all but one of equal entries.
    pub(crate) fn compact(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
        // A sorted list is a heap.
        self.entries
            .sort_unstable_by_key(|entry| (entry.key, entry.slot));
        self.entries.dedup_by_key(|entry| (entry.key, entry.slot));
    }

    /// Returns all entries, in no particular order.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an entry.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry, slots: &mut impl Positions) {
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1, entry, slots);
    }

    /// Removes the entry at a position in the tree, and returns its key.
    #[inline]
    pub(super) fn remove(&mut self, at: u32, slots: &mut impl Positions) -> u64 {
        let at = at as usize;
        let key = self.entries[at].key;
        let last = self.entries.pop().expect("there is one at this position");
        // The last entry fills the hole, unless it was the one to remove.
        if at < self.entries.len() {
            self.sift(at, last, slots);
        }
        key
    }

    /// Removes the first entry. Calls `soon` with an entry that comes near the root.
    #[inline]
    pub(crate) fn pop(
        &mut self,
        slots: &mut impl Positions,
        soon: impl FnMut(u32),
    ) -> Option<Entry> {
        let first = self.first()?;
        let last = self.entries.pop()?;
        if !self.entries.is_empty() {
            self.sift_down(0, last, slots, soon);
        }
        Some(first)
    }

    /// Changes the key of the entry at a position in the tree.
    #[inline]
    pub(super) fn rekey(&mut self, at: u32, key: u64, slots: &mut impl Positions) {
        let at = at as usize;
        let slot = self.entries[at].slot;
        self.sift(at, Entry { key, slot }, slots);
    }

    /// Writes an entry to a position, and reports that.
    #[inline]
    fn place(&mut self, at: usize, entry: Entry, slots: &mut impl Positions) {
        self.entries[at] = entry;
        slots.set(entry.slot, at as u32);
    }

    /// Moves `entry` from the hole at `at` up to its place.
    fn sift_up(&mut self, mut at: usize, entry: Entry, slots: &mut impl Positions) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            let above = self.entries[parent];
            if above.key <= entry.key {
                break;
            }
            self.place(at, above, slots);
            at = parent;
        }
        self.place(at, entry, slots);
    }

    /// Returns the child of `at` with the smallest key, if `at` has children.
    #[inline]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        let children = self.entries.get(first..)?;
        let least = match children.first_chunk::<ARITY>() {
            // Compares two pairs, and then their winners, without a branch to mispredict.
            Some(four) => {
                let left = usize::from(four[1].key < four[0].key);
                let right = 2 + usize::from(four[3].key < four[2].key);
                if four[right].key < four[left].key {
                    right
                } else {
                    left
                }
            }
            None => (0..children.len()).min_by_key(|&child| children[child].key)?,
        };
        Some(first + least)
    }

    /// Moves `entry` from the hole at `at` down to its place.
    // Always inlined. Otherwise the compiler's decision depends on the rest of the calling crate.
    #[inline(always)]
    fn sift_down(
        &mut self,
        mut at: usize,
        entry: Entry,
        slots: &mut impl Positions,
        mut soon: impl FnMut(u32),
    ) {
        while let Some(least) = self.least_child(at) {
            let below = self.entries[least];
            if below.key >= entry.key {
                break;
            }
            // `below` moves up into the fourth row.
            if PREFETCHED.contains(&at) {
                soon(below.slot);
            }
            self.place(at, below, slots);
            at = least;
        }
        self.place(at, entry, slots);
    }

    /// Moves `entry` from the hole at `at` to its place, up or down.
    fn sift(&mut self, at: usize, entry: Entry, slots: &mut impl Positions) {
        if at > 0 && self.entries[(at - 1) / ARITY].key > entry.key {
            self.sift_up(at, entry, slots);
        } else {
            self.sift_down(at, entry, slots, |_| ());
        }
    }
}
