//! Shared set-up of the tests of outcomes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, UNIX_EPOCH},
};

use tourbillon::{Handle, Timer, timer::Outcome};

use super::{Gate, PATIENCE};

/// Counts the outcomes that callbacks get.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<[AtomicUsize; 4]>);

impl Told {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn note(&self, how: Outcome) {
        self.0[how as usize].fetch_add(1, Ordering::SeqCst);
    }

    /// Returns a callback that counts its outcome.
    pub fn once(&self) -> impl FnOnce(Outcome) + Send + 'static {
        let told = self.clone();
        move |how| told.note(how)
    }

    pub fn count(&self, how: Outcome) -> usize {
        self.0[how as usize].load(Ordering::SeqCst)
    }

    /// Returns how many callbacks got `Fired`, `Cancelled` and `Shutdown`.
    pub fn all(&self) -> [usize; 3] {
        [Outcome::Fired, Outcome::Cancelled, Outcome::Shutdown].map(|how| self.count(how))
    }

    pub fn total(&self) -> usize {
        self.all().iter().sum()
    }
}

/// Returns the number of the calling worker, from the default name of its thread.
pub fn worker_number() -> Option<usize> {
    let current = thread::current();
    current.name()?.strip_prefix("tourbillon-")?.parse().ok()
}

/// Keeps some worker busy until the gate is opened, and returns its number.
#[track_caller]
pub fn stick_a_worker(handle: &Handle) -> (usize, Gate) {
    let release = Gate::new();
    let (sender, stuck) = mpsc::channel();
    let gate = release.clone();
    Timer::after(Duration::ZERO).on(handle).start(move || {
        let _ = sender.send(worker_number());
        gate.wait();
    });
    let worker = stuck.recv_timeout(PATIENCE).expect("it runs");
    (worker.expect("on a worker"), release)
}

/// Makes each worker, and the threads of the other clocks, drain their inboxes. A sleeping worker
/// drains its inbox only when it wakes.
#[track_caller]
pub fn read_inboxes(handle: &Handle) {
    let (sender, ran) = mpsc::channel();
    let say = || {
        let sender = sender.clone();
        move || _ = sender.send(())
    };
    let workers = handle.timers().workers.len();
    for worker in 0..workers {
        let now = Timer::after(Duration::ZERO).on(handle).on_worker(worker);
        now.start(say());
    }
    Timer::at_wall(UNIX_EPOCH).on(handle).start(say());
    Timer::after_boot(Duration::ZERO).on(handle).start(say());
    for _ in 0..workers + 2 {
        ran.recv_timeout(PATIENCE).expect("it runs");
    }
}
