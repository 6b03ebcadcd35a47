//! A try-lock that remembers a denied thread.
//!
//! No thread waits for a shard. A thread that is denied the lock leaves a mark in the same word,
//! and goes on. The swap that unlocks also takes the mark. If there was one, the thread that
//! unlocks looks again at what the denied thread may have brought. So either the mark is seen, or
//! the attempt comes after the unlocking, and succeeds.

use crate::sync::{AtomicU32, Ordering};

const LOCKED: u32 = 1;
const DENIED: u32 = 2;

#[derive(Debug)]
pub(crate) struct TryLock(AtomicU32);

impl TryLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock if it is free. Leaves no mark otherwise: the caller then
    /// [tries again](TryLock::try_acquire), and that does.
    #[inline]
    pub(crate) fn acquire_free(&self) -> bool {
        self.0
            .compare_exchange(0, LOCKED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock, or leaves the mark that the caller was denied.
    ///
    /// The mark is written even where it stands already: that read-modify-write makes the denied
    /// thread's earlier writes visible to the thread that unlocks.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let free = word & LOCKED == 0;
            let next = if free { LOCKED } else { LOCKED | DENIED };
            match self
                .0
                .compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return free,
                Err(now) => word = now,
            }
        }
    }

    /// Releases the lock. Returns whether a thread was denied meanwhile.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & DENIED != 0
    }
}
