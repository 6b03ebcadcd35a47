//! The model of one timer: that of `testing/model`, and what the runtime adds to it.

use std::sync::Arc;

use tourbillon_model::{self as model, State};
use tourbillon_shards::{NEVER, Outcome};

use super::{
    clocks::{Kind, Offsets, Zeros},
    timer::{AnyTimer, Log},
};

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
    /// The timer on its clock. While `unsure`, its deadline is without the jitter.
    pub model: model::Timer,
    pub kind: Kind,
    pub skips: bool,
    pub name: Option<usize>,
    pub tolerance: u64,
    pub jitter: u64,
    /// The number of runs that are left, if it is bounded.
    pub left: Option<u64>,
    /// What the callback does to its timer in the first run.
    pub acts: Acts,
    /// Whether the runtime has drawn a jitter that the model does not know yet.
    pub unsure: bool,
    pub alive: Option<Arc<()>>,
    pub dead: bool,
    pub calls: Vec<(Outcome, u64)>,

    pub log: Arc<Log>,
    pub timer: Option<Arc<AnyTimer>>,
}

impl Model {
    /// Ends the timer, and records the outcome if its callback takes it.
    pub fn end(&mut self, how: Outcome, now: u64) {
        self.model.end(how);
        self.tell(now);
    }

    /// Records the outcome that the callback takes, if it has yet to.
    pub fn tell(&mut self, now: u64) {
        let told = self.model.tell();
        self.calls.extend(told.map(|how| (how, now)));
    }

    pub fn is_pending(&self) -> bool {
        matches!(self.model.state, State::Pending(_))
    }

    pub fn deadline(&self) -> u64 {
        self.model.deadline().expect("it waits")
    }

    /// Begins the first wait. `shown` is the time on the timer's clock.
    pub fn begin(&mut self, shown: u64) {
        self.model.start(shown, &mut model::exact);
        self.draw();
    }

    /// Records that the runtime draws a jitter for the deadline.
    fn draw(&mut self) {
        self.unsure = self.jitter > 0 && self.deadline() != NEVER;
    }

    /// Learns the drawn jitter from the runtime. `shown` is the time on the timer's clock.
    pub fn learn(&mut self, zeros: &Zeros, shown: u64) {
        let timer = self.timer.as_ref().expect("jittered ones are kept");
        let found = timer.deadline(zeros).expect("it waits");
        let exact = self.deadline();
        let latest = exact.saturating_add(self.jitter).min(NEVER - 1);
        assert!((exact..=latest).contains(&found), "jitter");
        self.model.offset = found - exact;
        self.model.state = State::Pending(found);
        self.unsure = false;
        if !self.model.recurs {
            self.model.wait = found.saturating_sub(shown);
            self.model.begun = found.min(shown) as i64;
        }
    }

    /// Runs the timer, which came due, at `now`.
    fn run(&mut self, now: u64) {
        if self.dead {
            return self.end(Outcome::Cancelled, now);
        }
        self.calls.push((Outcome::Fired, now));
        let acts = std::mem::replace(&mut self.acts, Acts::No);
        self.left = self.left.map(|left| left - 1);
        self.model.take();
        self.model.run();
        if self.left == Some(0) {
            self.model.state = State::Over(Outcome::Fired);
            return;
        }
        // The callback cannot use a handle that was dropped.
        match acts {
            Acts::Cancels if self.timer.is_some() => drop(self.model.cancel()),
            Acts::Moves(span) if self.timer.is_some() => {
                self.model.reset_at(now.saturating_add(span));
            }
            _ => {}
        }
        let draws = matches!(self.model.state, State::Running(_, None));
        self.model.has_run(now, &mut model::exact);
        match self.model.state {
            State::Over(Outcome::Cancelled) if self.model.told => {
                self.calls.push((Outcome::Cancelled, now));
            }
            State::Pending(_) if draws => self.draw(),
            _ => {}
        }
    }

    /// Returns whether the timer is due at `now`.
    pub fn is_due(&self, offsets: &Offsets, now: u64) -> bool {
        let is_due = |at| at != NEVER && offsets.when(self.kind, at) <= i128::from(now);
        matches!(self.model.state, State::Pending(at) if is_due(at))
    }

    /// Follows the runtime's clock from one moment to another, or to the same one, after all that
    /// came due has run. Takes from the log what is not specified to the nanosecond.
    pub fn pass(&mut self, zeros: &Zeros, offsets: &Offsets, from: u64, to: u64, way: Way) {
        while let State::Pending(deadline) = self.model.state {
            // A timer that was moved to a later deadline and whose value is dropped ends then or
            // before.
            let doomed = self.dead && self.model.moved;
            if deadline == NEVER && !doomed {
                return;
            }
            let due = offsets.when(self.kind, deadline);
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
                let waits = last > i128::from(to) || deadline == NEVER;
                assert!(waits, "late: {deadline} at {to}");
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
