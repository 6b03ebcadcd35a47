//! Counts times again that were counted from a clock which has been put back since.
//!
//! A store remembers for each time that it counted what its clock showed then. If the clock shows
//! an earlier time now, it was ahead, and so is the time of the job. `DESIGN.md` has the rules.

use std::time::Duration;

use crate::job::{Repeat, Time};

/// How far the clock may be put back without an effect on the jobs: as with cron, three hours. If
/// the clock is put back by less, no occurrence runs again that has run.
pub(crate) const ALLOWANCE: Duration = Duration::from_secs(3 * 3600);

/// The start of 2025. A clock that shows an earlier time has not been set yet, as after the loss of
/// a battery. What was counted from such a clock would run early when the clock is set.
pub(crate) const UNSET: Time = Time::from_micros(1_735_689_600_000_000);

/// Returns the latest time from which a job may have been counted. `None` if the clock has not been
/// set, so that nothing can be counted again from it.
pub(crate) fn latest(now: Time) -> Option<Time> {
    (now >= UNSET).then(|| now.after(ALLOWANCE))
}

/// A job whose time was counted.
pub(crate) struct Counted {
    pub(crate) key: String,
    pub(crate) at: Time,
    /// What the clock showed when `at` was counted.
    pub(crate) counted: Time,
    /// How many attempts have begun.
    pub(crate) attempts: u32,
    pub(crate) repeat: Option<Repeat>,
}

impl Counted {
    /// Returns the time of the job, counted from `now`, and from when it was counted. This is
    /// `None` if it cannot be counted again.
    pub(crate) fn again(&self, now: Time) -> (Time, Option<Time>) {
        if self.at < self.counted {
            // A program that knows only earlier tables has changed the time.
            return (self.at, None);
        }
        let occurrence = self.repeat.as_ref().filter(|repeat| {
            let before = Time::from_micros(self.at.as_micros().saturating_sub(1));
            self.attempts == 0 && repeat.next_after(before) == Some(self.at)
        });
        match occurrence {
            Some(repeat) => match repeat.next_after(now) {
                Some(next) => (next, Some(now)),
                None => (self.at, None),
            },
            // The wait for another attempt, or the delay that a client asked for.
            None => (now.after(self.at.since(self.counted)), Some(now)),
        }
    }
}

/// Returns the moment after which the next occurrence of a job is, when a run ends that was planned
/// for `at`.
pub(crate) fn after_run(at: Time, now: Time) -> Time {
    // The store's clock may be a little behind what it showed before the run. If it is far behind,
    // it was put back meanwhile, and `at` is of the clock that was wrong.
    match at > now.after(ALLOWANCE) {
        true => now,
        false => at.max(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;
    const DAY: i64 = 24 * 3600 * SECOND;
    /// 2026-11-28 00:00 and 2099-01-01 00:00.
    const NOW: Time = Time::from_micros(20_785 * DAY);
    const FUTURE: Time = Time::from_micros(47_117 * DAY);

    fn job(at: Time, attempts: u32, pattern: Option<&str>) -> Counted {
        Counted {
            key: "job".into(),
            at,
            counted: FUTURE,
            attempts,
            repeat: pattern.map(|pattern| Repeat::parse(pattern, "UTC").unwrap()),
        }
    }

    fn later(time: Time, micros: i64) -> Time {
        Time::from_micros(time.as_micros() + micros)
    }

    #[test]
    fn an_occurrence_is_the_next_of_now() {
        let daily = job(later(FUTURE, 9 * 3600 * SECOND), 0, Some("0 9 * * *"));
        let next = later(NOW, 9 * 3600 * SECOND);
        assert_eq!(daily.again(NOW), (next, Some(NOW)));
        assert_eq!(daily.again(next), (later(next, DAY), Some(next)));
    }

    #[test]
    fn a_delay_is_counted_from_now() {
        let wait = 7 * SECOND + 1;
        let again = (later(NOW, wait), Some(NOW));
        // A job, the wait before an attempt of a cron job, and a cron job that a client has moved.
        for (attempts, pattern) in [(0, None), (1, Some("* * * * * *")), (0, Some("0 9 * * *"))] {
            let job = job(later(FUTURE, wait), attempts, pattern);
            assert_eq!(job.again(NOW), again);
        }
        assert_eq!(job(FUTURE, 1, None).again(NOW), (NOW, Some(NOW)));
    }

    #[test]
    fn what_cannot_be_counted_stays() {
        let leap = Repeat::parse("0 0 30 2 *", "UTC");
        assert!(leap.is_err() || leap.is_ok_and(|never| never.next_after(NOW).is_none()));
        let changed = job(NOW, 0, None);
        assert_eq!(changed.again(later(NOW, SECOND)), (NOW, None));
    }

    #[test]
    fn a_run_of_a_clock_that_was_put_back_is_not_waited_for() {
        assert_eq!(after_run(NOW, later(NOW, SECOND)), later(NOW, SECOND));
        let before = later(NOW, -3600 * SECOND);
        assert_eq!(after_run(NOW, before), NOW);
        assert_eq!(after_run(FUTURE, NOW), NOW);
    }

    #[test]
    fn a_clock_that_is_not_set_counts_nothing() {
        assert_eq!(latest(NOW), Some(later(NOW, 3 * 3600 * SECOND)));
        assert_eq!(latest(Time::from_micros(0)), None);
    }
}
