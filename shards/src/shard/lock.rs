//! A try-lock that remembers that a thread was denied.
//!
//! No thread that arms, moves or cancels a timer waits. A thread that is denied the lock leaves a
//! mark in the lock's word, and goes on. The swap that unlocks also takes the mark. If there was
//! one, the thread that unlocks drains what the denied thread may have pushed. So either the
//! unlocking thread sees the mark, or the attempt comes after the release, and succeeds.
//!
//! The owner of the shard, when it arms, moves or ends one timer, takes the lock in another way:
//! its release is a plain store, which is cheaper, and a thread that it denies leaves no mark. The
//! owner is awake, and finds what the denied thread has pushed when it looks before it sleeps. See
//! "The try-lock" in `PROTOCOLS.md`.

use tourbillon_sync::{AtomicU32, Ordering, fence};

const LOCKED: u32 = 1;
const DENIED: u32 = 2;
const OWNERS: u32 = 4;

/// A word: free; `LOCKED`, with `DENIED` if a thread was denied since; or `OWNERS`.
#[derive(Debug)]
pub(crate) struct TryLock(AtomicU32);

impl TryLock {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes the lock for the owner if it is free, and returns whether it did. It leaves no mark: a
    /// caller that fails then calls [`try_acquire_as_owner`](TryLock::try_acquire_as_owner), which
    /// does.
    #[inline]
    pub(crate) fn acquire_free_as_owner(&self) -> bool {
        self.0
            .compare_exchange(0, OWNERS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock and returns `true`. If another thread has it, leaves the mark, unless that
    /// thread is the owner, and returns `false`.
    #[inline]
    pub(crate) fn try_acquire(&self) -> bool {
        self.attempt(LOCKED)
    }

    /// Does [`try_acquire`](TryLock::try_acquire) for the owner.
    #[inline]
    pub(crate) fn try_acquire_as_owner(&self) -> bool {
        self.attempt(OWNERS)
    }

    /// Takes the lock as `held`, and returns whether it did.
    ///
    /// A mark that is set is written again: this read-modify-write makes the denied thread's
    /// earlier writes visible to the thread that unlocks. For the owner, a fence does so.
    #[inline]
    fn attempt(&self, held: u32) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word == OWNERS {
                fence(Ordering::SeqCst);
                word = self.0.load(Ordering::Relaxed);
                if word == OWNERS {
                    return false;
                }
            }
            let free = word == 0;
            let next = if free { held } else { LOCKED | DENIED };
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

    /// Releases the lock, which was taken for the owner.
    #[inline]
    pub(crate) fn release_as_owner(&self) {
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_denied_leaves_a_mark() {
        let lock = TryLock::new();
        for _ in 0..2 {
            assert!(lock.try_acquire());
            assert!(!lock.acquire_free_as_owner());
            assert!(!lock.release(), "the fast attempt leaves no mark");
            assert!(lock.try_acquire());
            assert!(!lock.try_acquire());
            assert!(!lock.try_acquire_as_owner(), "the mark is set again");
            assert!(lock.release());
        }
    }

    #[test]
    fn a_thread_that_the_owner_denies_leaves_no_mark() {
        let lock = TryLock::new();
        for take in [
            TryLock::acquire_free_as_owner,
            TryLock::try_acquire_as_owner,
        ] {
            assert!(take(&lock));
            assert!(!lock.try_acquire());
            lock.release_as_owner();
            assert!(lock.try_acquire());
            assert!(!lock.release());
        }
    }
}
