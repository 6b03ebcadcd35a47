//! A bounded queue for one sending and one receiving thread.

use std::mem::MaybeUninit;

use crate::sync::{Arc, AtomicUsize, Ordering, UnsafeCell};

struct Ring<T> {
    places: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// How many messages were received. Only the receiver writes it.
    received: AtomicUsize,
    /// How many messages were sent. Only the sender writes it.
    sent: AtomicUsize,
}

// SAFETY: a place belongs to the sender or to the receiver, as the two counts say, so messages only
// move from one thread to the other.
unsafe impl<T: Send> Sync for Ring<T> {}

/// The sending half of a queue.
pub struct Sender<T>(Arc<Ring<T>>);

/// The receiving half of a queue.
pub struct Receiver<T>(Arc<Ring<T>>);

/// Makes a queue for `capacity` messages.
///
/// # Panics
///
/// If the capacity is zero.
pub fn queue<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "a queue needs a capacity of at least one");
    let places = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit()));
    let ring = Arc::new(Ring {
        places: places.collect(),
        received: AtomicUsize::new(0),
        sent: AtomicUsize::new(0),
    });
    (Sender(ring.clone()), Receiver(ring))
}

impl<T> Ring<T> {
    fn place(&self, number: usize) -> &UnsafeCell<MaybeUninit<T>> {
        &self.places[number % self.places.len()]
    }

    /// Takes the next message, if there is one. For one thread at a time.
    fn take(&self) -> Option<T> {
        let received = self.received.load(Ordering::Relaxed);
        // Acquires the message that the sender wrote before it counted.
        if received == self.sent.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the sender has written this message, and does not write to its place again before
        // `received` counts it.
        let message = self
            .place(received)
            .with_mut(|place| unsafe { (*place).assume_init_read() });
        self.received.store(received + 1, Ordering::Release);
        Some(message)
    }
}

impl<T> Sender<T> {
    /// Sends a message. If the queue is full, the caller gets the message back.
    pub fn send(&mut self, message: T) -> Result<(), T> {
        let ring = &*self.0;
        let sent = ring.sent.load(Ordering::Relaxed);
        // Acquires that the receiver has read the message whose place this one takes.
        if sent - ring.received.load(Ordering::Acquire) == ring.places.len() {
            return Err(message);
        }
        // SAFETY: the receiver does not read this place before `sent` counts it.
        ring.place(sent)
            .with_mut(|place| _ = unsafe { (*place).write(message) });
        ring.sent.store(sent + 1, Ordering::Release);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// Receives the oldest message, if there is one.
    pub fn receive(&mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        // Both halves are gone, so this thread has the ring to itself.
        while let Some(message) = self.take() {
            drop(message);
        }
    }
}
