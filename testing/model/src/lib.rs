//! One timer as a plain value. It has no store, no thread and no clock: a test tells it what
//! happens, and compares its answers with those of the real timer.
//!
//! Three tests share it: the random programs of a shard (`shards/tests/model`), those of the
//! runtime on the paused clock (`tests/timer/model`), and the fuzz target of a shard
//! (`testing/fuzz/src/shard`). What they add is theirs: names, inboxes, wake-ups, other clocks, and
//! who runs the callbacks.
//!
//! All times are numbers of one clock. [`NEVER`] is no moment of it.

pub mod checked;

use tourbillon_shards::{Cancel, NEVER, Outcome, Reset, Started, Status};

/// Where a timer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Built, and not started.
    Idle,
    /// Cancelled before its start, while its callback takes outcomes. The start delivers it.
    Barred,
    /// Waits for this deadline.
    Pending(u64),
    /// Was taken from its store for this deadline, and has neither run nor been moved since.
    Due(u64),
    /// Runs for this deadline. A timer that recurs may have got the next one during the run.
    Running(u64, Option<u64>),
    /// Runs for the last time, because it was cancelled during the run.
    Stopping,
    /// Is ending: its callback has yet to take this outcome.
    Telling(Outcome),
    /// Has ended so.
    Over(Outcome),
}

/// One timer.
#[derive(Clone, Debug)]
pub struct Timer {
    /// Whether it recurs.
    pub recurs: bool,
    /// Whether its callback takes outcomes.
    pub told: bool,
    /// The deadline that it was built with, if it was.
    pub given: Option<u64>,
    /// Where it stands.
    pub state: State,
    /// Its delay or period.
    pub wait: u64,
    /// When its present wait began; this may be before the zero of the clock.
    pub begun: i64,
    /// The part of the deadline that is jitter.
    pub offset: u64,
    /// Whether it was moved since it was armed or taken from its store: the store may then hold it
    /// under another deadline.
    pub moved: bool,
}

/// What a moment becomes when the jitter is added that is drawn for it.
pub type Jitter<'a> = &'a mut dyn FnMut(u64) -> u64;

/// Returns when a wait of this length begins that ends at `end`.
fn before(end: u64, length: u64) -> i64 {
    end.min(NEVER) as i64 - length as i64
}

/// No jitter.
pub fn exact(at: u64) -> u64 {
    at
}

impl Timer {
    /// A timer that was built and is to be started.
    pub fn idle(recurs: bool, told: bool, wait: u64, given: Option<u64>) -> Self {
        Self {
            recurs,
            told,
            // The value 0 stands for no deadline.
            given: given.map(|at| at.clamp(1, NEVER)),
            state: State::Idle,
            wait: wait.min(NEVER),
            begun: 0,
            offset: 0,
            moved: false,
        }
    }

    /// A timer that was armed with a deadline.
    pub fn pending(recurs: bool, at: u64, wait: u64) -> Self {
        let (at, wait) = (at.min(NEVER), wait.min(NEVER));
        Self {
            state: State::Pending(at),
            begun: before(at, wait),
            ..Self::idle(recurs, false, wait, None)
        }
    }

    /// Starts its first wait at `now`.
    pub fn start(&mut self, now: u64, jitter: Jitter<'_>) -> Started {
        match self.state {
            State::Idle => {
                let wait = self.wait.min(NEVER.saturating_sub(now));
                let at = self.given.unwrap_or(now.saturating_add(wait).min(NEVER));
                self.arm(at, jitter);
                let at = self.deadline().expect("it waits");
                // A timer that runs once waits until its deadline, and not at all if that has
                // passed: then its wait began at the deadline.
                (self.begun, self.wait) = match self.recurs {
                    true => (before(now, 0), wait),
                    false => (before(at.min(now), 0), at.saturating_sub(now)),
                };
                Started::Pending
            }
            State::Barred => {
                self.state = State::Telling(Outcome::Cancelled);
                Started::Cancelled
            }
            State::Telling(Outcome::Cancelled) | State::Over(Outcome::Cancelled) => {
                Started::Cancelled
            }
            State::Telling(Outcome::Shutdown) | State::Over(Outcome::Shutdown) => Started::Shutdown,
            _ => Started::AlreadyStarted,
        }
    }

    /// Lets it wait for `at` and the jitter that is drawn for it.
    fn arm(&mut self, at: u64, jitter: Jitter<'_>) {
        let drawn = if at == NEVER { at } else { jitter(at) };
        self.offset = drawn - at;
        self.state = State::Pending(drawn);
    }

    /// Cancels it.
    pub fn cancel(&mut self) -> Cancel {
        match self.state {
            State::Idle if self.told => self.state = State::Barred,
            State::Idle => self.state = State::Over(Outcome::Cancelled),
            State::Pending(_) | State::Due(_) => self.end(Outcome::Cancelled),
            State::Running(..) if self.recurs => {
                self.state = State::Stopping;
                return Cancel::AfterRun;
            }
            State::Running(..) => return Cancel::Running,
            State::Barred | State::Stopping | State::Telling(_) | State::Over(_) => {
                return Cancel::Over;
            }
        }
        Cancel::Cancelled
    }

