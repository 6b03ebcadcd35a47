//! Fuzzes cron patterns in time zones, against [a second implementation](crate::fields) of the
//! fields.
//!
//! The input is text: a line with the name of a zone, a line with the second to start from (since
//! 1970), and the pattern.

use std::{fmt::Write, time::SystemTime};

use tourbillon_cron::{
    Cron, CronError, Schedule,
    jiff::{Timestamp, civil::DateTime, tz::Offset},
};

use crate::fields::Fields;

#[path = "../../../examples/cron_jobs/job.rs"]
mod job;

const DAY: i64 = 86_400;
/// Number of instants to check.
const COUNT: usize = 6;
/// Number of seconds to check one by one, at each end of a wait.
const NEAR: i64 = 600;

pub fn run(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let mut line = || lines.next().unwrap_or_default();
    let (zone, start, pattern) = (line(), line(), line());
    check_job(pattern, zone);
    let cron = match Cron::parse(pattern) {
        Ok(cron) => cron,
        Err(error) => return check_error(&error, pattern),
    };
    let cron = match cron.time_zone(zone) {
        Ok(cron) => cron,
        Err(error) => {
            assert!(matches!(&error, CronError::TimeZone { name } if name == zone));
            return;
        }
    };
    let schedule = cron.schedule();
    assert_eq!(schedule.pattern(), pattern);
    check(&schedule, Fields::parse(pattern).as_ref(), second(start));
}

/// Parses the start, and limits it to the calendar. A line that is not a number gives 0.
fn second(line: &str) -> i64 {
    let (first, last) = (
        Timestamp::MIN.as_second() + DAY,
        Timestamp::MAX.as_second() - DAY,
    );
    line.trim().parse().unwrap_or(0_i64).clamp(first, last)
}

fn check_error(error: &CronError, given: &str) {
    let mut said = String::new();
    write!(said, "{error}").expect("it is text");
    let CronError::Pattern {
        pattern, reason, ..
    } = error
    else {
        panic!("{given:?} is refused as something else: {error:?}");
    };
    assert_eq!(pattern, given);
    assert!(!reason.is_empty() && said.contains(&**reason));
}

/// Parses a job as the example `cron_jobs` does. An error must point to a part of the text.
fn check_job(pattern: &str, zone: &str) {
    for text in [
        pattern.to_owned(),
        format!("TZ={zone} {pattern} -- echo"),
        format!("{pattern} -- "),
    ] {
        match job::Job::parse(&text, zone) {
            Ok(job) => {
                assert!(!job.command.is_empty());
                assert!(job.cron.schedule().zoned(SystemTime::UNIX_EPOCH).is_some());
            }
            Err(bad) => assert!(bad.to_string().contains(&*text)),
        }
    }
}

fn at(second: i64) -> SystemTime {
    let at = Timestamp::from_second(second);
    at.expect("it is in the calendar").into()
}

fn second_of(at: SystemTime) -> i64 {
    let at = Timestamp::try_from(at).expect("it is in the calendar");
    assert_eq!(at.subsec_nanosecond(), 0, "a whole second");
    at.as_second()
}

fn check(schedule: &Schedule, fields: Option<&Fields>, start: i64) {
    let mut after = start;
    for _ in 0..COUNT {
        let Some(next) = schedule.next_after(at(after)) else {
            if let Some(fields) = fields {
                check_never(schedule, fields, after);
            }
            return;
        };
        let next = second_of(next);
        assert!(next > after, "{schedule:?}: {next} after {after}");
        // The answer must be the same from any second in between.
        let mut between = vec![next - 1, after + (next - after) / 2];
        // Above all, check near changes of the clock.
        let since = Timestamp::from_second(after).expect("it is in the calendar");
        for change in schedule.tz().following(since).take(2) {
            let change = change.timestamp().as_second();
            between.extend([change - 1, change, change + 600]);
        }
        between.retain(|from| (after..next).contains(from));
        for from in between {
            let same = schedule.next_after(at(from)).map(second_of);
            assert_eq!(same, Some(next), "{schedule:?} after {from}");
        }
        if let Some(fields) = fields {
            check_matches(schedule, fields, next);
            check_none_between(schedule, fields, after, next);
        }
        after = next;
    }
    let upcoming: Vec<_> = schedule.upcoming(at(start)).take(COUNT).collect();
    assert_eq!(upcoming.last().copied().map(second_of), Some(after));
}

/// Returns the local time in the zone.
fn shown(schedule: &Schedule, second: i64) -> DateTime {
    let at = Timestamp::from_second(second).expect("it is in the calendar");
    schedule.tz().to_offset(at).to_datetime(at)
}

fn offset(schedule: &Schedule, second: i64) -> i32 {
    let at = Timestamp::from_second(second).expect("it is in the calendar");
    schedule.tz().to_offset(at).seconds()
}

/// Checks that the local time matches, or that the clock was just set forward past a matching time.
fn check_matches(schedule: &Schedule, fields: &Fields, second: i64) {
    if !fields.is_interval {
        check_first_time(schedule, second);
    }
    if fields.matches(shown(schedule, second)) {
        return;
    }
    let (before, now) = (offset(schedule, second - 1), offset(schedule, second));
    assert!(
        !fields.is_interval && before < now,
        "{schedule:?} does not mean {}",
        shown(schedule, second)
    );
    let leapt = (second + i64::from(before)..second + i64::from(now)).map(|local| {
        let local = Timestamp::from_second(local).expect("it is in the calendar");
        Offset::UTC.to_datetime(local)
    });
    assert!(leapt.into_iter().any(|local| fields.matches(local)));
}

/// Checks that this local time occurs for the first time: after the clock was set back, a time of
/// day must not run again.
fn check_first_time(schedule: &Schedule, second: i64) {
    let local = second + i64::from(offset(schedule, second));
    let next = Timestamp::from_second(second + 1).expect("it is in the calendar");
    let changes = schedule.tz().preceding(next);
    let changes = changes.map(|change| change.timestamp().as_second());
    for change in changes.take_while(|&change| change > second - 2 * DAY) {
        let passed = change + i64::from(offset(schedule, change - 1));
        assert!(passed <= local, "{schedule:?}: {second} is shown again");
    }
}

/// Checks that no matching local time was left out, among the seconds near both ends.
fn check_none_between(schedule: &Schedule, fields: &Fields, after: i64, next: i64) {
    if !fields.is_interval {
        // The second occurrence of a repeated time is left out, rightly.
        let since = Timestamp::from_second(after).expect("it is in the calendar");
        let change = schedule.tz().preceding(since).next();
        if change.is_some_and(|change| change.timestamp().as_second() > after - 2 * DAY) {
            return;
        }
    }
    let mut offset_before = None;
    let near = (after + 1..next.min(after + NEAR)).chain((after + 1).max(next - NEAR)..next);
    for second in near {
        let offset = offset(schedule, second);
        if !fields.is_interval && offset_before.is_some_and(|before| offset < before) {
            return;
        }
        offset_before = Some(offset);
        assert!(
            !fields.matches(shown(schedule, second)),
            "{schedule:?} leaves out {} after {after}, and says {next}",
            shown(schedule, second)
        );
    }
}

/// Checks that no matching date exists within a cycle of the calendar, or up to its end.
fn check_never(schedule: &Schedule, fields: &Fields, after: i64) {
    let last = Timestamp::MAX.as_second() - 2 * DAY;
    for day in 1..=146_097 {
        let second = after + day * DAY;
        if second > last {
            return;
        }
        let at = shown(schedule, second);
        assert!(
            !fields.is_date(at),
            "{schedule:?} is said to be never: {at}"
        );
    }
}
