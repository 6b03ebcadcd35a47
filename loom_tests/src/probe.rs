//! Callbacks that record how they ran and ended.

use std::sync::{
    Arc as Plain, Mutex as PlainMutex,
    atomic::{AtomicUsize as PlainUsize, Ordering},
};

use loom::{
    cell::UnsafeCell,
    sync::atomic::AtomicBool,
    thread::{self, ThreadId},
};
use tourbillon_shards::{Flow, Outcome};

/// A record of the runs, the drops and the outcomes of a callback.
#[derive(Clone, Default)]
pub struct Probe(Plain<Seen>);

#[derive(Default)]
struct Seen {
    runs: PlainUsize,
    drops: PlainUsize,
    told: PlainMutex<Vec<(Outcome, ThreadId)>>,
    used: Used,
}

/// Memory that a callback uses from its beginning until it is dropped. A second user at the same
/// time is a causality violation.
#[derive(Default)]
struct Used(UnsafeCell<usize>);

// SAFETY: concurrent access would be unsound; loom reports it.
unsafe impl Send for Used {}
// SAFETY: as above.
unsafe impl Sync for Used {}

impl Used {
    fn touch(&self) {
        // SAFETY: loom checks that no other thread accesses it.
        self.0.with_mut(|times| unsafe { *times += 1 });
    }
}

struct Payload(Plain<Seen>);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.drops.fetch_add(1, Ordering::Relaxed);
        self.0.used.touch();
    }
}

impl Probe {
    /// Returns a probe that has recorded nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a callback for a timer that runs once.
    pub fn once(&self) -> impl FnOnce() + Send + use<> {
        let payload = Payload(self.0.clone());
        move || {
            payload.0.runs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns a callback for a recurring timer. In the middle of a run, loom may switch threads.
    pub fn recurring(&self) -> impl FnMut() + Send + use<> {
        let payload = Payload(self.0.clone());
        let inside = AtomicBool::new(false);
        move || {
            assert!(!inside.swap(true, Ordering::Relaxed), "runs twice at once");
            payload.0.runs.fetch_add(1, Ordering::Relaxed);
            inside.swap(false, Ordering::Relaxed);
        }
    }

    /// Returns a callback for a timer with options. In the middle of a run, loom may switch
    /// threads.
    pub fn told(&self, answer: Flow) -> impl FnMut(Outcome) -> Flow + Send + use<> {
        let payload = Payload(self.0.clone());
        let inside = AtomicBool::new(false);
        move |how| {
            let seen = &payload.0;
            seen.used.touch();
            seen.told
                .lock()
                .unwrap()
                .push((how, thread::current().id()));
            inside.swap(true, Ordering::Relaxed);
            seen.used.touch();
            seen.runs.fetch_add(1, Ordering::Relaxed);
            answer
        }
    }

    /// Uses the memory that the callback uses. If the callback may still use it, loom reports a
    /// causality violation.
    pub fn touch(&self) {
        self.0.used.touch();
    }

    /// Returns the outcomes that a callback of [`told`](Probe::told) was called with, in order.
    pub fn outcomes(&self) -> Vec<Outcome> {
        let told = self.0.told.lock().unwrap();
        told.iter().map(|told| told.0).collect()
    }

    /// Returns whether the calling thread has called a callback of [`told`](Probe::told).
    pub fn was_told_here(&self) -> bool {
        let here = thread::current().id();
        self.0.told.lock().unwrap().iter().any(|it| it.1 == here)
    }

    /// Returns how often the callback ran.
    pub fn runs(&self) -> usize {
        self.0.runs.load(Ordering::Relaxed)
    }

    /// Returns how often the callback was dropped. A run of a `FnOnce` drops it too.
    pub fn drops(&self) -> usize {
        self.0.drops.load(Ordering::Relaxed)
    }
}
