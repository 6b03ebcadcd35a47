//! Meddlers: threads that cancel, refresh and reset timers that other threads armed.
//!
//! One meddler acts on a timer, once. Of the timers that are cancelled, some are also reset, by the
//! next meddler. So only one thread moves each timer, and it knows the timer's deadline. Cancelling
//! races with everything else.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use tourbillon::{
    Timer,
    timer::{Cancel, Reset},
};

use super::{arm::Context, plan::Action};
use crate::ledger::{Granted, Move};

/// How long before a timer's deadline a meddler acts, in ns, so that the two race.
const AHEAD: u64 = 100_000;
/// How long to wait for a late timer that is not yet armed before skipping it, in ns.
const PATIENCE: u64 = 5_000_000;
/// Sleep between two rounds of a meddler.
const NAP: Duration = Duration::from_micros(200);

/// The runtime's answers to the meddlers.
#[derive(Debug, Default)]
pub(super) struct Meddled {
    pub(super) refreshed: AtomicU64,
    pub(super) reset: AtomicU64,
    pub(super) too_late: AtomicU64,
}

impl Meddled {
    fn count_reset(&self, answer: Reset, of: &AtomicU64) {
        match answer {
            Reset::Pending | Reset::AfterRun => of.fetch_add(1, Relaxed),
            Reset::TooLate | Reset::NotStarted => self.too_late.fetch_add(1, Relaxed),
        };
    }
}

/// An order in which to visit the timers.
#[derive(Clone, Copy)]
enum Walk {
    /// Early timers, close to their deadlines.
    WhenDue,
    /// Early timers, at moments unrelated to their deadlines.
    AnyTime,
    /// Late timers, just after they were armed.
    WhenArmed,
}

/// The position in a walk.
struct Walker {
    walk: Walk,
    next: u32,
    end: u32,
}

impl Walker {
    fn new(walk: Walk, context: Context) -> Self {
        let range = match walk {
            Walk::WhenDue | Walk::AnyTime => 0..context.plan.early(),
            Walk::WhenArmed => context.plan.late(),
        };
        Self {
            walk,
            next: range.start,
            end: range.end,
        }
    }

    /// Returns the next timer and the moment to act on it. The index is `None` if this walk skips
    /// the timer.
    fn peek(&self, context: Context) -> Option<(u64, Option<u32>)> {
        if self.next == self.end {
            return None;
        }
        let plan = context.plan;
        Some(match self.walk {
            Walk::WhenDue => {
                let index = plan.at_rank(self.next);
                let moment = plan.moment(self.next).saturating_sub(AHEAD);
                (moment, plan.acts_when_due(index).then_some(index))
            }
            Walk::AnyTime => {
                let index = self.next;
                let moment = plan.moment(index);
                (moment, (!plan.acts_when_due(index)).then_some(index))
            }
            Walk::WhenArmed => (plan.late_arming(self.next), Some(self.next)),
        })
    }
}

/// One meddler.
struct Meddler<'a> {
    context: Context,
    number: u32,
    /// Number of meddlers.
    of: u32,
    meddled: &'a Meddled,
}

/// Starts the meddlers. They end with the window.
pub(super) fn start<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    context: Context,
    meddlers: u32,
    meddled: &'env Meddled,
) -> Vec<thread::ScopedJoinHandle<'scope, ()>> {
    let threads = (0..meddlers).map(|number| {
        let meddler = Meddler {
            context,
            number,
            of: meddlers,
            meddled,
        };
        scope.spawn(move || meddler.run())
    });
    threads.collect()
}

impl Meddler<'_> {
    fn run(&self) {
        let walks = [Walk::WhenDue, Walk::AnyTime, Walk::WhenArmed];
        let mut walkers = walks.map(|walk| Walker::new(walk, self.context));
        loop {
            let mut done = true;
            for walker in &mut walkers {
                done &= self.walk(walker);
            }
            if done {
                return;
            }
            thread::sleep(NAP);
        }
    }

    /// Acts on the timers whose moments have come. Returns `true` at the end of the walk.
    fn walk(&self, walker: &mut Walker) -> bool {
        let now = self.context.ledger.clock.now();
        while let Some((moment, index)) = walker.peek(self.context) {
            if moment > now {
                return false;
            }
            // Other meddlers visit this timer, too; only one of them has to act on it.
            if let Some(action) = index.and_then(|index| self.action(index)) {
                match self.context.ledger.timer(action.0) {
                    Some(timer) => self.act(action, timer),
                    // The thread that arms it is behind schedule.
                    None if now < moment + PATIENCE => return false,
                    None => {}
                }
            }
            walker.next += 1;
        }
        true
    }

    /// Returns the action that this meddler has to take on a timer, if any.
    fn action(&self, index: u32) -> Option<(u32, Action)> {
        let plan = self.context.plan;
        let owner = index % self.of;
        match plan.action(index) {
            Action::None => None,
            action if owner == self.number => Some((index, action)),
            Action::Cancel if plan.is_contested(index) && (owner + 1) % self.of == self.number => {
                Some((index, Action::Reset))
            }
            _ => None,
        }
    }

    fn act(&self, (index, action): (u32, Action), timer: &Timer) {
        let meddled = self.meddled;
        match action {
            Action::None => {}
            Action::Cancel => match timer.cancel() {
                Cancel::Cancelled => self.context.ledger.cancelled(index),
                _ => {
                    meddled.too_late.fetch_add(1, Relaxed);
                }
            },
            Action::Refresh => self.make(Move::Refresh, index, timer, &meddled.refreshed),
            Action::Reset => self.make(self.reset(index), index, timer, &meddled.reset),
        }
    }

    /// Returns how to reset a timer, to an earlier or a later deadline: by a delay from now, by a
    /// delay from the start of its wait, or to an instant.
    fn reset(&self, index: u32) -> Move {
        let Context { ledger, plan } = self.context;
        let bits = plan.bits(index, 6);
        let now = ledger.clock.now();
        // At once, within 0.2 ms, or within the window.
        let delay = match bits % 8 {
            0 => 0,
            1 | 2 => (bits >> 16) % 200_000,
            _ => (bits >> 16) % (plan.end().saturating_sub(now) + 1_000_000),
        };
        let Granted { due, wait } = ledger.granted(index);
        match ((bits >> 8) % 3, wait) {
            (0, _) => Move::After(delay),
            (1, Some(wait)) => Move::FromStart((now + delay).saturating_sub(due - wait)),
            _ => Move::At(now + delay),
        }
    }

    /// Moves a timer, and records the new deadline if the runtime has granted it. Counts the answer
    /// as one of the moved timers, or as too late.
    fn make(&self, by: Move, index: u32, timer: &Timer, moved: &AtomicU64) {
        let ledger = self.context.ledger;
        let (answer, granted) = ledger.granted(index).moved(timer, by, ledger.clock);
        if answer == Reset::Pending {
            ledger.grant(index, granted);
        }
        self.meddled.count_reset(answer, moved);
    }
}
