//! What tests of outcomes share.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tourbillon::{Handle, Outcome, Timer};

use super::Gate;

/// Counts what callbacks are told.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<[AtomicUsize; 3]>);

impl Told {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn note(&self, how: Outcome) {
        self.0[how as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// A callback that counts what it is told.
    pub fn once(&self) -> impl FnOnce(Outcome) + Send + 'static {
        let told = self.clone();
        move |how| told.note(how)
    }

    pub fn count(&self, how: Outcome) -> usize {
        self.0[how as usize].load(Ordering::SeqCst)
    }

    /// How many were told `Fired`, `Cancelled` and `Shutdown`.
    pub fn all(&self) -> [usize; 3] {
        [Outcome::Fired, Outcome::Cancelled, Outcome::Shutdown].map(|how| self.count(how))
    }

    pub fn total(&self) -> usize {
        self.all().iter().sum()
    }
}

/// The number of the worker that the calling thread is, by the name that workers have by default.
pub fn worker_number() -> Option<usize> {
    let current = thread::current();
    current.name()?.strip_prefix("tourbillon-")?.parse().ok()
}

/// Keeps some worker busy until the gate is opened; answers which.
#[track_caller]
pub fn stick_a_worker(handle: &Handle) -> (usize, Gate) {
    let release = Gate::new();
    let (sender, stuck) = std::sync::mpsc::channel();
    let gate = release.clone();
    Timer::after(Duration::ZERO).on(handle).start(move || {
        let _ = sender.send(worker_number());
        gate.wait();
    });
    let worker = stuck.recv_timeout(super::PATIENCE).expect("it runs");
    (worker.expect("on a worker"), release)
}

/// Makes each worker read what came from other threads; asleep, it leaves that until it next wakes.
#[track_caller]
pub fn read_inboxes(handle: &Handle) {
    for worker in 0..handle.timers().workers.len() {
        let (sender, ran) = std::sync::mpsc::channel();
        let now = Timer::after(Duration::ZERO).on(handle).on_worker(worker);
        now.start(move || _ = sender.send(()));
        ran.recv_timeout(super::PATIENCE).expect("it runs");
    }
}
