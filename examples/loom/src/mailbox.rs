//! A box for one message, for any number of threads on both sides.

use crate::sync::{AtomicU8, Ordering, UnsafeCell};

const EMPTY: u8 = 0;
/// A thread writes or reads the message, and no other may.
const BUSY: u8 = 1;
const FULL: u8 = 2;

/// Holds one message at most.
pub struct Mailbox<T> {
    state: AtomicU8,
    message: UnsafeCell<Option<T>>,
}

// SAFETY: the message moves from one thread to another, so it has to be `Send`. Only the thread that
// has made the state BUSY accesses it, so no two threads have a reference to it at a time.
unsafe impl<T: Send> Sync for Mailbox<T> {}

impl<T> Mailbox<T> {
    pub fn new() -> Self {
        Self {
            state: AtomicU8::new(EMPTY),
            message: UnsafeCell::new(None),
        }
    }

    /// Leaves a message. If the box is not empty, the caller gets the message back.
    pub fn put(&self, message: T) -> Result<(), T> {
        // Acquires what the thread that emptied the box did: it has read the last message.
        let taken = self
            .state
            .compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() {
            return Err(message);
        }
        // SAFETY: this thread made the state BUSY.
        self.message
            .with_mut(|place| unsafe { *place = Some(message) });
        // Releases the message to the thread that takes it.
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }

    /// Takes the message, if there is one.
    pub fn take(&self) -> Option<T> {
        let taken = self
            .state
            .compare_exchange(FULL, BUSY, Ordering::Acquire, Ordering::Relaxed);
        taken.ok()?;
        // SAFETY: this thread made the state BUSY.
        let message = self.message.with_mut(|place| unsafe { (*place).take() });
        self.state.store(EMPTY, Ordering::Release);
        message
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}
