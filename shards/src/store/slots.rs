//! The numbers by which entries are found again.

use crate::node::Location;

/// The slot of no entry, and the position of a slot that is free.
pub(super) const VACANT: u32 = u32::MAX;

/// Slots, and at which position the entry of each is: what a position means is the store's affair.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// `VACANT` where the slot is free.
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    /// A free slot, which is to be given a position. Smaller than the most that were ever held at once.
    ///
    /// # Panics
    ///
    /// If more than `most` are held.
    #[inline]
    pub(super) fn take(&mut self, most: u32) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            let most = most.min(Location::MAX_SLOT) as usize;
            assert!(self.positions.len() <= most, "the store is full");
            self.positions.push(VACANT);
            (self.positions.len() - 1) as u32
        })
    }

    /// A slot that is held is free from now on.
    #[inline]
    pub(super) fn give_back(&mut self, slot: u32) {
        self.positions[slot as usize] = VACANT;
        self.free.push(slot);
        if self.free.len() == self.positions.len() {
            // All are free, in whatever order. Who comes next begins anew: in their order they are read ahead by the
            // processor, as is all that is found by them.
            self.free.clear();
            self.positions.clear();
        }
    }

    #[inline]
    pub(super) fn set(&mut self, slot: u32, position: u32) {
        self.positions[slot as usize] = position;
    }

    /// Where the entry of `slot` is.
    ///
    /// # Panics
    ///
    /// If `slot` is not held.
    #[inline]
    pub(super) fn position(&self, slot: u32) -> u32 {
        let at = self.positions.get(slot as usize).copied();
        let at = at.unwrap_or(VACANT);
        assert!(at != VACANT, "slot {slot} is not in the store");
        at
    }
}
