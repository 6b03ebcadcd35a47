//! The key of each slot, where nobody needs to know at which place an entry is.

use super::Entry;
use crate::{node::Location, prefetch::prefetch};

/// What stands for the key of a slot that is free. It is a key, too: whoever stores that one has to know of
/// it by other means.
pub(super) const FREE: u64 = u64::MAX;

/// Slots, and the key of each. An entry, wherever it is, is *live* if its key is that of its slot, and *stale*
/// otherwise: so whoever removes or moves one changes a word here, and need not find it. Of two entries that
/// are equal, because the key came back to what it was, both are live, and mean the same.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<u64>,
    /// There is room for all slots in it from the beginning, which takes no memory before it is used. Were it to grow while
    /// timers fire, some hundred thousand of which may have freed what they were about, glibc would first join all
    /// that to larger pieces: it does so before it gives out more than 1,024 bytes, for tens of ms then.
    free: Vec<u32>,
}

impl Keys {
    /// A free slot, which has this key from now on. Smaller than the most that were ever held at once.
    ///
    /// # Panics
    ///
    /// If more than `most` are held.
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

    #[cold]
    fn grow(&mut self, key: u64, most: u32) -> u32 {
        let most = most.min(Location::MAX_SLOT) as usize;
        assert!(self.keys.len() <= most, "the store is full");
        self.keys.push(key);
        if self.free.capacity() < self.keys.capacity() {
            // Nothing is free, and a large piece of memory grows where it is, or moves with its pages: none is touched. (To free
            // the old one would have glibc take large pieces from where tasks are from then on, and copy them.)
            self.free.reserve_exact(self.keys.capacity());
        }
        (self.keys.len() - 1) as u32
    }

    /// A slot that is held is free from now on.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        self.keys[slot as usize] = FREE;
        self.free.push(slot);
    }

    /// [Takes](Keys::take) a slot, if there is one that was held before, or room for another.
    #[inline]
    pub(super) fn take_quickly(&mut self, key: u64, most: u32) -> Option<u32> {
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

    /// [Gives back](Keys::give_back) a slot, unless its key is [`FREE`], or there is no room to note it; true if it did.
    #[inline]
    pub(super) fn give_back_quickly(&mut self, slot: u32) -> bool {
        let has_room = self.free.len() < self.free.capacity();
        let key = self.keys.get_mut(slot as usize);
        let Some(key) = key.filter(|key| has_room && **key != FREE) else {
            return false;
        };
        *key = FREE;
        self.free.push(slot);
        true
    }

    /// None of the slots is held, and no entry is left that names one: they begin anew, from 0.
    pub(super) fn clear(&mut self) {
        self.keys.clear();
        self.free.clear();
    }

    /// The key of a slot; [`FREE`] if it is not held.
    #[inline]
    pub(super) fn get(&self, slot: u32) -> u64 {
        self.keys.get(slot as usize).copied().unwrap_or(FREE)
    }

    /// Has the key of a slot brought into the cache.
    ///
    /// # Panics
    ///
    /// If it never was held.
    #[inline]
    pub(super) fn fetch(&self, slot: u32) {
        prefetch(&self.keys[slot as usize], size_of::<u64>());
    }

    /// Has the keys of slots that were all held before brought into the cache.
    #[inline]
    pub(super) fn fetch_all(&self, slots: &[u32]) {
        for &slot in slots {
            prefetch(self.keys.as_ptr().wrapping_add(slot as usize), 1);
        }
    }

    #[inline]
    pub(super) fn set(&mut self, slot: u32, key: u64) {
        self.keys[slot as usize] = key;
    }

    #[inline]
    pub(super) fn is_live(&self, entry: Entry) -> bool {
        self.keys[entry.slot as usize] == entry.key
    }

    /// The same without a panic.
    #[inline]
    pub(super) fn is_live_quickly(&self, entry: Entry) -> bool {
        self.keys.get(entry.slot as usize) == Some(&{ entry.key })
    }

    /// How many slots there are, those that are free among them: the most that were ever held at once.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Puts an entry for each of `slots` whose key is that of the bucket, as told by the bits from `shift` on,
    /// to the start of `entries`, and answers how many that are. Until it is [restored](Keys::restore) such a slot
    /// looks free, so that it is met once.
    #[inline]
    pub(super) fn collect(
        &mut self,
        slots: &[u32],
        shift: u32,
        bucket: u64,
        entries: &mut [Entry],
    ) -> usize {
        // Without a branch that depends on what is read: so the misses overlap.
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

    /// The same for entries: whether it is live, and was not met before.
    #[inline]
    pub(super) fn collect_entry(&mut self, entry: Entry) -> bool {
        let live = self.is_live(entry);
        if live {
            self.keys[entry.slot as usize] = FREE;
        }
        live
    }

    /// Gives those that were collected their keys again.
    #[inline]
    pub(super) fn restore(&mut self, entries: &[Entry]) {
        for entry in entries {
            self.keys[entry.slot as usize] = entry.key;
        }
    }

    /// All slots that are held but for those whose key is [`FREE`], with their keys.
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
    fn who_gives_slots_back_asks_for_no_memory() {
        let mut keys = Keys::default();
        for most in [1, 100, 5_000] {
            let slots: Vec<_> = (0..most).map(|key| keys.take(key, u32::MAX)).collect();
            let room = keys.free.capacity();
            assert!(room >= slots.len());
            for &slot in &slots {
                assert!(keys.give_back_quickly(slot), "there is room to note it");
            }
            assert_eq!(keys.free.capacity(), room);
        }
    }
}
