//! [`Heap`], an indexed 4-ary min-heap.

use super::{
    interface::{Entry, Store},
    slots::Slots,
    tree::Tree,
};
use crate::node::location::Location;

/// A store for deadlines of any distribution: an indexed 4-ary heap.
///
/// Inserting, removing and moving an entry take O(log n), and the first entry O(1). An entry takes
/// 16 bytes. No operation takes much longer than another. The heap holds up to 2^31 entries.
///
/// ```
/// use tourbillon_shards::store::{Heap, Store};
///
/// let mut heap = Heap::new();
/// let late = heap.insert(30);
/// let early = heap.insert(10);
/// heap.rekey(late, 5);
/// assert_eq!(heap.first(), Some((5, late)));
/// heap.remove(late);
/// assert_eq!(heap.first(), Some((10, early)));
/// ```
#[derive(Debug, Default)]
pub struct Heap {
    tree: Tree,
    slots: Slots,
}

impl Heap {
    /// Creates an empty heap.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Store for Heap {
    #[inline]
    fn insert(&mut self, key: u64) -> u32 {
        let slot = self.slots.take(Location::MAX_SLOT);
        self.tree.push(Entry { key, slot }, &mut self.slots);
        slot
    }

    #[inline]
    fn remove(&mut self, slot: u32) -> u64 {
        let at = self.slots.position(slot);
        let key = self.tree.remove(at, &mut self.slots);
        self.slots.give_back(slot);
        key
    }

    #[inline]
    fn rekey(&mut self, slot: u32, key: u64) {
        let at = self.slots.position(slot);
        self.tree.rekey(at, key, &mut self.slots);
    }

    #[inline]
    fn key(&self, slot: u32) -> u64 {
        self.tree.key(self.slots.position(slot))
    }

    #[inline]
    fn first(&self) -> Option<(u64, u32)> {
        self.tree.first().map(|entry| (entry.key, entry.slot))
    }

    #[inline]
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)> {
        self.first().filter(|&(key, _)| key <= now)?;
        let Entry { key, slot } = self.tree.pop(&mut self.slots, soon)?;
        self.slots.give_back(slot);
        Some((key, slot))
    }

    #[inline]
    fn len(&self) -> usize {
        self.tree.len()
    }
}
