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
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            last_seen: AtomicU64::new(0),
            follower: AtomicUsize::new(NOBODY),
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
}
