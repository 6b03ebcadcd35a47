//! What the kernel gives a worker: an eventfd, and a timerfd.

use loom::sync::{
    Condvar, Mutex,
    atomic::{AtomicU64, Ordering},
};
use tourbillon_shards::NEVER;

/// An eventfd: remembers that it was written to until somebody slept on it.
#[derive(Default)]
pub struct EventFd {
    written: Mutex<bool>,
    signal: Condvar,
}

impl EventFd {
    /// Wakes who sleeps on it, or will.
    pub fn write(&self) {
        *self.written.lock().unwrap() = true;
        self.signal.notify_one();
    }

    /// Sleeps until it is written to. If that never happens, loom reports a deadlock.
    pub fn sleep(&self) {
        let mut written = self.written.lock().unwrap();
        while !*written {
            written = self.signal.wait(written).unwrap();
        }
        *written = false;
    }
}

/// A timer of the kernel: which setting comes last is all that there is to it. The kernel has a
/// lock for it, hence the order that a setting gives.
pub struct TimerFd(AtomicU64);

impl Default for TimerFd {
    fn default() -> Self {
        Self(AtomicU64::new(NEVER))
    }
}

impl TimerFd {
    pub(crate) fn set(&self, at: u64) {
        self.0.swap(at, Ordering::AcqRel);
    }

    /// What it is set to.
    pub fn is_set_to(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Its moment has come, by the kernel's clock: it is not set any more.
    pub fn go_off(&self) {
        self.set(NEVER);
    }
}
