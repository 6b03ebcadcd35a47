//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};

/// What a node did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Jobs in the node's timers, or due and not begun.
    pub held: u64,
    /// Attempts that run.
    pub running: u64,
    /// Of these, attempts that are past their time limit and block their threads.
    pub blocked: u64,
    /// Attempts that began.
    pub begun: u64,
    /// Attempts that succeeded.
    pub done: u64,
    /// Attempts that failed.
    pub failed: u64,
    /// Attempts that snoozed.
    pub snoozed: u64,
    /// Jobs that died here.
    pub dead: u64,
    /// Attempts whose end the store refused, as the token was stale.
    pub stale: u64,
    /// Leases that this node had.
    pub leases: u64,
}

#[derive(Default)]
pub(super) struct Counters {
    pub(super) running: AtomicU64,
    pub(super) blocked: AtomicU64,
    pub(super) begun: AtomicU64,
    pub(super) done: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) snoozed: AtomicU64,
    pub(super) dead: AtomicU64,
    pub(super) stale: AtomicU64,
    pub(super) leases: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
