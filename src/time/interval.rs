//! Ticks at regular intervals.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use crate::{
    clock::instant::Instant,
    time::{
        sleep,
        sleep::{Sleep, now_for, sleep_until},
    },
    util::budget,
};

/// Creates an interval that ticks every `period`. The first tick comes at once.
///
/// A period of zero counts as 1 ns. If the runtime has been shut down, ticks come at once, as
/// sleeps end at once.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::interval;
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let mut interval = interval(Duration::from_millis(1));
/// let first = interval.tick().await;
/// let second = interval.tick().await;
/// assert_eq!(second - first, Duration::from_millis(1));
/// # });
/// ```
pub fn interval(period: Duration) -> Interval {
    // The deadline of a sleep of zero is the current time of the clock that the sleep will use.
    Interval::new(sleep(Duration::ZERO), period)
}

/// Creates an interval that ticks every `period`. The first tick comes at `start`.
///
/// It is otherwise like [`interval`].
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    Interval::new(sleep_until(start), period)
}

/// A tick that is taken at most this long after it was due does not count as missed. tokio has the
/// same limit. The tolerance of the interval comes on top.
const GRACE: Duration = Duration::from_millis(5);

/// What an [`Interval`] does after a missed tick: one that is taken more than 5 ms after it was
/// due, or after the end of its [tolerance](crate::time::with_tolerance).
///
/// After a tick that is less late, the next tick is always one period after this tick was due.
///
/// The behaviors match tokio's to the nanosecond. The table shows when ticks are due, with a period
/// of 10 ms and one tick that is taken 25 ms late (at 45):
///
/// ```text
/// asked in time   10    20    30    40    50    60    70
/// Burst           10    20→45 30→45 40→45 50    60    70
/// Delay           10    20→45             55    65    75
/// Skip            10    20→45             50    60    70
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissedTickBehavior {
    /// Delivers missed ticks as fast as possible, until the interval has caught up. tokio's
    /// default.
    Burst,
    /// Continues one period after the late tick was taken.
    Delay,
    /// Skips missed ticks, and continues at multiples of the period. The default: a server that was
    /// late seldom wants to do the same work several times at once.
    #[default]
    Skip,
}

impl MissedTickBehavior {
    /// Returns when the next tick is due, after a tick that was due at `due` is taken at `now`. Up
    /// to `grace` later it does not count as missed.
    fn next(self, due: Instant, now: Instant, period: Duration, grace: Duration) -> Instant {
        let next = due.saturating_add(period);
        // A tick that is only a little late keeps the rhythm, whatever the behaviour.
        if now <= due.saturating_add(grace) {
            return next;
        }
        match self {
            Self::Burst => next,
            Self::Delay => now.saturating_add(period),
            Self::Skip => {
                let into = now.duration_since(due).as_nanos() % period.as_nanos();
                // The remainder is at most `now - due`, which fits into 64 bits.
                let into = Duration::from_nanos(into.try_into().unwrap_or(u64::MAX));
                (now - into).saturating_add(period)
            }
        }
    }
}

/// A series of ticks: see [`interval`] and [`interval_at`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTickBehavior,
    at_once: AtOnce,
}

/// Whether the next poll is ready, even if the sleep has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtOnce {
    No,
    /// It is, if the task has some of its budget left.
    InBudget,
    /// It is: the last poll was refused for want of budget. So a neighbour in a `select` that
    /// spends the budget each time cannot delay the tick for ever.
    Refused,
}

impl Interval {
    fn new(first: Sleep, period: Duration) -> Self {
        Self {
            sleep: first,
            period: period.max(Duration::from_nanos(1)),
            missed: MissedTickBehavior::default(),
            at_once: AtOnce::No,
        }
    }

