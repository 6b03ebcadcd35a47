//! Stores: which timer is next.
//!
//! A store keeps `(key, slot)` entries in dense arrays and never touches a timer's node: a cache
//! miss on a cold node costs more than two heap operations. Keys are exact nanoseconds.

mod any;
mod blocks;
mod heap;
mod keys;
mod slots;
mod tree;
mod wheel;

pub(crate) use any::Seen;
pub use any::{AnyStore, StoreKind};
pub use heap::Heap;
pub use wheel::Wheel;

/// What a store is made of. 12 bytes, so that four of them span less than a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
struct Entry {
    key: u64,
    slot: u32,
}

/// A priority queue of keys in which each entry has a slot by which it is found again.
///
/// Slots are small numbers, reused after removal: an array indexed by slot stays as dense as the
/// largest number of entries ever held at once.
///
/// Entries with equal keys come out in any order.
pub trait Store {
    /// Adds an entry and answers its slot.
    ///
    /// # Panics
    ///
    /// If there are too many: each store says how many it can hold, which is 2^29 at least.
    fn insert(&mut self, key: u64) -> u32;

    /// Removes the entry of `slot` and answers its key.
    ///
    /// # Panics
    ///
    /// If `slot` is not held.
    fn remove(&mut self, slot: u32) -> u64;

    /// Moves the entry of `slot` to another key.
    ///
    /// # Panics
    ///
    /// If `slot` is not held.
    fn rekey(&mut self, slot: u32, key: u64);

    /// Moves the entry of `slot` to `key`, if that is less than what it has. A store may put off what is not the first's
    /// affair, and do some of them together; nobody sees that.
    ///
    /// # Panics
    ///
    /// If `slot` is not held. That may be found later only, in another call.
    #[inline]
    fn lower(&mut self, slot: u32, key: u64) {
        if key < self.key(slot) {
            self.rekey(slot, key);
        }
    }

    /// The key of `slot`.
    ///
    /// # Panics
    ///
    /// If `slot` is not held.
    fn key(&self, slot: u32) -> u64;

    /// The smallest key and its slot. Exact, and O(1), after any operation.
    fn first(&self) -> Option<(u64, u32)>;

    /// The smallest key, or `u64::MAX` if there is none.
    #[inline]
    fn first_key(&self) -> u64 {
        self.first().map_or(u64::MAX, |(key, _)| key)
    }

    /// Removes the [first](Store::first) entry, if its key is at most `now`, and answers key and slot.
    ///
    /// `soon` is told slots whose turn comes soon, each once or so, for a caller that wants what belongs
    /// to them brought into the cache meanwhile. That is a hint: who is named may stay for long, or be
    /// removed, and some come out without having been named.
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)>;

    /// How many entries there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
