//! How many workers of a runtime take part. The others are *retired*.
//!
//! A retired worker runs no work that another worker could run. It still has its timers and
//! sockets, hands on what they make ready, and rescues workers that are stuck. While it sleeps it
//! counts as a helper in reserve ([`Searchers::sleep_in_reserve`](crate::Searchers::sleep_in_reserve)).
//! See "Retired workers" in `PROTOCOLS.md`.

use tourbillon_sync::{AtomicUsize, Ordering};

/// How many workers of a runtime take part: those with the lowest numbers. It is at least one, so
/// worker 0 always does.
#[derive(Debug)]
pub struct Limit(AtomicUsize);

impl Limit {
    /// Creates a limit that retires no worker.
    #[allow(
        clippy::new_without_default,
        reason = "a limit belongs to a runtime; none is made by default"
    )]
    pub fn new() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }

    /// Returns how many workers take part at most. A hint.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether worker `index` is retired.
    ///
    /// A worker calls this in each turn of its loop, and once more behind the announcement of a
    /// sleep.
    #[inline]
    pub fn retires(&self, index: usize) -> bool {
        index >= self.get()
    }

    /// Sets how many workers take part. The caller then fences, and wakes those for which this makes
    /// a difference, by [`Parker::claim_if_later`](crate::Parker::claim_if_later).
    ///
    /// Of that fence and the one of a worker's announcement, one comes first: either the worker sees
    /// the new limit, or the caller sees that the worker sleeps.
    ///
    /// # Panics
    ///
    /// Panics if `workers` is zero.
    pub fn set(&self, workers: usize) {
        assert!(workers > 0, "worker 0 always takes part");
        self.0.store(workers, Ordering::Relaxed);
    }
}
