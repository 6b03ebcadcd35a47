//! A try-lock that remembers who was denied.
//!
//! Nobody waits for a shard: who cannot have the lock leaves a mark in the same word, and goes on.
//! Who unlocks takes the mark away with the swap that unlocks, and if there was one, looks again at
//! what the denied thread may have brought. So either the denied thread's mark is seen, or its
//! attempt comes after the unlocking and succeeds.

use crate::sync::{AtomicU32, Ordering};

const LOCKED: u32 = 1;
const DENIED: u32 = 2;

#[derive(Debug)]
pub(crate) struct TryLock(AtomicU32);

impl TryLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock, if it is free and nobody was denied. Otherwise there is no mark: that is left by who
    /// [tries](TryLock::try_acquire) then.
    #[inline]
    pub(crate) fn acquire_free(&self) -> bool {
        self.0
            .compare_exchange(0, LOCKED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock, or leaves the mark that it was denied.
    ///
    /// The mark is left by a read-modify-write even where it stands already: it is what makes the
    /// denied thread's earlier writes visible to who unlocks.
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

    /// Unlocks; true if somebody was denied meanwhile.
    #[inline]
    #[must_use]
    pub(crate) fn release(&self) -> bool {
        self.0.swap(0, Ordering::AcqRel) & DENIED != 0
    }
}
