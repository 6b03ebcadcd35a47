//! What the peers of a worker remember between two checks of that worker.

use crate::sys::sync::atomic::AtomicU64;

/// The notes of the peers that check one worker.
#[derive(Debug, Default)]
pub(crate) struct Looks {
    /// The number of the job that the worker was running at the last check.
    pub(super) last_seen: AtomicU64,
}
