//! A try-lock that remembers that a thread was denied.
//!
//! No thread that arms, moves or cancels a timer waits. A thread that is denied the lock leaves a
//! mark in the lock's word, and goes on. The swap that unlocks also takes the mark. If there was
//! one, the thread that unlocks drains what the denied thread may have pushed. So either the
//! unlocking thread sees the mark, or the attempt comes after the release, and succeeds. See "The
//! try-lock" in `PROTOCOLS.md`.

use tourbillon_sync::{AtomicU32, Ordering};

const LOCKED: u32 = 1;
const DENIED: u32 = 2;

/// A word of two bits: `LOCKED`, and `DENIED` if a thread was denied since.
#[derive(Debug)]
pub(crate) struct TryLock(AtomicU32);

impl TryLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock if it is free, and returns whether it did. It leaves no mark: a caller that
    /// fails then calls [`try_acquire`](TryLock::try_acquire), which does.
    #[inline]
    pub(crate) fn acquire_free(&self) -> bool {
        self.0
            .compare_exchange(0, LOCKED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock and returns `true`, or leaves the mark and returns `false`.
    ///
    /// A mark that is set is written again: this read-modify-write makes the denied thread's
    /// earlier writes visible to the thread that unlocks.
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_denied_leaves_a_mark() {
        let lock = TryLock::new();
        for _ in 0..2 {
            assert!(lock.acquire_free());
            assert!(!lock.acquire_free());
            assert!(!lock.release(), "the fast attempt leaves no mark");
            assert!(lock.try_acquire());
            assert!(!lock.try_acquire());
            assert!(!lock.try_acquire(), "the mark is set again");
            assert!(!lock.acquire_free());
            assert!(lock.release());
        }
    }
}
