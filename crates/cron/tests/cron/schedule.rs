//! Schedules: an example for each rule about clocks, and patterns that never match.

use std::time::{Duration, Instant, SystemTime};

use tourbillon_cron::{
    Cron, CronError,
    jiff::{
        SignedDuration, Timestamp, Zoned,
        tz::{Offset, TimeZone},
    },
};

/// Returns the next `count` instants of a pattern after `from`, in local time.
fn after(pattern: &str, from: &str, count: usize) -> Vec<String> {
    let from: Zoned = from.parse().unwrap();
    let cron = Cron::parse(pattern).unwrap().tz(from.time_zone().clone());
    let schedule = cron.schedule();
    let upcoming = schedule.upcoming(from.into()).take(count);
    let shown = upcoming.map(|at| schedule.zoned(at).unwrap());
    shown
        .map(|at| at.strftime("%m-%d %H:%M:%S%:z").to_string())
        .collect()
}

#[test]
fn a_skipped_time_of_day_runs_after_the_gap() {
    assert_eq!(
        after("30 2 * * *", "2025-03-29T00:00[Europe/Paris]", 3),
        [
            "03-29 02:30:00+01:00",
            "03-30 03:00:00+02:00",
            "03-31 02:30:00+02:00"
        ]
    );
    // A pattern may have several times. All of its times in the gap together run once.
    assert_eq!(
        after("0 2,14 * * *", "2025-03-29T20:00[Europe/Paris]", 2),
        ["03-30 03:00:00+02:00", "03-30 14:00:00+02:00"]
    );
    assert_eq!(
        after("0,20,40 2 * * *", "2025-03-29T20:00[Europe/Paris]", 2),
        ["03-30 03:00:00+02:00", "03-31 02:00:00+02:00"]
    );
    // A time in the gap and a time at its end together run once.
    assert_eq!(
        after("0 2,3 * * *", "2025-03-29T20:00[Europe/Paris]", 2),
        ["03-30 03:00:00+02:00", "03-31 02:00:00+02:00"]
    );
    // A gap may be half an hour long.
    assert_eq!(
        after("15 2 * * *", "2025-10-04T20:00[Australia/Lord_Howe]", 2),
        ["10-05 02:30:00+11:00", "10-06 02:15:00+11:00"]
    );
    // A day may begin at one o'clock. Times before and after the gap are as on other days.
    assert_eq!(
        after(
            "0,30 0,1,23 * * *",
            "2017-10-14T22:00[America/Sao_Paulo]",
            4
        ),
        [
            "10-14 23:00:00-03:00",
            "10-14 23:30:00-03:00",
            "10-15 01:00:00-02:00",
            "10-15 01:30:00-02:00"
        ]
    );
}

#[test]
fn a_gap_may_end_on_another_day_and_last_for_one() {
    // Saturday's last hour does not exist, so Saturday's job runs as Sunday begins.
    assert_eq!(
        after("30 23 * * SAT", "2025-03-29T12:00[America/Nuuk]", 2),
        ["03-30 00:00:00-01:00", "04-05 23:30:00-01:00"]
    );
    // Samoa left out the 30th of December 2011.
    assert_eq!(
        after("0 9 * * *", "2011-12-29T00:00[Pacific/Apia]", 3),
        [
            "12-29 09:00:00-10:00",
            "12-31 00:00:00+14:00",
            "12-31 09:00:00+14:00"
        ]
    );
}

#[test]
fn a_repeated_time_of_day_runs_the_first_time_only() {
    assert_eq!(
        after("30 2 * * *", "2025-10-26T00:00[Europe/Paris]", 2),
        ["10-26 02:30:00+02:00", "10-27 02:30:00+01:00"]
    );
    assert_eq!(
        after("0,30 2,3 * * *", "2025-10-26T00:00[Europe/Paris]", 5),
        [
            "10-26 02:00:00+02:00",
            "10-26 02:30:00+02:00",
            "10-26 03:00:00+01:00",
            "10-26 03:30:00+01:00",
            "10-27 02:00:00+01:00"
        ]
    );
    // During the repetition of the hour, the time of day is already over.
    assert_eq!(
        after("30 2 * * *", "2025-10-26T02:10+01:00[Europe/Paris]", 1),
        ["10-27 02:30:00+01:00"]
    );
}

#[test]
fn interval_patterns_follow_the_wall_clock() {
    assert_eq!(
        after("0 * * * *", "2025-03-30T00:30[Europe/Paris]", 3),
        [
            "03-30 01:00:00+01:00",
            "03-30 03:00:00+02:00",
            "03-30 04:00:00+02:00"
        ]
    );
    for hourly in ["0 * * * *", "0 0-23 * * *"] {
        assert_eq!(
            after(hourly, "2025-10-26T01:30[Europe/Paris]", 3),
            [
                "10-26 02:00:00+02:00",
                "10-26 02:00:00+01:00",
                "10-26 03:00:00+01:00"
            ]
        );
    }
    assert_eq!(
        after("*/30 * * * *", "2025-10-26T02:10+02:00[Europe/Paris]", 3),
        [
            "10-26 02:30:00+02:00",
            "10-26 02:00:00+01:00",
            "10-26 02:30:00+01:00"
        ]
    );
    // Clocks that go back by half an hour.
    assert_eq!(
        after(
            "*/15 * * * *",
            "2025-04-06T01:40+11:00[Australia/Lord_Howe]",
            3
        ),
        [
            "04-06 01:45:00+11:00",
            "04-06 01:30:00+10:30",
            "04-06 01:45:00+10:30"
        ]
    );
    // A `*` in the minute makes the pattern an interval. It does not run in an hour that does not
    // exist, and it runs in both of two repeated hours.
    assert_eq!(
        after("*/30 2 * * *", "2025-03-29T20:00[Europe/Paris]", 1),
        ["03-31 02:00:00+02:00"]
    );
    assert_eq!(
        after("*/30 2 * * *", "2025-10-26T00:00[Europe/Paris]", 4).len(),
        4
    );
}

