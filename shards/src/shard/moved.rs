//! How a shard hears that a timer was moved.
//!
//! A later deadline is no news: the store finds it when the old one comes up. An earlier one has to
//! reach the store. Which of both a move is, is a branch on a word that is cold, and no processor
//! can predict it where timers are moved at random. A branch that is predicted wrongly throws away
//! the misses of the moves that follow. So an owner that [expects](Shard::expects_earlier) earlier
//! deadlines takes the lock for each move, and leaves a *note* in the store, which counts or does
//! not: no branch depends on the two deadlines.

use std::sync::atomic::Ordering;

use super::Shard;
use crate::{
    node::{Location, NodeRef},
    owner::Owner,
};

/// For how many moves the owner remembers whether they were to earlier deadlines.
const KNOWN: u32 = 16;

impl<O: Owner> Shard<O> {
    /// Returns whether some of the last moves were to earlier deadlines. For the owner.
    #[inline]
    pub(crate) fn expects_earlier(&self) -> bool {
        self.earlier.load(Ordering::Relaxed) != 0
    }

    /// The owner hears of an earlier deadline: it expects more of them, if the store takes notes.
    #[inline]
    pub(super) fn expect_earlier(&self, takes_notes: bool) {
        let expected = u32::from(takes_notes) << (KNOWN - 1);
        self.earlier.store(expected, Ordering::Relaxed);
    }

    /// The owner, which [expects](Shard::expects_earlier) earlier deadlines, has moved a node
    /// without options to `next`. `earlier`: that is earlier than before.
    ///
    /// This is the fast path: the owner leaves a note. Each slower case is a call in tail position,
    /// so that this function needs no stack.
    #[inline(never)]
    pub(crate) fn hear_moved(&self, node: &NodeRef<O>, next: u64, earlier: bool) {
        if !self.lock.acquire_free() {
            return self.hear_moved_slow(node, earlier, true, false);
        }
        let Location::Slot(slot) = node.location() else {
            return self.hear_moved_slow(node, earlier, true, true);
        };
        // SAFETY: the compare-exchange above took the lock, and only `release` below, or the slow
        // path, gives it up.
        let noted =
            (self.inner).with_mut(|inner| unsafe { (*inner).try_note(slot, next, earlier) });
        if !noted {
            return self.hear_moved_slow(node, earlier, true, true);
        }
        // A note changes neither what is published nor when the alarm is due.
        let moves = self.earlier.load(Ordering::Relaxed) >> 1 | u32::from(earlier) << (KNOWN - 1);
        self.earlier.store(moves, Ordering::Relaxed);
        if self.lock.release() {
            return self.look_and_count_moved();
        }
        // After the release: the owner's code is user code, and may panic.
        self.owner.moved(true);
    }

    #[cold]
    #[inline(never)]
    fn look_and_count_moved(&self) {
        self.look_for_the_denied();
        self.owner.moved(true);
    }

    /// Slow path of [`hear_moved`](Shard::hear_moved), for all threads. `here`: the caller is the
    /// owner. `held`: it has the lock, and this function releases it.
    // Not `#[cold]`: while the store takes no notes, each move to an earlier deadline comes here.
    #[inline(never)]
    pub(crate) fn hear_moved_slow(&self, node: &NodeRef<O>, earlier: bool, here: bool, held: bool) {
        // A later deadline is no news. To hear of it does no harm, where the lock is held anyway.
        if earlier || held {
            self.hear_earlier(node, here, held);
        }
        self.owner.moved(here);
    }
}
