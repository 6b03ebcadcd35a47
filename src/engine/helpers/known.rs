//! The list of a runtime's helpers.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::{
    engine::{threads, threads::Threads},
    metrics::recorder::Record,
    sys::sync::Mutex,
    util::lock::lock,
};

/// The helpers of a runtime.
pub(crate) struct Helpers<S> {
    /// The current list. Snapshots and thieves read it without a lock.
    pub(crate) known: ArcSwap<Known<S>>,
    /// The threads. A thread that starts a helper and a helper that ends hold this lock, and only
    /// they replace `known`.
    pub(super) threads: Mutex<Threads>,
}

/// A snapshot of the helpers. It is replaced as a whole, so that a helper that ends is counted
/// exactly once.
pub(crate) struct Known<S> {
    /// The helpers that exist.
    pub(crate) list: Vec<Arc<S>>,
    /// The sum of the records of helpers that have ended; `None` if none has.
    pub(super) done: Option<Arc<Record>>,
    /// How many helpers were ever started.
    pub(super) started: u64,
}

impl<S> Default for Helpers<S> {
    fn default() -> Self {
        Self {
            known: ArcSwap::from_pointee(Known {
                list: Vec::new(),
                done: None,
                started: 0,
            }),
            threads: Mutex::default(),
        }
    }
}

impl<S> Clone for Known<S> {
    fn clone(&self) -> Self {
        Self {
            list: self.list.clone(),
            done: self.done.clone(),
            started: self.started,
        }
    }
}

impl<S> Helpers<S> {
    /// Joins the threads of helpers that have ended.
    pub(crate) fn join(&self) {
        // Take the handles out first: a helper that ends takes this lock.
        let left = lock(&self.threads).take();
        threads::join(left);
    }
}

impl<S> Known<S> {
    /// Removes a helper from the list.
    pub(super) fn forget(&mut self, shard: &Arc<S>) {
        self.list.retain(|it| !Arc::ptr_eq(it, shard));
    }
}