#[test]
fn days_are_those_of_the_calendar() {
    let days = |pattern: &str, count| {
        let days = after(pattern, "2024-01-31T12:00[UTC]", count);
        days.iter()
            .map(|day| day[..5].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(days("0 0 L * *", 3), ["02-29", "03-31", "04-30"]);
    assert_eq!(days("0 0 LW * *", 3), ["02-29", "03-29", "04-30"]);
    // The 15th of June is a Saturday, so Friday is nearest. The 15th of September is a Sunday, so
    // Monday is nearest.
    assert_eq!(days("0 0 15W 6,9 *", 2), ["06-14", "09-16"]);
    // The first of a month is never moved into the one before.
    assert_eq!(days("0 0 1W 6,9 *", 2), ["06-03", "09-02"]);
    assert_eq!(days("0 0 * * FRI#2", 2), ["02-09", "03-08"]);
    assert_eq!(days("0 0 * * FRI#5", 2), ["03-29", "05-31"]);
    assert_eq!(days("0 0 * * FRIL", 2), ["02-23", "03-29"]);
    assert_eq!(days("0 0 * * 7", 2), ["02-04", "02-11"]);
    assert_eq!(days("0 0 * * SAT-SUN", 3), ["02-03", "02-04", "02-10"]);
    // Either field is enough. With `+`, both have to match.
    assert_eq!(days("0 0 13 * FRI", 3), ["02-02", "02-09", "02-13"]);
    assert_eq!(days("0 0 13 * +FRI", 2), ["09-13", "12-13"]);
}

#[test]
fn leap_days_may_be_far_apart() {
    assert_eq!(
        after("0 0 29 2 *", "2096-03-01T00:00[Europe/Paris]", 1),
        ["02-29 00:00:00+01:00"]
    );
    // A leap day that is a Monday: 2072, 2112.
    let from: Zoned = "2072-03-01T00:00[Europe/Paris]".parse().unwrap();
    let cron = Cron::parse("0 0 29 2 +MON").unwrap();
    let schedule = cron.tz(from.time_zone().clone()).schedule();
    let next = schedule.next_after(from.into()).unwrap();
    assert_eq!(schedule.zoned(next).unwrap().year(), 2112);
}

#[test]
fn a_pattern_that_never_matches_is_detected_quickly() {
    let begun = Instant::now();
    for never in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 8 * +FRI#1"] {
        for name in ["UTC", "Europe/Paris"] {
            let cron = Cron::parse(never).unwrap().time_zone(name).unwrap();
            assert_eq!(
                cron.schedule().next_after(SystemTime::now()),
                None,
                "{never}"
            );
        }
    }
    // A debug build takes some 50 ms for these six; a search by seconds would take hours.
    assert!(begun.elapsed() < Duration::from_secs(300));
}

#[test]
fn each_occurrence_is_later_than_the_last_and_than_now() {
    let schedule = Cron::parse("* * * * * *").unwrap().schedule();
    let second = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let nano = Duration::from_nanos(1);
    assert_eq!(schedule.next_after(SystemTime::UNIX_EPOCH), Some(second));
    assert_eq!(schedule.next_after(second - nano), Some(second));
    assert_eq!(
        schedule.next_after(second + nano),
        Some(second + Duration::from_secs(1))
    );
    // Instants before 1970 work, too.
    assert_eq!(
        schedule.next_after(SystemTime::UNIX_EPOCH - nano),
        Some(SystemTime::UNIX_EPOCH)
    );
    // Nothing occurs after the end of the calendar.
    let last = SystemTime::from(Timestamp::MAX);
    assert_eq!(schedule.next_after(last), None);
    assert_eq!(schedule.next_after(last + Duration::from_secs(1)), None);
    let near = last - Duration::from_secs(3);
    assert!(schedule.upcoming(near).count() <= 4, "the iterator ends");
    // In this zone, the calendar's first day begins before the first instant. It matches like any
    // other day.
    let first = Timestamp::MIN + SignedDuration::from_secs(1);
    let before_utc = TimeZone::fixed(Offset::constant(-12));
    for pattern in ["0 0 1 1 *", "* * * * * *"] {
        let schedule = Cron::parse(pattern).unwrap().tz(before_utc.clone());
        let next = schedule.schedule().next_after(first.into());
        assert!(next.is_some(), "{pattern}");
    }
}

#[test]
fn time_zones_are_found_by_name() {
    let cron = Cron::parse("@daily").unwrap();
    for name in ["Europe/Paris", "europe/paris", "UTC"] {
        assert!(cron.clone().time_zone(name).is_ok(), "{name}");
    }
    for name in ["", "Europe/Pari", "Mars/Olympus", "+02:00"] {
        let error = cron.clone().time_zone(name).unwrap_err();
        assert_eq!(
            error,
            CronError::TimeZone {
                name: name.to_owned()
            }
        );
        assert!(error.to_string().contains("Europe/Paris"));
    }
    assert_eq!(cron.schedule().tz(), &TimeZone::UTC, "unless one is given");
}
