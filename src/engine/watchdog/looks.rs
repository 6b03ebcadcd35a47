//! What the peers of a worker remember between two checks of that worker.

use crate::sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The notes of the peers that check one worker.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The number of the job that the worker was running at the last check.
    pub(super) last_seen: AtomicU64,
    /// The thread that follows the worker: see "Sockets" in docs/internals/rescue.md. It is a hint:
    /// a thread that is called although it is not the follower ceases to be called.
    pub(super) follower: Holder,
    /// The retired worker that stands in for the worker.
    pub(crate) stand_in: Holder,
}

/// The index of the thread that does something for a worker, if one does.
#[derive(Debug)]
pub(crate) struct Holder(AtomicUsize);

/// The value of a [`Holder`] without a thread.
const NOBODY: usize = usize::MAX;

impl Default for Holder {
    fn default() -> Self {
        Self(AtomicUsize::new(NOBODY))
    }
}

impl Holder {
    /// Returns the index of the thread.
    pub(crate) fn get(&self) -> Option<usize> {
        Some(self.0.load(Relaxed)).filter(|&index| index != NOBODY)
    }

    /// Makes it the thread `index`.
    pub(super) fn set(&self, index: usize) {
        self.0.store(index, Relaxed);
    }

    /// Makes it the thread `index`, in place of `before`. Returns `false`, and changes nothing, if
    /// it is another one.
    pub(crate) fn replace(&self, before: Option<usize>, index: usize) -> bool {
        self.swap(before.unwrap_or(NOBODY), index)
    }

    /// Records that it is the thread `index` no longer. If it is another one, this does nothing.
    pub(crate) fn leave(&self, index: usize) {
        self.swap(index, NOBODY);
    }

    fn swap(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Relaxed, Relaxed).is_ok()
    }
}
