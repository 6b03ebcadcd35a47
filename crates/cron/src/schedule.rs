//! The instants that match a pattern in a time zone.
//!
//! The zone divides time into stretches with one UTC offset each. Within a stretch, local time is
//! UTC plus a constant, and the pattern alone finds the next match. [`Schedule::next_in`] decides
//! what happens at the borders between stretches.

use std::{fmt, time::SystemTime};

use jiff::{Timestamp, Zoned, tz::TimeZone};

use crate::pattern::{Local, Pattern};

/// A bound for repeated local time, in seconds. No zone repeats more than a day, so local time
/// further back than this never repeats.
const LONGEST_FOLD: i64 = 2 * 86_400;

/// A pattern in a time zone: a sequence of instants, without a callback.
///
/// The table in the [module](super) describes what happens when clocks go forward or back.
///
/// ```
/// use std::time::SystemTime;
/// use tourbillon_cron::{Cron, jiff::Zoned};
///
/// // On this day there is no half past two in Paris.
/// let from: Zoned = "2025-03-29T12:00[Europe/Paris]".parse()?;
/// let schedule = Cron::parse("30 2 * * *")?.time_zone("Europe/Paris")?.schedule();
/// let runs: Vec<_> = schedule
///     .upcoming(from.into())
///     .take(2)
///     .map(|at| schedule.zoned(at).unwrap().to_string())
///     .collect();
/// assert_eq!(runs, [
///     "2025-03-30T03:00:00+02:00[Europe/Paris]",
///     "2025-03-31T02:30:00+02:00[Europe/Paris]",
/// ]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Schedule {
    pattern: Pattern,
    tz: TimeZone,
}

/// A stretch of time with one UTC offset, in seconds since 1970. The end is exclusive.
#[derive(Clone, Copy)]
struct Stretch {
    start: i64,
    end: i64,
    offset: i64,
}

impl Stretch {
    /// Returns the local time at its end.
    fn local_end(&self) -> Local {
        self.end.saturating_add(self.offset)
    }
}

impl Schedule {
    pub(crate) fn new(pattern: Pattern, tz: TimeZone) -> Self {
        Self { pattern, tz }
    }

    /// Returns the first instant of the schedule after `from`. Instants are whole seconds.
    ///
    /// Returns `None` if no day in the next 400 years matches, which takes about a millisecond to
    /// find out, or if there is no instant before the end of the year 9999.
    pub fn next_after(&self, from: SystemTime) -> Option<SystemTime> {
        let from = Timestamp::try_from(from).ok()?.as_nanosecond();
        // The first whole second after `from`: patterns have no finer times.
        let from = from.div_euclid(1_000_000_000) + 1;
        let next = self.next(i64::try_from(from).ok()?)?;
        Some(Timestamp::from_second(next).ok()?.into())
    }

    /// Returns the instants of the schedule after `from`, in ascending order.
    pub fn upcoming(&self, from: SystemTime) -> Upcoming<'_> {
        Upcoming {
            schedule: self,
            after: Some(from),
        }
    }

    /// Returns the pattern as given.
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// Returns the time zone.
    pub fn tz(&self) -> &TimeZone {
        &self.tz
    }

    /// Converts an instant to the time zone of the schedule. Returns `None` before the year -9999
    /// and after the year 9999.
    pub fn zoned(&self, at: SystemTime) -> Option<Zoned> {
        let at = Timestamp::try_from(at).ok()?;
        Some(at.to_zoned(self.tz.clone()))
    }

    /// Returns the first matching second from `from` on.
    fn next(&self, from: i64) -> Option<i64> {
        let mut ends = self.tz.following(Timestamp::from_second(from).ok()?);
        let offset = self.tz.to_offset(Timestamp::from_second(from).ok()?);
        let (start, mut passed) = self.before(from)?;
        let mut stretch = Stretch {
            start,
            end: i64::MAX,
            offset: offset.seconds().into(),
        };
        // Visit one stretch after the other until a match is found.
        let mut known = Known::default();
        loop {
            let end = ends.next();
            stretch.end = end
                .as_ref()
                .map_or(i64::MAX, |end| end.timestamp().as_second());
            if let Some(found) = self.next_in(stretch, from, passed, &mut known)? {
                return Some(found);
            }
            passed = passed.max(stretch.local_end());
            let end = end?;
            stretch.start = stretch.end;
            stretch.offset = end.offset().seconds().into();
        }
    }

    /// Returns the start of the stretch that contains `from`, and the latest local time before it.
    fn before(&self, from: i64) -> Option<(i64, Local)> {
        let mut start = None;
        let mut passed = Local::MIN;
        // `preceding` excludes its argument, but `from` itself may be the first second of a
        // stretch.
        for change in self.tz.preceding(Timestamp::from_second(from + 1).ok()?) {
            let at = change.timestamp().as_second();
            start.get_or_insert(at);
            // The offset before the change is that of the second before it.
            let Ok(last) = Timestamp::from_second(at - 1) else {
                break;
            };
            let offset = self.tz.to_offset(last).seconds();
            passed = passed.max(at + i64::from(offset));
            if at < from - LONGEST_FOLD {
                break;
            }
        }
        Some((start.unwrap_or(i64::MIN), passed))
    }

    /// Returns the first matching second from `from` on within a stretch. The outer `None` means
    /// that there never is one. `passed` is the latest local time before the stretch.
    fn next_in(
        &self,
        stretch: Stretch,
        from: i64,
        passed: Local,
        known: &mut Known,
    ) -> Option<Option<i64>> {
        let is_start = from <= stretch.start;
        let local = from.max(stretch.start) + stretch.offset;
        let earliest = if self.pattern.is_interval() {
            // An interval follows the clocks: a repeated time matches twice, a skipped one never.
            local
        } else if is_start {
            // A time of the day matches when clocks first reach or skip it. Skipped times are due
            // at the start of the stretch, where the clocks land.
            passed
        } else {
            passed.max(local)
        };
        let found = known.next(&self.pattern, earliest)?;
        if found >= stretch.local_end() {
            return Some(None);
        }
        Some(Some((found - stretch.offset).max(stretch.start)))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schedule")
            .field("pattern", &self.pattern())
            .field("tz", &self.tz)
            .finish()
    }
}

/// The result of the last search, which is valid for the stretches up to it. A schedule that is due
/// once in many years crosses many stretches.
#[derive(Default)]
struct Known(Option<(Local, Local)>);

impl Known {
    fn next(&mut self, pattern: &Pattern, from: Local) -> Option<Local> {
        match self.0 {
            Some((since, found)) if since <= from && from <= found => Some(found),
            _ => {
                let found = pattern.next(from)?;
                self.0 = Some((from, found));
                Some(found)
            }
        }
    }
}

/// An iterator over the instants of a [`Schedule`]. See [`Schedule::upcoming`].
#[derive(Clone, Debug)]
pub struct Upcoming<'a> {
    schedule: &'a Schedule,
    after: Option<SystemTime>,
}

impl Iterator for Upcoming<'_> {
    type Item = SystemTime;

    fn next(&mut self) -> Option<SystemTime> {
        self.after = self.schedule.next_after(self.after?);
        self.after
    }
}

impl std::iter::FusedIterator for Upcoming<'_> {}
