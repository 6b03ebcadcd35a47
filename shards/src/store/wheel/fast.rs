//! Fast paths of a wheel: the usual case of an insertion, a removal and a move, and nothing else.

use super::{MAX_SLOT, NOTES, Wheel};
use crate::store::{
    interface::Entry,
    keys::{FREE, UNCACHED},
};

/// Each of these is some loads and stores, without a call, a panic or a loop. It finds out whether
/// it can succeed before it changes anything. If it cannot, the caller takes the usual path.
impl Wheel {
    /// Fast path of [`insert`](super::Store::insert). Returns `None`, and does nothing, in other
    /// cases.
    #[inline(always)]
    pub(in crate::store) fn try_insert(&mut self, key: u64) -> Option<u32> {
        if key == FREE {
            return None;
        }
        let place = self.levels.place(key)?;
        let slot = self.keys.try_take(key, MAX_SLOT)?;
        self.levels.put(place, slot);
        self.len += 1;
        Some(slot)
    }

    /// Returns whether the store takes notes of moves to earlier keys.
    #[inline]
    pub(in crate::store) fn takes_notes(&self) -> bool {
        self.keys.len() >= UNCACHED
    }

    /// Fast path of [`lower`](super::Store::lower) for a held slot: leaves a note, which counts if
    /// `earlier` is true. No branch depends on `earlier`. Returns `false`, and does nothing, in
    /// other cases.
    #[inline]
    pub(in crate::store) fn try_note(&mut self, slot: u32, key: u64, earlier: bool) -> bool {
        // The last note is left to `lower`, which then makes all moves.
        if key < self.first.key || !self.takes_notes() || self.noted >= NOTES - 1 {
            return false;
        }
        // If the move does not count, this prefetches the key of slot 0, which is usually cached.
        self.keys.fetch_all(&[slot * u32::from(earlier)]);
        self.notes[self.noted] = Entry { key, slot };
        self.noted += usize::from(earlier);
        true
    }

    /// Fast path of [`remove`](super::Store::remove). Returns `false`, and does nothing, in other
    /// cases.
    #[inline]
    pub(in crate::store) fn try_remove(&mut self, slot: u32) -> bool {
        if self.noted > 0 || self.stale_budget <= 1 {
            return false;
        }
        if slot == self.first.slot {
            // The first entry can go if the next entry of the run becomes the first. That is usual
            // if timers are cancelled in the order of their deadlines.
            let next = self.run.get(self.head + 1).copied();
            let Some(next) = next.filter(|next| {
                next.slot != slot && self.tree.len() == 0 && self.keys.try_is_live(*next)
            }) else {
                return false;
            };
            if !self.keys.try_give_back(slot) {
                return false;
            }
            self.head += 1;
            self.first = next;
        } else if !self.keys.try_give_back(slot) {
            return false;
        }
        self.len -= 1;
        self.stale_budget -= 1;
        true
    }
}
