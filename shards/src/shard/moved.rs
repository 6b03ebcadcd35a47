//! How a shard hears of a move: many of them in a row, of which one does not know before whether they are to earlier
//! deadlines.

use super::Shard;
use crate::{
    node::{Location, NodeRef},
    owner::Owner,
    sync::Ordering,
};

/// For so many moves the owner knows whether they were to earlier deadlines.
const KNOWN: u32 = 16;

impl<O: Owner> Shard<O> {
    /// Whether the owner, who asks, expects that timers are made earlier.
    #[inline]
    pub(crate) fn expects_earlier(&self) -> bool {
        // In models no notes are left, and this would be one more word to look at.
        !cfg!(loom) && self.earlier.load(Ordering::Relaxed) != 0
    }

    /// A node was moved to an earlier deadline by who is not the owner.
    #[inline(never)]
    pub(crate) fn hear_moved_from_outside(&self, node: &NodeRef<O>) {
        self.hear_earlier(node);
        self.owner.moved();
    }

    /// The owner, who asks, has moved a node to an earlier deadline.
    #[inline(never)]
    pub(crate) fn hear_made_earlier(&self, node: &NodeRef<O>) {
        if !self.lock.try_acquire() {
            self.tell_earlier(node);
        } else if self.hear_earlier_held(node) {
            self.earlier.store(1 << (KNOWN - 1), Ordering::Relaxed);
        }
        self.owner.moved_here();
    }

    /// The owner, who asks, has moved a node without options to `next`, and whether that is earlier than it was, where he
    /// [expects that](Shard::expects_earlier).
    ///
    /// Which of both it is, is a branch on what is cold, and nobody can say before which way it goes: the processor, which
    /// guesses, would throw away all that it has begun meanwhile, among it the misses of the moves that follow. So where
    /// some are earlier the owner takes the lock for each, and leaves a note that counts or does not.
    ///
    /// All calls are the last that is done, and it is not asked who calls: this needs no stack.
    #[inline(never)]
    pub(crate) fn hear_moved(&self, node: &NodeRef<O>, next: u64, earlier: bool) {
        if !self.lock.acquire_free() {
            return self.hear_moved_slowly(node, earlier);
        }
        let Location::Slot(slot) = node.location() else {
            return self.hear_moved_held(node);
        };
        // SAFETY: we hold the lock.
        let noted =
            (self.inner).with_mut(|inner| unsafe { (*inner).note_quickly(slot, next, earlier) });
        if !noted {
            return self.hear_moved_held(node);
        }
        // What is published stays as it is, and so does what the alarm has to be set to.
        let before = self.earlier.load(Ordering::Relaxed);
        let now = before >> 1 | u32::from(earlier) << (KNOWN - 1);
        self.earlier.store(now, Ordering::Relaxed);
        if self.lock.release() {
            return self.look_and_count_moved();
        }
        // Behind the release: the owner's code is foreign, and may panic.
        self.owner.moved_here();
    }

    #[cold]
    #[inline(never)]
    fn look_and_count_moved(&self) {
        self.look_for_the_denied();
        self.owner.moved_here();
    }

    /// The same where he was not let in at once.
    #[cold]
    #[inline(never)]
    fn hear_moved_slowly(&self, node: &NodeRef<O>, earlier: bool) {
        if earlier {
            self.hear_earlier(node);
        }
        self.owner.moved_here();
    }

    /// The same where he has the lock, which he gives up by this.
    #[inline(never)]
    fn hear_moved_held(&self, node: &NodeRef<O>) {
        // To hear of one that is not earlier does no harm.
        if !self.hear_earlier_held(node) {
            self.earlier.store(0, Ordering::Relaxed);
        }
        self.owner.moved_here();
    }
}
