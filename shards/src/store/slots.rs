//! The slots of a store, and the position of each slot's entry.

use crate::node::location::Location;

/// The slot of no entry, and the position of a slot that is free.
pub(super) const VACANT: u32 = u32::MAX;

/// Slots, and the position of each slot's entry. The store defines what a position means.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// `VACANT` where the slot is free.
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    /// Takes a free slot. The caller gives it a position. The slot is below the largest number of
    /// slots ever held at once.
    ///
    /// # Panics
    ///
    /// Panics if all slots up to `most` are held.
    #[inline]
    pub(super) fn take(&mut self, most: u32) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let most = most.min(Location::MAX_SLOT) as usize;
            assert!(self.positions.len() <= most, "the store is full");
            self.positions.push(VACANT);
            (self.positions.len() - 1) as u32
        })
    }

    /// Frees a held slot.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        self.positions[slot as usize] = VACANT;
        self.free.push(slot);
        if self.free.len() == self.positions.len() {
            // All slots are free, in any order. Slots that start again at 0 are handed out in
            // order, and the processor prefetches what is indexed by them.
            self.free.clear();
            self.positions.clear();
        }
    }

    /// Changes the position of a held slot's entry.
    #[inline]
    pub(super) fn set(&mut self, slot: u32, position: u32) {
        self.positions[slot as usize] = position;
    }

    /// Returns the position of the entry of `slot`.
    ///
    /// # Panics
    ///
    /// Panics if `slot` is not held.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> u32 {
        let at = self.positions.get(slot as usize).copied();
        let at = at.unwrap_or(VACANT);
        assert!(at != VACANT, "slot {slot} is not in the store");
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_end_at_the_largest_one() {
        let mut slots = Slots::default();
        assert_eq!((slots.take(1), slots.take(1)), (0, 1));
        let taken = std::panic::catch_unwind(move || slots.take(1));
        assert!(taken.is_err(), "there are two slots up to 1");
    }
}
