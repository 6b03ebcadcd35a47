//! Which instants a pattern means in a time zone.
//!
//! The zone cuts the time line into stretches of one UTC offset each. Within one, local time is
//! time and a constant, and the pattern finds the next match by itself; what there is to decide is
//! what happens where two of them meet, and it is decided here, in [`Schedule::next_in`].

use std::{fmt, time::SystemTime};

use jiff::{Timestamp, Zoned, tz::TimeZone};

use super::pattern::{Local, Pattern};

/// No zone repeats more than a day; so that what lies further back than this was passed for good.
const LONGEST_FOLD: i64 = 2 * 86_400;

/// A pattern in a time zone: instants, without anything to run at them.
///
/// Which they are where clocks are put forward or back is told in the [module](super)'s table.
///
/// ```
/// use std::time::SystemTime;
/// use tourbillon::cron::{Cron, jiff::Zoned};
///
/// // The day on which there is no half past two in Paris.
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

/// A stretch of time with one offset from UTC: seconds since 1970, without its end.
#[derive(Clone, Copy)]
struct Stretch {
    start: i64,
    end: i64,
    offset: i64,
}

impl Stretch {
    /// Local time at its end, which belongs to the next one.
    fn local_end(&self) -> Local {
        self.end.saturating_add(self.offset)
    }
}

impl Schedule {
    pub(super) fn new(pattern: Pattern, tz: TimeZone) -> Self {
        Self { pattern, tz }
    }

    /// The first instant of the schedule after `from`. They are whole seconds.
    ///
    /// `None` if there is none: no such day in the 400 years after which the calendar repeats
    /// itself (which takes about a millisecond to find), or none before the end of the year 9999.
    pub fn next_after(&self, from: SystemTime) -> Option<SystemTime> {
        let from = Timestamp::try_from(from).ok()?.as_nanosecond();
        let from = from.div_euclid(1_000_000_000) + 1;
        let next = self.next(i64::try_from(from).ok()?)?;
        Some(Timestamp::from_second(next).ok()?.into())
    }

    /// The instants of the schedule after `from`, one after the other: each is later than the one
    /// before.
    pub fn upcoming(&self, from: SystemTime) -> Upcoming<'_> {
        Upcoming {
            schedule: self,
            after: Some(from),
        }
    }

    /// The pattern, as it was given.
    pub fn pattern(&self) -> &str {
        self.pattern.text()
    }

    /// The time zone.
    pub fn tz(&self) -> &TimeZone {
        &self.tz
    }

    /// An instant as clocks show it in the zone of the schedule. `None` before the year -9999 and
    /// after 9999.
    pub fn zoned(&self, at: SystemTime) -> Option<Zoned> {
        let at = Timestamp::try_from(at).ok()?;
        Some(at.to_zoned(self.tz.clone()))
    }

    /// The first second that matches, not before `from`.
    fn next(&self, from: i64) -> Option<i64> {
        let mut ends = self.tz.following(Timestamp::from_second(from).ok()?);
        let offset = self.tz.to_offset(Timestamp::from_second(from).ok()?);
        let (start, mut passed) = self.before(from)?;
        let mut stretch = Stretch {
            start,
            end: i64::MAX,
            offset: offset.seconds().into(),
        };
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

    /// Where the stretch of `from` begins, and how far local time had come until then.
    fn before(&self, from: i64) -> Option<(i64, Local)> {
        let mut start = None;
        let mut passed = Local::MIN;
        // Those before the second after, which may be the first second of a stretch.
        for change in self.tz.preceding(Timestamp::from_second(from + 1).ok()?) {
            let at = change.timestamp().as_second();
            start.get_or_insert(at);
            // The offset that ends there is the one of the second before.
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

    /// The first second that matches in a stretch, not before `from`; `None` outside if there will
    /// never be one. `passed` is how far local time had come when the stretch began.
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
            // What clocks show is what counts: twice if they show it twice, never if they do not.
            local
        } else if is_start {
            // Each local time runs when clocks come to it first, or pass it: what they leapt over
            // is due where they land.
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

/// What the last search found, which answers for the stretches that it passed over: a schedule that
/// is due once in many years crosses many.
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

/// The instants of a [`Schedule`]: see [`Schedule::upcoming`].
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
