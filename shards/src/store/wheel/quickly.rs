//! What most who arm and cancel meet, and nothing else: a few loads and stores.

use super::{Entry, FAR, FREE, LOWERED, MAX_SLOT, Wheel};

/// What is done to one entry where that is no more than some loads and stores: no call, no panic, no loop. All of that is
/// found out before anything is changed, so that the caller may do the same in the usual way.
impl Wheel {
    /// See [`insert`](super::Store::insert).
    #[inline(always)]
    pub(in crate::store) fn insert_quickly(&mut self, key: u64) -> Option<u32> {
        if key == FREE {
            return None;
        }
        let place = self.levels.place(key)?;
        let slot = self.keys.take_quickly(key, MAX_SLOT)?;
        self.levels.put(place, slot);
        self.len += 1;
        Some(slot)
    }

    /// Whether moves to earlier keys are put off.
    #[inline]
    pub(in crate::store) fn puts_off(&self) -> bool {
        self.keys.len() >= FAR
    }

    /// See [`lower`](super::Store::lower), for a slot that is held: leaves a note of it, if `earlier` says so, which is not
    /// branched on. False if that is not all there is to do, and nothing was done.
    #[inline]
    pub(in crate::store) fn note_quickly(&mut self, slot: u32, key: u64, earlier: bool) -> bool {
        // The last one is left by who sees to all.
        if key < self.first.key || !self.puts_off() || self.noted >= LOWERED - 1 {
            return false;
        }
        // That of another slot, which is near, where this one is not needed.
        self.keys.fetch_all(&[slot * u32::from(earlier)]);
        self.lowered[self.noted] = Entry { key, slot };
        self.noted += usize::from(earlier);
        true
    }

    /// See [`remove`](super::Store::remove); true if it was done.
    #[inline]
    pub(in crate::store) fn remove_quickly(&mut self, slot: u32) -> bool {
        if self.noted > 0 || self.patience <= 1 {
            return false;
        }
        if slot == self.first.slot {
            // Where whoever cancels does so in the order of deadlines, the next of the run is the next first.
            let next = self.run.get(self.head + 1).copied();
            let Some(next) = next.filter(|next| {
                next.slot != slot && self.tree.len() == 0 && self.keys.is_live_quickly(*next)
            }) else {
                return false;
            };
            if !self.keys.give_back_quickly(slot) {
                return false;
            }
            self.head += 1;
            self.first = next;
        } else if !self.keys.give_back_quickly(slot) {
            return false;
        }
        self.len -= 1;
        self.patience -= 1;
        true
    }
}
