//! The trait of the stores, and the entry that they keep.

/// An entry of a store. It has 12 bytes, so that four entries span less than a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Entry {
    pub(crate) key: u64,
    pub(crate) slot: u32,
}

/// A priority queue of keys. Each entry has a slot, by which the caller removes or moves it.
///
/// Slots are small numbers, which are reused after removal. An array indexed by slot is as long as
/// the largest number of entries ever held at once.
///
/// Entries with equal keys come out in any order.
pub trait Store {
    /// Adds an entry and returns its slot.
    ///
    /// # Panics
    ///
    /// Panics if the store is full. Each store documents how many entries it can hold, which is
    /// 2^29 at least.
    fn insert(&mut self, key: u64) -> u32;

    /// Removes the entry of `slot` and returns its key.
    ///
    /// # Panics
    ///
    /// Panics if `slot` is not held.
    fn remove(&mut self, slot: u32) -> u64;

    /// Moves the entry of `slot` to another key.
    ///
    /// # Panics
    ///
    /// Panics if `slot` is not held.
    fn rekey(&mut self, slot: u32, key: u64);

    /// Moves the entry of `slot` to `key`, if that is less than its present key. A store may delay
    /// moves that do not change the first entry, and make several together. The caller does not
    /// notice.
    ///
    /// # Panics
    ///
    /// Panics if `slot` is not held, perhaps only in a later call.
    #[inline]
    fn lower(&mut self, slot: u32, key: u64) {
        if key < self.key(slot) {
            self.rekey(slot, key);
        }
    }

    /// Returns the key of `slot`.
    ///
    /// # Panics
    ///
    /// Panics if `slot` is not held.
    fn key(&self, slot: u32) -> u64;

    /// Returns the smallest key and its slot. It is exact after each operation, and takes O(1).
    fn first(&self) -> Option<(u64, u32)>;

    /// Returns the smallest key, or `u64::MAX` if the store is empty.
    #[inline]
    fn first_key(&self) -> u64 {
        self.first().map_or(u64::MAX, |(key, _)| key)
    }

    /// Removes the [first](Store::first) entry, if its key is at most `now`, and returns its key
    /// and slot.
    ///
    /// `soon` is called with slots that will probably come out soon, so that the caller can
    /// prefetch what belongs to them. That is a hint. Such an entry may stay for long, or be
    /// removed, and some entries come out without a call. A store that names few slots is correct,
    /// but each of its timers is a cache miss: `tests/store/stores.rs` requires 95 of 100, a few to
    /// 200 calls ahead.
    fn pop_due(&mut self, now: u64, soon: impl FnMut(u32)) -> Option<(u64, u32)>;

    /// Returns the number of entries.
    fn len(&self) -> usize;

    /// Returns whether there are no entries.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
