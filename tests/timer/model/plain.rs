//! The model of one timer: a few numbers, and its outcome.

use std::sync::Arc;

use tourbillon::timer::Outcome;
use tourbillon_shards::NEVER;

use super::{
    clocks::{Kind, Offsets, Zeros},
    timer::{AnyTimer, Log},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Idle,
    /// Cancelled before its start. The start then delivers the outcome.
    Barred,
    Pending,
    Over(Outcome),
}

/// How the clock went from one moment to a later one: at once, or from deadline to deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Jump,
    Glide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acts {
    No,
    Cancels,
    Moves(u64),
}

pub struct Model {
    pub kind: Kind,
    pub recurs: bool,
    pub told: bool,
    pub skips: bool,
    pub name: Option<usize>,
    pub tolerance: u64,
    pub jitter: u64,
    /// The number of runs that are left, if it is bounded.
    pub left: Option<u64>,
    /// What the callback does to its timer in the first run.
    pub acts: Acts,
    /// The deadline of the plan, if it has one. The start sets it.
    pub given: Option<u64>,

    pub state: State,
    /// The deadline on the timer's clock. While `unsure`, this is without the jitter.
    pub deadline: u64,
    pub wait: u64,
    /// When the present wait began, on the timer's clock.
    pub begun: u64,
    /// The part of the deadline that is jitter.
    pub offset: u64,
    /// Whether the runtime has drawn a jitter that the model does not know yet.
    pub unsure: bool,
    pub moved: bool,
    pub alive: Option<Arc<()>>,
    pub dead: bool,
    pub calls: Vec<(Outcome, u64)>,

    pub log: Arc<Log>,
    pub timer: Option<Arc<AnyTimer>>,
}

impl Model {
    /// Ends the timer, and records the outcome if its callback takes it.
    pub fn end(&mut self, how: Outcome, now: u64) {
        if self.told {
            self.calls.push((how, now));
        }
        self.state = State::Over(how);
    }

    /// Begins the first wait. `shown` is the time on the timer's clock.
    pub fn begin(&mut self, shown: u64) {
        self.state = State::Pending;
        let wait = self.wait.min(NEVER - shown);
        self.deadline = self.given.unwrap_or(shown + wait);
        // The wait of a timer whose deadline has passed began at that deadline.
        self.begun = shown.min(self.deadline);
        self.wait = match self.recurs {
            true => wait,
            false => self.deadline.saturating_sub(shown),
        };
        self.draw();
    }

    /// Records that the runtime draws a jitter for the deadline.
    fn draw(&mut self) {
        self.offset = 0;
        self.unsure = self.jitter > 0 && self.deadline != NEVER;
    }

    /// Learns the drawn jitter from the runtime. `shown` is the time on the timer's clock.
    pub fn learn(&mut self, zeros: &Zeros, shown: u64) {
        let timer = self.timer.as_ref().expect("jittered ones are kept");
        let found = timer.deadline(zeros).expect("it waits");
        let latest = self.deadline.saturating_add(self.jitter).min(NEVER - 1);
        assert!((self.deadline..=latest).contains(&found), "jitter");
        self.offset = found - self.deadline;
        self.deadline = found;
        self.unsure = false;
        if !self.recurs {
            self.wait = found.saturating_sub(shown);
            self.begun = found.min(shown);
        }
    }

    /// Sets the deadline, without jitter.
    pub fn move_to(&mut self, deadline: u64) {
        self.deadline = deadline.min(NEVER);
        (self.offset, self.moved) = (0, true);
    }

    /// Runs the timer, which came due, at `now`.
    fn run(&mut self, now: u64) {
        if self.dead {
            return self.end(Outcome::Cancelled, now);
        }
        self.calls.push((Outcome::Fired, now));
        let acts = std::mem::replace(&mut self.acts, Acts::No);
        self.left = self.left.map(|left| left - 1);
        if !self.recurs || self.left == Some(0) {
            self.state = State::Over(Outcome::Fired);
            return;
        }
        match acts {
            // The callback cannot use a handle that was dropped.
            Acts::Cancels if self.timer.is_some() => self.end(Outcome::Cancelled, now),
            Acts::Moves(span) if self.timer.is_some() => {
                // The next wait has begun at the deadline of this run.
                self.begun = self.deadline - self.offset;
                self.move_to(now.saturating_add(span));
            }
            _ => {
                // The first moment on the grid that has not passed.
                let grid = u128::from(self.deadline - self.offset);
                let period = u128::from(self.wait.max(1));
                let missed = (u128::from(now) - grid) / period;
                let next = grid + (missed + 1) * period;
                self.deadline = next.min(u128::from(NEVER)) as u64;
                self.begun = self.deadline.saturating_sub(self.wait);
                self.draw();
            }
        }
    }

    /// Returns whether the timer is due at `now`.
    pub fn is_due(&self, offsets: &Offsets, now: u64) -> bool {
        self.state == State::Pending
            && self.deadline != NEVER
            && offsets.when(self.kind, self.deadline) <= i128::from(now)
    }

    /// Follows the runtime's clock from one moment to another, or to the same one, after all that
    /// came due has run. Takes from the log what is not specified to the nanosecond.
    pub fn pass(&mut self, zeros: &Zeros, offsets: &Offsets, from: u64, to: u64, way: Way) {
        while self.state == State::Pending {
            // A timer that was moved to a later deadline and whose value is dropped ends then or
            // before.
            let doomed = self.dead && self.moved;
            if self.deadline == NEVER && !doomed {
                return;
            }
            let due = offsets.when(self.kind, self.deadline);
            let first = match way {
                Way::Jump => to,
                Way::Glide => due.clamp(0, NEVER.into()).max(from.into()) as u64,
            };
            if !(doomed || self.unsure || self.tolerance > 0) {
                if due > i128::from(to) {
                    return;
                }
                self.run(first);
                continue;
            }
            let drawn = if self.unsure { self.jitter } else { 0 };
            let last = due + i128::from(drawn) + i128::from(self.tolerance);
            let Some(at) = self.witness(zeros, first.min(to)) else {
                let waits = last > i128::from(to) || self.deadline == NEVER;
                assert!(waits, "late: {} at {to}", self.deadline);
                if self.unsure {
                    self.learn(zeros, offsets.shown(self.kind, to));
                    continue;
                }
                return;
            };
            let (at_128, is_late) = (i128::from(at), at > first);
            assert!(at_128 >= due || doomed, "early: {at}, due at {due}");
            assert!(at >= from && at <= to);
            assert!(!is_late || at_128 <= last, "late: {at}, due at {due}");
            self.run(at);
        }
    }

    /// Returns when the timer ran next, or ended, according to its log. If the callback was
    /// dropped without a call, the log has no time, and this returns `unseen`.
    fn witness(&self, zeros: &Zeros, unseen: u64) -> Option<u64> {
        match self.log.calls(zeros).get(self.calls.len()) {
            Some(&(_, at)) => Some(at),
            None => self.log.is_dropped().then_some(unseen),
        }
    }
}
