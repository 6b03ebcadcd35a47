//! A lock whose threads spin until they have it.

use crate::sync::{AtomicBool, Ordering, UnsafeCell, spin_loop};

/// A value that one thread at a time may access.
pub struct SpinLock<T> {
    locked: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: a thread gets a reference to the value only while it has the lock. It may move the value
// out by that, so the value has to be `Send`.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub fn new(value: T) -> Self {
        Self {
            locked: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock, and calls the function with the value.
    ///
    /// If the function panics, the lock is never given back.
    pub fn with<R>(&self, access: impl FnOnce(&mut T) -> R) -> R {
        // A failed exchange only loads. A swap would write, though another thread has the lock.
        while self
            .locked
            .compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            // Another thread has the lock, and has to run before this one can go on.
            spin_loop();
        }
        // SAFETY: this thread has the lock until the store below.
        let result = self.value.with_mut(|value| access(unsafe { &mut *value }));
        self.locked.store(false, Ordering::Release);
        result
    }
}
