//! A waker that counts.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::{Wake, Waker},
};

/// Counts how often it is woken.
#[derive(Default)]
pub struct Woken(AtomicUsize);

impl Woken {
    /// Returns a counter, and its waker.
    pub fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::<Self>::default();
        (woken.clone(), woken.into())
    }

    /// Returns how often it was woken.
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}
