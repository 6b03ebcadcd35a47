//! What the peers of a worker remember between two checks of that worker.

use crate::sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The notes of the peers that check one worker.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub(super) patience: Patience,
    /// The number of the job that the worker was running at the last check.
    pub(super) last_seen: AtomicU64,
}

/// The time in ms until the next check of a stuck worker: 1, then doubled up to 4 while there is
/// nothing to rescue.
#[derive(Debug, Default)]
pub(super) struct Patience(AtomicU32);

impl Patience {
    /// The longest time, in ms.
    const MOST: u32 = 4;

    /// Returns the time until the next check, in ms, after a check that `found` something to rescue
    /// or not. It is a hint: concurrent checks may overwrite each other.
    pub(super) fn after(&self, found: bool) -> u32 {
        let next = if found {
            1
        } else {
            // Nothing was found: look more rarely, because each look takes a core for a while.
            (self.0.load(Ordering::Relaxed) * 2).clamp(1, Self::MOST)
        };
        self.0.store(next, Ordering::Relaxed);
        next
    }
}
