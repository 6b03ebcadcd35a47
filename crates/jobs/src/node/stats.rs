//! What a node counts.

use std::sync::atomic::{AtomicU64, Ordering};

use super::{
    Node,
    health::Health,
    metrics::{ByKind, MetricsReader, NodeMetrics},
};
use crate::store::Store;

/// What a node did since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Jobs in the node's timers, or due and not begun.
    pub held: u64,
    /// Attempts that run, or whose end the store has not answered to.
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
    /// Jobs that died here, unless the store refused the end.
    pub dead: u64,
    /// Attempts whose end the store refused, as the token was stale.
    pub stale: u64,
    /// Attempts that the node told that a client has cancelled, moved or replaced their job.
    pub cancelled: u64,
    /// Leases that this node had.
    pub leases: u64,
    /// Of these, leases that ended before the node stopped: they ran out, or the node gave them up
    /// after an error of the store.
    pub leases_lost: u64,
    /// Panics of `on_end`, `on_error`, `on_blocked` and `on_span`.
    pub panics: u64,
    /// Failures of which `on_error` was not told: too many waited for it, or the node's runtime had
    /// ended.
    pub untold: u64,
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
    pub(super) cancelled: AtomicU64,
    pub(super) leases: AtomicU64,
    pub(super) leases_lost: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) untold: AtomicU64,
    pub(super) kinds: ByKind,
    pub(super) health: Health,
}

impl Counters {
    /// Returns the counters of the node as a whole, which holds so many jobs.
    pub(super) fn read(&self, held: usize) -> NodeStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        NodeStats {
            held: held as u64,
            running: read(&self.running),
            blocked: read(&self.blocked),
            begun: read(&self.begun),
            done: read(&self.done),
            failed: read(&self.failed),
            snoozed: read(&self.snoozed),
            dead: read(&self.dead),
            stale: read(&self.stale),
            cancelled: read(&self.cancelled),
            leases: read(&self.leases),
            leases_lost: read(&self.leases_lost),
            panics: read(&self.panics),
            untold: read(&self.untold),
        }
    }
}

impl<S: Store> Node<S> {
    /// Returns what the node did since it started.
    pub fn stats(&self) -> NodeStats {
        self.shared.counters.read(self.shared.held.len())
    }

    /// Returns what the node did since it started, by queue and kind, with histograms, and what it
    /// asked its store for.
    ///
    /// ```
    /// # use tourbillon_jobs::{Node, store::Store};
    /// # fn show<S: Store>(node: &Node<S>) {
    /// for kind in node.metrics().kinds {
    ///     let late = kind.lateness.sum() / kind.lateness.count().max(1) as u32;
    ///     println!("{} {:?}: {} failed, {late:?} late", kind.queue, kind.kind, kind.failed);
    /// }
    /// # }
    /// ```
    pub fn metrics(&self) -> NodeMetrics {
        self.metrics_reader().read()
    }

    /// Returns a reader of the metrics, for a task that publishes them while somebody else has the
    /// node.
    pub fn metrics_reader(&self) -> MetricsReader {
        MetricsReader {
            counters: self.shared.counters.clone(),
            held: self.shared.held.clone(),
        }
    }
}

pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
