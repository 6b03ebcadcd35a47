//! Stores: which timer is next.
//!
//! A store keeps `(key, slot)` entries in dense arrays and never touches a timer's node: a cache
//! miss on a cold node costs more than two heap operations. Keys are exact nanoseconds.

mod heap;

pub use heap::Heap;

/// A priority queue of keys in which each entry has a slot by which it is found again.
///
/// Slots are small numbers, reused after removal: an array indexed by slot stays as dense as the
/// largest number of entries ever held at once.
pub trait Store {
    /// Adds an entry and answers its slot.
    ///
    /// # Panics
    ///
    /// If more than 2^32 − 3 entries are held.
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

    /// The key of `slot`.
    ///
    /// # Panics
    ///
    /// If `slot` is not held.
    fn key(&self, slot: u32) -> u64;

    /// The smallest key and its slot.
    fn first(&self) -> Option<(u64, u32)>;

    /// How many entries there are.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
