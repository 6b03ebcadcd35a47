//! The kernel's part of a worker: an eventfd and a timerfd.

use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use tourbillon_shards::NEVER;

/// An eventfd. A write to it is remembered until a thread has slept on it.
#[derive(Default)]
pub struct EventFd {
    written: Mutex<bool>,
    signal: Condvar,
}

impl EventFd {
    /// Wakes the thread that sleeps on it now, or the next one that does.
    pub fn write(&self) {
        *self.written.lock().unwrap() = true;
        self.signal.notify_one();
    }

    /// Takes a write that is remembered, and returns whether there was one.
    pub fn take(&self) -> bool {
        std::mem::take(&mut *self.written.lock().unwrap())
    }

    /// Sleeps until a thread writes to it. If none ever does, loom reports a deadlock.
    pub fn sleep(&self) {
        let mut written = self.written.lock().unwrap();
        while !*written {
            written = self.signal.wait(written).unwrap();
        }
        *written = false;
    }
}

/// A kernel timer, reduced to its last setting. The kernel takes a lock for each setting, so each
/// setting orders memory.
pub struct TimerFd(AtomicU64);

impl Default for TimerFd {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl TimerFd {
    /// Sets the timer to `at`. [`NEVER`] unsets it.
    pub fn set(&self, at: u64) {
        self.0.swap(at, Ordering::AcqRel);
    }

    /// Returns the time to which the timer is set, or [`NEVER`].
    pub fn is_set_to(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Lets it expire by the kernel's clock: it is no longer set.
    pub fn go_off(&self) {
        self.set(NEVER);
    }
}
