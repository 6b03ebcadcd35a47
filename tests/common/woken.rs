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
    /// A counter, and the waker of it.
    pub fn new() -> (Arc<Self>, Waker) {
        let woken = Arc::<Self>::default();
        (woken.clone(), woken.into())
    }

    /// How often it was woken so far.
    pub fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}
