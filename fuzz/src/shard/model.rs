//! The expected state of a timer, and the expected answers.

use std::sync::Arc;

use tourbillon_shards::{Cancel, NEVER, Outcome, Reset, Sleep, Started, Status, Timer};

use super::owner::{Log, TestOwner, Woken, index};

/// The state of a timer or sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not started. It will wait until this time, or for its delay if this is zero.
    Idle(u64),
    /// Cancelled before start. Its callback takes the outcome when it is started.
    CancelledBeforeStart,
    Pending(u64),
    /// Taken from the store, to be run.
    Due(u64),
    Over(Outcome),
}

/// The model of a timer with a callback.
pub struct Model {
    pub state: State,
    pub recurs: bool,
    /// Whether the callback takes outcomes.
    pub takes_outcome: bool,
    pub tolerance: u64,
    pub wait: u64,
    /// Start of the current wait.
    pub begun: u64,
    /// Whether its `Due` is held. It is pending if it was moved since.
    pub is_held: bool,
    /// Whether it is in the inbox.
    pub is_queued: bool,
    /// Whether it was moved since it was last taken from the store, so that its entry may have the
    /// old deadline.
    pub is_moved: bool,
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
    pub state: State,
    pub is_moved: bool,
    pub sleep: Sleep<TestOwner>,
    pub waker: Arc<Woken>,
    /// Whether a task waits for it.
    pub is_polled: bool,
    pub woken: usize,
}

impl State {
    pub fn deadline(self) -> Option<u64> {
        match self {
            State::Pending(at) | State::Due(at) => Some(at),
            _ => None,
        }
    }

    pub fn is_over(self) -> bool {
        matches!(self, State::Over(_))
    }
}

impl Model {
    pub fn end(&mut self, how: Outcome) {
        assert!(!self.state.is_over());
        self.state = State::Over(how);
        if self.takes_outcome {
            self.calls[index(how)] += 1;
        }
    }

    /// Returns the earliest and the latest time at which it may fire, if it is in the store.
    pub fn window(&self) -> Option<(u64, u64)> {
        match self.state {
            State::Pending(at) if !self.is_held => {
                let last = at.saturating_add(self.tolerance).min(NEVER - 1);
                // Tolerance does not apply to timers that never fire or are due at time 0.
                let is_exact = at == NEVER || at == 0;
                Some((at, if is_exact { at } else { last.max(at) }))
            }
            _ => None,
        }
    }

    pub fn expect_cancel(&self) -> Cancel {
        match self.state {
            State::CancelledBeforeStart | State::Over(_) => Cancel::Over,
            _ => Cancel::Cancelled,
        }
    }

    pub fn expect_reset(&self) -> Reset {
        match self.state {
            State::Idle(_) => Reset::NotStarted,
            State::Pending(_) | State::Due(_) => Reset::Waiting,
            State::CancelledBeforeStart | State::Over(_) => Reset::TooLate,
        }
    }

    pub fn expect_start(&self) -> Started {
        match self.state {
            State::Idle(_) => Started::Waiting,
            State::CancelledBeforeStart | State::Over(Outcome::Cancelled) => Started::Cancelled,
            State::Over(Outcome::Shutdown) => Started::Shutdown,
            _ => Started::TooLate,
        }
    }

    /// Checks the visible state between two steps.
    pub fn check(&self) {
        assert_eq!(self.log.calls(), self.calls, "calls");
        // A timer cancelled before start keeps its callback, which has yet to take the outcome.
        let is_there = Arc::strong_count(&self.payload) == 2;
        assert_eq!(is_there, !self.state.is_over(), "payload");
        let Some(timer) = &self.timer else { return };
        let status = match self.state {
            State::Idle(_) => Status::Idle,
            State::CancelledBeforeStart => Status::Over(Outcome::Cancelled),
            State::Pending(_) | State::Due(_) => Status::Pending,
            State::Over(how) => Status::Over(how),
        };
        assert_eq!(timer.status(), status);
        assert_eq!(timer.deadline(), self.state.deadline());
        assert_eq!(timer.wait(), self.wait);
    }
}

impl Nap {
    pub fn end(&mut self, how: Outcome) {
        self.state = State::Over(how);
        self.woken += usize::from(std::mem::take(&mut self.is_polled));
    }

    pub fn check(&self) {
        let how = match self.state {
            State::Over(how) => Some(how),
            _ => None,
        };
        assert_eq!(self.sleep.outcome(), how);
        assert_eq!(self.sleep.deadline(), self.state.deadline());
        let woken = self.waker.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(woken, self.woken, "wake-ups");
    }
}
