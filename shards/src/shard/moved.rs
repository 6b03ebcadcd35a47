//! Tells a shard that a timer was moved to another deadline.
//!
//! A later deadline needs no update: the store finds it when the old one comes up. An earlier
//! deadline has to reach the store. The branch between the two depends on a word that is cold, and
//! no processor can predict it if timers are moved at random. A mispredicted branch throws away the
//! cache misses of the moves that follow. So an owner that [expects](Shard::expects_earlier)
//! earlier deadlines takes the lock for each move and leaves a *note* in the store, which counts or
//! does not count: no branch depends on the two deadlines.

use std::sync::atomic::Ordering;

use super::Shard;
use crate::{
    node::{NodeRef, location::Location},
    owner::Owner,
};

/// The number of moves of which the owner remembers whether they were to earlier deadlines.
const REMEMBERED: u32 = 16;

impl<O: Owner> Shard<O> {
    /// Returns whether some of the last moves were to earlier deadlines. For the owner.
    #[inline]
    pub(crate) fn expects_earlier(&self) -> bool {
        self.earlier.load(Ordering::Relaxed) != 0
    }

    /// Records a move by the owner to an earlier deadline. The owner expects more of them if the
    /// store takes notes.
    #[inline]
    pub(super) fn expect_earlier(&self, takes_notes: bool) {
        let expected = u32::from(takes_notes) << (REMEMBERED - 1);
        self.earlier.store(expected, Ordering::Relaxed);
    }

    /// Records that the owner has moved a node without options to `next`. `earlier`: that is
    /// earlier than before. The owner [expects](Shard::expects_earlier) earlier deadlines.
    ///
    /// This is the fast path: the owner leaves a note. Each slower case is a call in tail position,
    /// so that this function needs no stack.
    #[inline(never)]
    pub(crate) fn note_move(&self, node: &NodeRef<O>, next: u64, earlier: bool) {
        // A note does not publish the next prompt timer.
        let is_prompt = self.is_deferring && !node.tolerance().is_exact();
        if is_prompt || !self.lock.acquire_free_as_owner() {
            return self.note_move_slow(node, earlier, true, false);
        }
        // Only a node in the store has an entry to move.
        let Location::Slot(slot) = node.location() else {
            return self.note_move_slow(node, earlier, true, true);
        };
        // SAFETY: `acquire_free_as_owner` above took the lock, and only `release_as_owner` below, or
        // the slow path, gives it up.
        let noted = (self.inner)
            .with_mut(|inner| unsafe { (*inner).try_note(slot, node.key(next), earlier) });
        if !noted {
            return self.note_move_slow(node, earlier, true, true);
        }
        // A note changes neither what is published nor when the alarm is due.
        let moves =
            self.earlier.load(Ordering::Relaxed) >> 1 | u32::from(earlier) << (REMEMBERED - 1);
        self.earlier.store(moves, Ordering::Relaxed);
        self.lock.release_as_owner();
        // After the release, because `Owner::moved` is user code and may panic.
        self.owner.moved(true);
    }

    /// Slow path of [`note_move`](Shard::note_move), for all threads. `here`: the caller is the
    /// owner. `held`: it has the lock, and this function releases it.
    // Not `#[cold]`: while the store takes no notes, each move to an earlier deadline comes here.
    #[inline(never)]
    pub(crate) fn note_move_slow(&self, node: &NodeRef<O>, earlier: bool, here: bool, held: bool) {
        // A later deadline needs no update. If the lock is held, this call has to release it, and
        // an update does no harm.
        if earlier || held {
            self.note_earlier_deadline(node, here, held);
        }
        self.owner.moved(here);
    }
}
