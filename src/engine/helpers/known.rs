//! What is known of the helpers of a runtime.

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
    /// For who looks, and for thieves.
    pub(crate) known: ArcSwap<Known<S>>,
    /// Held by who starts one, and by one that ends: these alone change what is known.
    pub(super) threads: Mutex<Threads>,
}

/// What is known of the helpers. Nothing changes in it: so none that ends is in two places, or in none.
pub(crate) struct Known<S> {
    /// Those that there are.
    pub(crate) list: Vec<Arc<S>>,
    /// What those have written down that have ended.
    pub(super) done: Arc<Record>,
    /// How many were ever started.
    pub(super) started: u64,
}

impl<S> Default for Helpers<S> {
    fn default() -> Self {
        Self {
            known: ArcSwap::from_pointee(Known {
                list: Vec::new(),
                done: Arc::default(),
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
    /// Joins those that have left.
    pub(crate) fn join(&self) {
        let left = lock(&self.threads).take();
        threads::join(left);
    }
}

impl<S> Known<S> {
    pub(super) fn forget(&mut self, shard: &Arc<S>) {
        self.list.retain(|it| !Arc::ptr_eq(it, shard));
    }
}
