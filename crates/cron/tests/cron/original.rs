//! Patterns mean what they mean to Debian's cron, whose source made the table of answers
//! (`original/run.sh`): on which days they run, and whether they are intervals.

use tourbillon_cron::{
    Cron, Schedule,
    jiff::{ToSpan, Zoned},
};

/// For each pattern, its answer: an `x` for each day on which it runs, from the first day on; or
/// whether it is an interval.
const TABLE: &str = include_str!("original/days.txt");

fn rows() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let (pattern, answer) = line.trim_end().rsplit_once(' ').unwrap();
        (pattern.trim_end(), answer)
    })
}

fn schedule(pattern: &str, zone: &str) -> Schedule {
    let cron = Cron::parse(pattern).unwrap_or_else(|error| panic!("{error}"));
    cron.time_zone(zone).unwrap().schedule()
}

#[test]
fn days_of_the_month_and_of_the_week_combine_as_in_cron() {
    let mut count = 0;
    for (pattern, days) in rows().filter(|(_, answer)| answer.starts_with(['x', '.'])) {
        let first: Zoned = "2026-01-31T00:00[UTC]".parse().unwrap();
        // With a `?` in place of a `*`, the pattern means the same.
        let (fields, weekday) = pattern.rsplit_once(' ').unwrap();
        let (fields, day) = fields.strip_suffix(" *").unwrap().rsplit_once(' ').unwrap();
        let marked = |field: &str| field.replace('*', "?");
        let (day, weekday) = (marked(day), marked(weekday));
        for pattern in [pattern, &format!("{fields} {day} * {weekday}")] {
            let schedule = schedule(pattern, "UTC");
            let shown: String = (0..days.len() as i64)
                .map(|day| {
                    let day = first.checked_add(day.days()).unwrap();
                    let before = day.checked_sub(1.second()).unwrap();
                    match schedule.next_after(before.into()) == Some(day.into()) {
                        true => 'x',
                        false => '.',
                    }
                })
                .collect();
            assert_eq!(shown, days, "{pattern}");
            count += 1;
        }
    }
    assert!(count > 200, "only {count} patterns are in the table");
}

#[test]
fn intervals_are_told_from_times_of_the_day_as_in_cron() {
    // On this day the hour from two to three does not exist, and no pattern has three o'clock.
    let before: Zoned = "2025-03-30T01:59:59[Europe/Paris]".parse().unwrap();
    let three: Zoned = "2025-03-30T03:00[Europe/Paris]".parse().unwrap();
    let mut count = 0;
    for (pattern, answer) in rows().filter(|(_, answer)| matches!(*answer, "interval" | "times")) {
        let next = schedule(pattern, "Europe/Paris").next_after(before.clone().into());
        let is_interval = next != Some(three.clone().into());
        let said = if is_interval { "interval" } else { "times" };
        assert_eq!(said, answer, "{pattern}");
        count += 1;
    }
    assert!(count > 10, "only {count} patterns are in the table");
}
