//! Meddlers: threads that cancel, refresh and reset timers which others armed.
//!
//! What is done to a timer is done once, by the meddler that it falls to; of those that are
//! cancelled some are reset as well, by the next meddler. So each timer is moved by one thread only,
//! which therefore knows what its deadline is by rights; cancelling races with all else.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::Duration,
};

use tourbillon::{Cancel, Reset, Timer};

use super::{arm::Books, plan::Deed};

/// How long before a timer is due one meets it, so that it comes due meanwhile.
const AHEAD: u64 = 100_000;
/// How long to wait for a late timer that is not armed at its moment, before it is let be.
const PATIENCE: u64 = 5_000_000;
/// How long a meddler waits for the next few timers.
const NAP: Duration = Duration::from_micros(200);

/// What the runtime answered to the meddlers.
#[derive(Debug, Default)]
pub(super) struct Meddled {
    pub(super) refreshed: AtomicU64,
    pub(super) reset: AtomicU64,
    pub(super) too_late: AtomicU64,
}

impl Meddled {
    fn count_reset(&self, answer: Reset, of: &AtomicU64) {
        match answer {
            Reset::Waiting | Reset::AfterRun => of.fetch_add(1, Relaxed),
            Reset::TooLate | Reset::NotStarted => self.too_late.fetch_add(1, Relaxed),
        };
    }
}

/// A way through the timers, in the order of the moments at which they are met.
#[derive(Clone, Copy)]
enum Walk {
    /// Early timers, about when they are due.
    WhenDue,
    /// Early timers, at moments that have nothing to do with their deadlines.
    AnyTime,
    /// Late timers, when they have just been armed.
    WhenArmed,
}

/// A walk, and how far it has come.
struct Walker {
    walk: Walk,
    next: u32,
    end: u32,
}

impl Walker {
    fn new(walk: Walk, books: Books) -> Self {
        let range = match walk {
            Walk::WhenDue | Walk::AnyTime => 0..books.plan.early(),
            Walk::WhenArmed => books.plan.late(),
        };
        Self {
            walk,
            next: range.start,
            end: range.end,
        }
    }

    /// The next timer, and when to meet it. `None` for an index: this walk leaves that one out.
    fn peek(&self, books: Books) -> Option<(u64, Option<u32>)> {
        if self.next == self.end {
            return None;
        }
        let plan = books.plan;
        Some(match self.walk {
            Walk::WhenDue => {
                let index = plan.at_rank(self.next);
                let moment = plan.moment(self.next).saturating_sub(AHEAD);
                (moment, plan.is_met_when_due(index).then_some(index))
            }
            Walk::AnyTime => {
                let index = self.next;
                let moment = plan.moment(index);
                (moment, (!plan.is_met_when_due(index)).then_some(index))
            }
            Walk::WhenArmed => (plan.late_arming(self.next), Some(self.next)),
        })
    }
}

/// One meddler.
struct Meddler<'a> {
    books: Books,
    number: u32,
    /// How many there are.
    of: u32,
    meddled: &'a Meddled,
}

/// Starts the meddlers, which end with the window.
pub(super) fn start<'scope, 'env>(
    scope: &'scope thread::Scope<'scope, 'env>,
    books: Books,
    meddlers: u32,
    meddled: &'env Meddled,
) -> Vec<thread::ScopedJoinHandle<'scope, ()>> {
    let threads = (0..meddlers).map(|number| {
        let meddler = Meddler {
            books,
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
        let mut walkers = walks.map(|walk| Walker::new(walk, self.books));
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

    /// Meets the timers whose moments have come; true when there are no more.
    fn walk(&self, walker: &mut Walker) -> bool {
        let now = self.books.ledger.now();
        while let Some((moment, index)) = walker.peek(self.books) {
            if moment > now {
                return false;
            }
            if let Some(deed) = index.and_then(|index| self.duty(index)) {
                match self.books.ledger.timer(deed.0) {
                    Some(timer) => self.meet(deed, timer),
                    // Its armer is behind its time.
                    None if now < moment + PATIENCE => return false,
                    None => {}
                }
            }
            walker.next += 1;
        }
        true
    }

    /// What this meddler has to do to a timer, if anything.
    fn duty(&self, index: u32) -> Option<(u32, Deed)> {
        let plan = self.books.plan;
        let owner = index % self.of;
        match plan.deed(index) {
            Deed::None => None,
            deed if owner == self.number => Some((index, deed)),
            Deed::Cancel if plan.is_contested(index) && (owner + 1) % self.of == self.number => {
                Some((index, Deed::Reset))
            }
            _ => None,
        }
    }

    fn meet(&self, (index, deed): (u32, Deed), timer: &Timer) {
        let meddled = self.meddled;
        match deed {
            Deed::None => {}
            Deed::Cancel => match timer.cancel() {
                Cancel::Cancelled => self.books.ledger.cancelled(index),
                _ => {
                    meddled.too_late.fetch_add(1, Relaxed);
                }
            },
            Deed::Refresh => {
                let (_, wait) = self.books.ledger.asked(index);
                let due = self.books.ledger.now() + wait;
                let answer = self.granted(index, due, timer.refresh());
                meddled.count_reset(answer, &meddled.refreshed);
            }
            Deed::Reset => {
                let answer = self.reset(index, timer);
                meddled.count_reset(answer, &meddled.reset);
            }
        }
    }

    /// Moves a timer: to earlier or later, by a delay from now or from when its wait began, or to a
    /// moment.
    fn reset(&self, index: u32, timer: &Timer) -> Reset {
        let Books { ledger, plan } = self.books;
        let bits = plan.bits(index, 6);
        let (due, wait) = ledger.asked(index);
        let now = ledger.now();
        // Within the window, or within the next moment, or at once.
        let delay = match bits % 8 {
            0 => 0,
            1 | 2 => (bits >> 16) % 200_000,
            _ => (bits >> 16) % (plan.end().saturating_sub(now) + 1_000_000),
        };
        match (bits >> 8) % 3 {
            0 => {
                let answer = timer.reset(Duration::from_nanos(delay));
                self.granted(index, now + delay, answer)
            }
            1 if plan.is_armed_by_delay(index) => {
                let began = due - wait;
                let wait = (now + delay).saturating_sub(began);
                let answer = timer.reset_from_start(Duration::from_nanos(wait));
                self.granted(index, began + wait, answer)
            }
            _ => {
                let answer = timer.reset_at(ledger.instant(now + delay));
                self.granted(index, now + delay, answer)
            }
        }
    }

    /// Notes what a timer's deadline is now, if it was moved.
    fn granted(&self, index: u32, due: u64, answer: Reset) -> Reset {
        if answer == Reset::Waiting {
            self.books.ledger.granted(index, due);
        }
        answer
    }
}
