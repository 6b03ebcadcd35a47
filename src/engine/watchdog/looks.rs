//! What the peers of a worker remember between two checks of that worker.

use crate::sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The value of [`Looks::follower`] if no thread follows the worker.
const NOBODY: usize = usize::MAX;

/// The notes of the peers that check one worker.
#[derive(Debug)]
pub(crate) struct Looks {
    /// The number of the job that the worker was running at the last check.
    pub(super) last_seen: AtomicU64,
    /// The index of the thread that follows the worker: see "Sockets" in docs/internals/rescue.md.
    /// It is a hint: a thread that is called although it is not the follower ceases to be called.
    follower: AtomicUsize,
    /// The index of the retired worker that stands in for the worker.
    stand_in: AtomicUsize,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            last_seen: AtomicU64::new(0),
            follower: AtomicUsize::new(NOBODY),
            stand_in: AtomicUsize::new(NOBODY),
        }
    }
}

impl Looks {
    /// Returns the index of the thread that follows the worker.
    pub(super) fn follower(&self) -> Option<usize> {
        Some(self.follower.load(Ordering::Relaxed)).filter(|&index| index != NOBODY)
    }

    /// Makes the thread `index` the one that follows the worker.
    pub(super) fn follow(&self, index: usize) {
        self.follower.store(index, Ordering::Relaxed);
    }

    /// Records that the thread `index` does not follow the worker any more.
    pub(super) fn unfollow(&self, index: usize) {
        let (relaxed, word) = (Ordering::Relaxed, &self.follower);
        // If this fails, another thread follows the worker.
        let _ = word.compare_exchange(index, NOBODY, relaxed, relaxed);
    }

    /// Returns the index of the retired worker that stands in for the worker.
    pub(crate) fn stand_in(&self) -> Option<usize> {
        Some(self.stand_in.load(Ordering::Relaxed)).filter(|&index| index != NOBODY)
    }

    /// Makes `index` the worker that stands in, in place of `before`. Returns `false` if that one
    /// does not any more.
    pub(crate) fn replace_stand_in(&self, before: Option<usize>, index: usize) -> bool {
        self.swap_stand_in(before.unwrap_or(NOBODY), index)
    }

    /// Records that worker `index` does not stand in any more.
    pub(crate) fn end_stand_in(&self, index: usize) {
        // If this fails, another one stands in.
        self.swap_stand_in(index, NOBODY);
    }

    fn swap_stand_in(&self, from: usize, to: usize) -> bool {
        let (relaxed, word) = (Ordering::Relaxed, &self.stand_in);
        word.compare_exchange(from, to, relaxed, relaxed).is_ok()
    }
}
