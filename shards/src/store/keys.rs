//! The table of the keys of all slots, for a store that does not track the positions of its
//! entries.

use super::interface::Entry;
use tourbillon_sync::prefetch;

use crate::node::location::Location;

/// The key of a free slot. A held slot may have this key, too: a store that allows it tracks such
/// slots by other means.
pub(super) const FREE: u64 = u64::MAX;

/// With this many slots the table of keys does not fit the nearest cache.
pub(super) const UNCACHED: usize = if cfg!(loom) {
    1
} else if cfg!(test) {
    8
} else {
    4_096
};

/// Slots, and the key of each. An entry is *live* if its key is the key of its slot, and *stale*
/// otherwise. So a store that removes or moves an entry changes a word here, and need not find the
/// entry. If a key returns to an old value, two equal entries are live, and mean the same.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<u64>,
    /// The free slots. There is room for all slots from the beginning, which takes no memory before
    /// it is used. If this vector grew while timers fire, it could be slow: glibc joins freed
    /// pieces of memory before it returns more than 1,024 bytes, which takes tens of ms if some
    /// hundred thousand timers have freed memory.
    free: Vec<u32>,
}

impl Keys {
    /// Takes a free slot, and gives it this key. The slot is below the largest number of slots ever
    /// held at once.
    ///
    /// # Panics
    ///
    /// Panics if all slots up to `most` are held.
    #[inline]
    pub(super) fn take(&mut self, key: u64, most: u32) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.keys[slot as usize] = key;
                slot
            }
            None => self.grow(key, most),
        }
    }

    /// Slow path of [`take`](Keys::take): adds a slot.
    #[cold]
    fn grow(&mut self, key: u64, most: u32) -> u32 {
        let most = most.min(Location::MAX_SLOT) as usize;
        assert!(self.keys.len() <= most, "the store is full");
        self.keys.push(key);
        if self.free.capacity() < self.keys.capacity() {
            // No slot is free, so nothing is copied: a large piece of memory grows in place, or
            // moves with its pages untouched. (If the old vector were freed, glibc would later take
            // large pieces from the memory of tasks, and copy them.)
            self.free.reserve_exact(self.keys.capacity());
        }
        (self.keys.len() - 1) as u32
    }

    /// Frees a held slot.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        self.keys[slot as usize] = FREE;
        self.free.push(slot);
    }

    /// Fast path of [`take`](Keys::take): takes a slot if one is free, or there is room for
    /// another.
    #[inline]
    pub(super) fn try_take(&mut self, key: u64, most: u32) -> Option<u32> {
        if let Some(&slot) = self.free.last() {
            *self.keys.get_mut(slot as usize)? = key;
            self.free.pop();
            return Some(slot);
        }
        let next = self.keys.len();
        if next == self.keys.capacity() || next > most as usize {
            return None;
        }
        self.keys.push(key);
        Some(next as u32)
    }

    /// Fast path of [`give_back`](Keys::give_back). Returns `false`, and does nothing, if the
    /// slot's key is [`FREE`] or there is no room to note the slot.
    #[inline]
    pub(super) fn try_give_back(&mut self, slot: u32) -> bool {
        let has_room = self.free.len() < self.free.capacity();
        let key = self.keys.get_mut(slot as usize);
        let Some(key) = key.filter(|key| has_room && **key != FREE) else {
            return false;
        };
        *key = FREE;
        self.free.push(slot);
        true
    }

    /// Forgets all slots. New ones begin at 0. No slot is held, and no entry names one.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.free.clear();
    }

    /// Returns the key of a slot, or [`FREE`] if the slot is not held.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> u64 {
        self.keys.get(slot as usize).copied().unwrap_or(FREE)
    }

    /// Prefetches the key of a slot.
    ///
    /// # Panics
    ///
    /// Panics if the slot was never held.
    #[inline]
    pub(super) fn fetch(&self, slot: u32) {
        prefetch(&self.keys[slot as usize], size_of::<u64>());
    }

    /// Prefetches the keys of slots. All of them were held before.
    #[inline]
    pub(super) fn fetch_all(&self, slots: &[u32]) {
        for &slot in slots {
            prefetch(self.keys.as_ptr().wrapping_add(slot as usize), 1);
        }
    }

    /// Changes the key of a slot.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        self.keys[slot as usize] = key;
    }

    /// Returns whether an entry's key is the key of its slot.
    #[inline]
    pub(super) fn is_live(&self, entry: Entry) -> bool {
        self.keys[entry.slot as usize] == entry.key
    }

    /// Returns whether an entry's key is the key of its slot. `false` if there is no such slot.
    #[inline]
    pub(super) fn try_is_live(&self, entry: Entry) -> bool {
        self.keys.get(entry.slot as usize) == Some(&{ entry.key })
    }

    /// Returns the number of slots, free ones included: the most that were ever held at once.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Writes an entry for each of `slots` whose key belongs to `bucket`, which is the key's bits
    /// from `shift` on, to the start of `entries`. Returns the number of entries. A collected slot
    /// looks free until it is [restored](Keys::restore), so that it is collected once.
    #[inline]
    pub(super) fn collect(
        &mut self,
        slots: &[u32],
        shift: u32,
        bucket: u64,
        entries: &mut [Entry],
    ) -> usize {
        // No branch depends on the keys, so the cache misses overlap.
        let mut end = 0;
        for &slot in slots {
            let place = &mut self.keys[slot as usize];
            let key = *place;
            let live = key >> shift == bucket && key != FREE;
            entries[end] = Entry { key, slot };
            end += usize::from(live);
            *place = if live { FREE } else { key };
        }
        end
    }

    /// Collects an entry: returns whether it is live and was not collected before.
    #[inline]
    pub(super) fn collect_entry(&mut self, entry: Entry) -> bool {
        let live = self.is_live(entry);
        if live {
            self.keys[entry.slot as usize] = FREE;
        }
        live
    }

    /// Restores the keys of collected entries.
    #[inline]
    pub(super) fn restore(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.keys[entry.slot as usize] = entry.key;
        }
    }

    /// Returns the held slots whose key is not [`FREE`], with their keys.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Entry> + '_ {
        let slots = (0..).zip(&self.keys).filter(|it| *it.1 != FREE);
        slots.map(|(slot, &key)| Entry { key, slot })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn giving_slots_back_allocates_no_memory() {
        let mut keys = Keys::default();
        for most in [1, 100, 5_000] {
            let slots: Vec<_> = (0..most).map(|key| keys.take(key, u32::MAX)).collect();
            let room = keys.free.capacity();
            assert!(room >= slots.len());
            for &slot in &slots {
                assert!(keys.try_give_back(slot), "there is room to note it");
            }
            assert_eq!(keys.free.capacity(), room);
        }
    }

    #[test]
    fn slots_end_at_the_largest_one() {
        let mut keys = Keys::default();
        for slot in 0..5 {
            assert_eq!(keys.take(7, 4), slot);
        }
        // The table has memory for more.
        assert!(keys.keys.capacity() > 5);
        assert_eq!(keys.try_take(7, 4), None);
        assert_eq!(keys.try_take(7, 5), Some(5));
        let taken = std::panic::catch_unwind(move || keys.take(7, 5));
        assert!(taken.is_err(), "there are six slots up to 5");
    }

    #[test]
    fn the_fast_path_gives_back_only_a_slot_that_has_a_key() {
        let mut keys = Keys::default();
        let (slot, free) = (keys.take(7, 9), keys.take(FREE, 9));
        assert!(!keys.try_give_back(free));
        assert!(!keys.try_give_back(2), "there is no such slot");
        assert!(keys.try_give_back(slot));
        assert_eq!((keys.get(slot), keys.try_take(8, 9)), (FREE, Some(slot)));
    }
}
