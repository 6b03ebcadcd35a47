//! What the peers of a worker note when they look at it.

use crate::sys::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What the peers that look at a worker write down for each other.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    pub(super) patience: Patience,
    /// The job that it was at when one of them last looked.
    pub(super) last_seen: AtomicU64,
}

/// How long it takes, in ms, until the next look at a worker that is stuck.
#[derive(Debug, Default)]
pub(super) struct Patience(AtomicU32);

impl Patience {
    /// At most so many.
    const MOST: u32 = 4;

    /// After a look at which there was something to do, or not. A hint, if there are several at once.
    pub(super) fn after(&self, found: bool) -> u32 {
        let next = if found {
            1
        } else {
            (self.0.load(Ordering::Relaxed) * 2).clamp(1, Self::MOST)
        };
        self.0.store(next, Ordering::Relaxed);
        next
    }
}