    /// Waits for the next tick, and returns when it was due.
    ///
    /// # Cancel safety
    ///
    /// If this future is dropped before it is ready, no tick is lost.
    ///
    /// # Panics
    ///
    /// Panics if it has to wait outside of a runtime.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|cx| self.poll_tick(cx)).await
    }

    /// Polls for the next tick, as [`tick`](Interval::tick) does, for futures that are written by
    /// hand.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        // The tick may be due although the timer that was kept for it has not fired yet. It spends
        // the budget as a sleep that is over does.
        match std::mem::replace(&mut self.at_once, AtOnce::No) {
            AtOnce::No => ready!(Pin::new(&mut self.sleep).poll(cx)),
            AtOnce::InBudget => {
                self.at_once = AtOnce::Refused;
                ready!(budget::check(cx));
                self.at_once = AtOnce::No;
                budget::spend();
            }
            AtOnce::Refused => budget::spend(),
        }
        let (due, now) = (self.sleep.deadline(), Instant::now());
        let grace = GRACE.saturating_add(self.sleep.tolerance());
        let next = self.missed.next(due, now, self.period, grace);
        self.wait_for(next, next > now);
        Poll::Ready(due)
    }

    /// Sets the next tick to one period from now.
    ///
    /// [`MissedTickBehavior`] has no effect on a reset.
    pub fn reset(&mut self) {
        self.reset_after(self.period);
    }

    /// Makes the next tick come at once: the next poll is ready.
    pub fn reset_immediately(&mut self) {
        self.reset_after(Duration::ZERO);
    }

    /// Sets the next tick to `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        let now = now_for(after);
        let deadline = now.saturating_add(after);
        self.wait_for(deadline, deadline > now);
    }

    /// Sets the next tick to `deadline`, or to now if `deadline` has passed.
    ///
    /// Ticks that were missed before are forgotten. If `deadline` is more than 5 ms in the past,
    /// the tick counts as missed, and the [`MissedTickBehavior`] decides which tick follows it.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.wait_for(deadline, !deadline.has_passed());
    }

    /// Waits for a tick at `deadline`. `is_ahead`: the caller has read the clock, and the deadline
    /// is later.
    fn wait_for(&mut self, deadline: Instant, is_ahead: bool) {
        // A tick that is due is ready at the next poll. It needs no timer, and so no turn of the
        // worker.
        self.at_once = AtOnce::No;
        if is_ahead {
            // Keep a timer that is armed: it wakes the task that waits for the tick.
            self.sleep.set_ahead(deadline);
        } else if self.sleep.is_waiting() {
            self.at_once = AtOnce::InBudget;
            self.sleep.set_deadline(deadline);
        } else {
            self.sleep = Sleep::passed(deadline);
        }
    }

    /// Returns what the interval does after a missed tick.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.missed
    }

    /// Sets what the interval does after a missed tick.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.missed = behavior;
    }

    /// Returns the time between ticks.
    pub fn period(&self) -> Duration {
        self.period
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_follow_the_documented_table() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let next = |behavior: MissedTickBehavior, due, now| {
            behavior.next(ms(due), ms(now), Duration::from_millis(10), GRACE)
        };
        for behavior in [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ] {
            assert_eq!(next(behavior, 10, 11), ms(20), "in time: {behavior:?}");
        }
        assert_eq!(next(MissedTickBehavior::Burst, 20, 45), ms(30));
        assert_eq!(next(MissedTickBehavior::Delay, 20, 45), ms(55));
        assert_eq!(next(MissedTickBehavior::Skip, 20, 45), ms(50));
        assert_eq!(
            next(MissedTickBehavior::Skip, 20, 40),
            ms(50),
            "the tick at 40 has passed"
        );
    }

    #[test]
    fn a_tick_is_missed_when_it_is_more_than_5_ms_late() {
        let due = Instant::now();
        let in_time = due + Duration::from_millis(5);
        let late = in_time + Duration::from_nanos(1);
        for period in [1, 5, 100].map(Duration::from_millis) {
            for behavior in [
                MissedTickBehavior::Burst,
                MissedTickBehavior::Delay,
                MissedTickBehavior::Skip,
            ] {
                assert_eq!(behavior.next(due, in_time, period, GRACE), due + period);
            }
            assert_eq!(
                MissedTickBehavior::Delay.next(due, late, period, GRACE),
                late + period
            );
            assert!(MissedTickBehavior::Skip.next(due, late, period, GRACE) > late);
        }
    }

    #[test]
    fn a_tick_within_the_tolerance_is_not_missed() {
        let due = Instant::now();
        let (late, grace) = (due + Duration::from_millis(18), Duration::from_millis(20));
        let next = MissedTickBehavior::Delay.next(due, late, Duration::from_millis(100), grace);
        assert_eq!(next, due + Duration::from_millis(100));
    }

    #[test]
    fn the_first_tick_is_due_now() {
        let before = Instant::now();
        let start = interval(Duration::from_secs(1)).sleep.deadline();
        assert!(before <= start && start <= Instant::now());
    }

    #[test]
    fn infinite_periods_do_not_overflow() {
        let now = Instant::now();
        let late = now + Duration::from_secs(1);
        let next = MissedTickBehavior::Skip.next(now, late, Duration::MAX, GRACE);
        assert!(next > now + Duration::from_secs(1 << 32));
    }
}
