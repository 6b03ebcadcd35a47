//! A 4-ary min-heap that knows where each of its entries is.
//!
//! Four children a node halve the depth against a binary heap, and stand side by side (the shape is
//! libev's; the indexing by slot is the textbook's, Sedgewick's `IndexMinPQ`).

use super::{Entry, slots::Slots};

const ARITY: usize = 4;

/// The first entry of the fourth row: whoever has come up so far comes out in some tens of turns, and
/// not before the third.
const SOON: std::ops::Range<usize> = 21..85;

/// Who is told where an entry has come to.
pub(super) trait Positions {
    fn set(&mut self, slot: u32, position: u32);
}

impl Positions for Slots {
    #[inline]
    fn set(&mut self, slot: u32, position: u32) {
        Slots::set(self, slot, position);
    }
}

/// Nobody wants to know.
pub(super) struct Nowhere;

impl Positions for Nowhere {
    #[inline]
    fn set(&mut self, _slot: u32, _position: u32) {}
}

/// The entries of a heap. What it moves it writes down in the [`Positions`] that it is given.
#[derive(Debug, Default)]
pub(super) struct Tree {
    entries: Vec<Entry>,
}

impl Tree {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Entry> {
        self.entries.first().copied()
    }

    /// The key at a position that is in the tree.
    #[inline]
    pub(super) fn key(&self, at: u32) -> u64 {
        self.entries[at as usize].key
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
    }

    /// Keeps the entries of which that is true, for an owner who does not ask for positions.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Entry) -> bool) {
        self.entries.retain(keep);
        let parents = self.entries.len().div_ceil(ARITY);
        for at in (0..parents).rev() {
            self.sift_down(at, self.entries[at], &mut Nowhere, |_| ());
        }
    }

    /// All entries, in no order that matters.
    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    #[inline]
    pub(super) fn push(&mut self, entry: Entry, slots: &mut impl Positions) {
        self.entries.push(entry);
        self.sift_up(self.entries.len() - 1, entry, slots);
    }

    /// Takes out the entry at a position that is in the tree.
    #[inline]
    pub(super) fn remove(&mut self, at: u32, slots: &mut impl Positions) -> u64 {
        let at = at as usize;
        let key = self.entries[at].key;
        let last = self.entries.pop().expect("there is one at this position");
        if at < self.entries.len() {
            self.sift(at, last, slots);
        }
        key
    }

    /// Takes out the first entry, and tells `soon` who has come near the root by that.
    #[inline]
    pub(super) fn pop(
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

    /// Moves the entry at a position that is in the tree to another key.
    #[inline]
    pub(super) fn rekey(&mut self, at: u32, key: u64, slots: &mut impl Positions) {
        let at = at as usize;
        let slot = self.entries[at].slot;
        self.sift(at, Entry { key, slot }, slots);
    }

    #[inline]
    fn place(&mut self, at: usize, entry: Entry, slots: &mut impl Positions) {
        self.entries[at] = entry;
        slots.set(entry.slot, at as u32);
    }

    /// Moves `entry`, for which there is a hole at `at`, up to where it belongs.
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

    /// The child of `at` with the smallest key, if it has children.
    #[inline]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        let children = self.entries.get(first..)?;
        let least = match children.first_chunk::<ARITY>() {
            // Two pairs and a final, without a branch to mispredict.
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

    /// Moves `entry`, for which there is a hole at `at`, down to where it belongs.
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
            if SOON.contains(&at) {
                soon(below.slot);
            }
            self.place(at, below, slots);
            at = least;
        }
        self.place(at, entry, slots);
    }

    fn sift(&mut self, at: usize, entry: Entry, slots: &mut impl Positions) {
        if at > 0 && self.entries[(at - 1) / ARITY].key > entry.key {
            self.sift_up(at, entry, slots);
        } else {
            self.sift_down(at, entry, slots, |_| ());
        }
    }
}