    /// Ends it. A callback that takes outcomes has yet to be told.
    pub fn end(&mut self, how: Outcome) {
        self.state = match self.told {
            true => State::Telling(how),
            false => State::Over(how),
        };
    }

    /// Tells its callback the outcome, if that is what is left. Returns the outcome then.
    pub fn tell(&mut self) -> Option<Outcome> {
        let State::Telling(how) = self.state else {
            return None;
        };
        self.state = State::Over(how);
        Some(how)
    }

    /// Drops its last handle: a timer that was never started is over, and its callback not told.
    pub fn drop_handle(&mut self) {
        if let State::Idle | State::Barred = self.state {
            self.state = State::Over(Outcome::Cancelled);
        }
    }

    /// Moves it to a deadline, as if it had begun to wait for that one delay or period before.
    pub fn reset_at(&mut self, to: u64) -> Reset {
        let reset = self.shift(to);
        self.take_over(reset, self.wait, before(to.min(NEVER), self.wait));
        reset
    }

    fn shift(&mut self, to: u64) -> Reset {
        let to = to.min(NEVER);
        match self.state {
            State::Pending(_) | State::Due(_) => {
                self.moved |= matches!(self.state, State::Pending(_));
                self.state = State::Pending(to);
                self.offset = 0;
                Reset::Pending
            }
            State::Running(at, _) if self.recurs => {
                self.state = State::Running(at, Some(to));
                Reset::AfterRun
            }
            State::Idle => Reset::NotStarted,
            State::Barred
            | State::Running(..)
            | State::Stopping
            | State::Telling(_)
            | State::Over(_) => Reset::TooLate,
        }
    }

    /// Moves it to `wait` from now, which becomes its delay or period.
    pub fn reset_after(&mut self, now: u64, wait: u64) -> Reset {
        let wait = wait.min(NEVER.saturating_sub(now));
        let reset = self.shift(now.saturating_add(wait));
        self.take_over(reset, wait, before(now, 0));
        reset
    }

    /// Moves it to `wait` after the start of its wait, which becomes its delay or period.
    pub fn reset_from_start(&mut self, wait: u64) -> Reset {
        let to = self.begun.saturating_add_unsigned(wait).max(0);
        let reset = self.shift(to as u64);
        self.take_over(reset, wait.min(NEVER), self.begun);
        reset
    }

    /// Starts its wait again.
    pub fn refresh(&mut self, now: u64) -> Reset {
        let reset = self.shift(now.saturating_add(self.wait));
        self.take_over(reset, self.wait, before(now, 0));
        reset
    }

    fn take_over(&mut self, reset: Reset, wait: u64, begun: i64) {
        if let Reset::Pending | Reset::AfterRun = reset {
            (self.wait, self.begun) = (wait, begun);
        }
    }

    /// Takes it from its store: it waits for its run.
    pub fn take(&mut self) {
        let State::Pending(at) = self.state else {
            panic!("{:?} came due", self.state)
        };
        self.state = State::Due(at);
        self.moved = false;
    }

    /// Begins its run for the deadline at which it was taken.
    pub fn run(&mut self) {
        let State::Due(at) = self.state else {
            panic!("{:?} runs", self.state)
        };
        self.state = State::Running(at, None);
        // The next wait begins at the deadline of this run.
        self.begun = before(at, self.offset);
    }

    /// Ends its run at `now`: it is over, or waits again.
    pub fn has_run(&mut self, now: u64, jitter: Jitter<'_>) {
        self.state = match self.state {
            State::Running(..) if !self.recurs => State::Over(Outcome::Fired),
            State::Running(_, Some(to)) => {
                self.offset = 0;
                State::Pending(to)
            }
            State::Running(at, None) => {
                let next = self.next(at, now);
                self.begun = before(next, self.wait);
                self.arm(next, jitter);
                return;
            }
            // Its callback is told within the run.
            State::Stopping => State::Over(Outcome::Cancelled),
            state => panic!("{state:?} has run"),
        };
    }

    /// Returns when it is due again after a run for the deadline `at`: the first moment of its grid
    /// that has not passed. The jitter of `at` is no part of the grid.
    fn next(&self, at: u64, now: u64) -> u64 {
        let grid = u128::from(at.saturating_sub(self.offset));
        let period = u128::from(self.wait.max(1));
        let missed = u128::from(now).saturating_sub(grid) / period;
        (grid + (missed + 1) * period).min(u128::from(NEVER)) as u64
    }

    /// Returns whether it is over, and its callback told.
    pub fn is_over(&self) -> bool {
        matches!(self.state, State::Over(_))
    }

    /// Returns the deadline that the handle shows.
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Pending(at) | State::Due(at) => Some(at),
            State::Running(at, next) => Some(next.unwrap_or(at)),
            _ => None,
        }
    }

    /// Returns the status that the handle shows.
    pub fn status(&self) -> Status {
        match self.state {
            State::Idle => Status::NotStarted,
            State::Barred => Status::Over(Outcome::Cancelled),
            State::Pending(_) | State::Due(_) => Status::Pending,
            State::Running(..) => Status::Running { last: !self.recurs },
            State::Stopping | State::Telling(_) => Status::Running { last: true },
            State::Over(how) => Status::Over(how),
        }
    }
}

#[cfg(test)]
mod tests;
