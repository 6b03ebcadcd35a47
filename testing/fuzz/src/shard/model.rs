//! Timers and sleeps beside their models, which are those of `testing/model`.

use std::sync::Arc;

use tourbillon_model::{self as model, State};
use tourbillon_shards::{NEVER, Outcome, Sleep, Timer};

use super::owner::{Log, TestOwner, Woken, index};

/// The model of a timer with a callback.
pub struct Model {
    pub model: model::Timer,
    pub tolerance: u64,
    /// Whether its `Due` is held. It is pending if it was moved since.
    pub is_held: bool,
    /// Whether it is in the inbox.
    pub is_queued: bool,
    pub has_tag: bool,
    /// Expected number of calls, by outcome.
    pub calls: [usize; 3],
    pub log: Arc<Log>,
    /// The callback holds a reference, too, until it is dropped.
    pub payload: Arc<()>,
    pub timer: Option<Arc<Timer<TestOwner>>>,
}

/// The model of a sleep.
pub struct Nap {
    pub model: model::Timer,
    pub sleep: Sleep<TestOwner>,
    pub waker: Arc<Woken>,
    /// Whether a task waits for it.
    pub is_polled: bool,
    pub woken: usize,
}

impl Model {
    /// Ends it. Its callback takes the outcome at once.
    pub fn end(&mut self, how: Outcome) {
        assert!(!self.model.is_over());
        self.model.end(how);
        self.tell();
    }

    /// Lets the callback take its outcome, if it has yet to.
    pub fn tell(&mut self) {
        if let Some(how) = self.model.tell() {
            self.calls[index(how)] += 1;
        }
    }

    /// Returns the earliest and the latest time at which it may fire, if it is in the store.
    pub fn window(&self) -> Option<(u64, u64)> {
        match self.model.state {
            State::Pending(at) if !self.is_held => {
                let last = at.saturating_add(self.tolerance).min(NEVER - 1);
                // Tolerance does not apply to timers that never fire or are due at time 0.
                let is_exact = at == NEVER || at == 0;
                Some((at, if is_exact { at } else { last.max(at) }))
            }
            _ => None,
        }
    }

    /// Checks the visible state between two steps.
    pub fn check(&self) {
        assert_eq!(self.log.calls(), self.calls, "calls");
        // A timer cancelled before start keeps its callback, which has yet to take the outcome.
        let is_there = Arc::strong_count(&self.payload) == 2;
        assert_eq!(is_there, !self.model.is_over(), "payload");
        let Some(timer) = &self.timer else { return };
        assert_eq!(timer.status(), self.model.status());
        assert_eq!(timer.deadline(), self.model.deadline());
        assert_eq!(timer.wait(), self.model.wait);
    }
}

impl Nap {
    pub fn end(&mut self, how: Outcome) {
        self.model.state = State::Over(how);
        self.woken += usize::from(std::mem::take(&mut self.is_polled));
    }

    pub fn check(&self) {
        let how = match self.model.state {
            State::Over(how) => Some(how),
            _ => None,
        };
        assert_eq!(self.sleep.outcome(), how);
        assert_eq!(self.sleep.deadline(), self.model.deadline());
        let woken = self.waker.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(woken, self.woken, "wake-ups");
    }
}
