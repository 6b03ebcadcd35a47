//! Schedules agree with an oracle that scans each minute (or second) of local time and matches
//! fields by its own code: hundreds of random patterns, in all kinds of zones.

use std::{ops::Range, time::SystemTime};

use tourbillon_cron::{
    Cron,
    jiff::{
        Timestamp,
        civil::{Date, date},
        tz::{AmbiguousOffset, Offset, TimeZone},
    },
};

use tourbillon_support::Random;

const DAY: i64 = 86_400;

/// A time, in seconds, that is longer than any offset of local time from UTC.
const MARGIN: i64 = 30 * 3600;

/// A field's text, and the values that it stands for.
struct Field {
    text: String,
    values: Vec<bool>,
}

impl Field {
    /// Returns whether the field counts as a `*`: cron looks only at its first character.
    fn is_star(&self) -> bool {
        self.text.starts_with('*')
    }

    /// Returns a random field: one of the values in `range`, a range of them, a list, a step, both
    /// of these, or all.
    fn random(random: &mut Random, range: Range<u64>) -> Self {
        let mut values = vec![false; range.end as usize];
        let count = range.end - range.start;
        let one = |random: &mut Random| range.start + random.below(count);
        let text = match random.below(10) {
            0 | 1 => {
                values[range.start as usize..].fill(true);
                "*".to_owned()
            }
            2 => {
                let step = 1 + random.below(count / 2);
                for value in range.clone().step_by(step as usize) {
                    values[value as usize] = true;
                }
                format!("*/{step}")
            }
            3 => {
                let (a, b) = (one(random), one(random));
                let (a, b) = (a.min(b), a.max(b));
                let step = 1 + random.below(4.min(count - 1));
                for value in (a..=b).step_by(step as usize) {
                    values[value as usize] = true;
                }
                format!("{a}-{b}/{step}")
            }
            4 | 5 => {
                // A list with a step, which begins with a `*` or does not.
                let step = 1 + random.below(count / 2);
                let other = one(random);
                for value in range.clone().step_by(step as usize).chain([other]) {
                    values[value as usize] = true;
                }
                match random.below(2) {
                    0 => format!("*/{step},{other}"),
                    _ => format!("{other},*/{step}"),
                }
            }
            6 | 7 => {
                let list: Vec<u64> = (0..1 + random.below(4)).map(|_| one(random)).collect();
                for &value in &list {
                    values[value as usize] = true;
                }
                let list: Vec<String> = list.iter().map(u64::to_string).collect();
                list.join(",")
            }
            _ => {
                let value = one(random);
                values[value as usize] = true;
                value.to_string()
            }
        };
        Self { text, values }
    }

    fn is(text: &str, range: Range<u64>) -> Self {
        let mut values = vec![text == "*"; range.end as usize];
        if let Ok(value) = text.parse::<usize>() {
            values[value] = true;
        }
        Self {
            text: text.to_owned(),
            values,
        }
    }
}

struct Fields {
    second: Field,
    minute: Field,
    hour: Field,
    day: Field,
    month: Field,
    weekday: Field,
}

impl Fields {
    /// Returns a random pattern. Most patterns are due early in the day, when clocks are changed.
    fn random(random: &mut Random, seconds: bool) -> Self {
        let hours = if random.below(3) == 0 { 0..24 } else { 0..4 };
        let often = |random: &mut Random, range: Range<u64>| match random.below(3) {
            0 => Field::random(random, range),
            _ => Field::is("*", range),
        };
        let mut hour = Field::random(random, hours);
        if hour.text.contains('*') {
            // A `*` stands for the whole day, not only for `hours`.
            hour = Field::random(random, 0..24);
        }
        hour.values.resize(24, false);
        Self {
            second: match seconds {
                true => Field::random(random, 0..60),
                false => Field::is("0", 0..60),
            },
            minute: Field::random(random, 0..60),
            hour,
            day: often(random, 1..32),
            month: often(random, 1..13),
            weekday: often(random, 0..7),
        }
    }

    fn text(&self, seconds: bool) -> String {
        let second = if seconds { &*self.second.text } else { "" };
        let Self { minute, hour, .. } = self;
        let Self { day, month, .. } = self;
        format!(
            "{second} {} {} {} {} {}",
            minute.text, hour.text, day.text, month.text, self.weekday.text
        )
    }

    fn is_interval(&self) -> bool {
        let all = |field: &Field| field.is_star() || field.values.iter().all(|&value| value);
        all(&self.second) || all(&self.minute) || all(&self.hour)
    }

    fn matches(&self, local: &Local) -> bool {
        let day = self.day.values[local.day as usize];
        let weekday = self.weekday.values[local.weekday as usize];
        let is_day = match (self.day.is_star(), self.weekday.is_star()) {
            (false, false) => day || weekday,
            _ => day && weekday,
        };
        is_day
            && self.minute.values[local.minute as usize]
            && self.hour.values[local.hour as usize]
            && self.month.values[local.month as usize]
            && self.second.values[local.second as usize]
    }
}

/// A local time.
#[derive(Clone, Copy)]
struct Local {
    second: u8,
    minute: u8,
    hour: u8,
    day: u8,
    month: u8,
    weekday: u8,
}

/// A table of all instants and local times of a zone over a span of time.
struct Scan {
    tz: TimeZone,
    /// Each instant, and the local time at that instant.
    instants: Vec<(i64, Local)>,
    /// Each local time, and the instant at which a pattern with a fixed time of day runs for it.
    locals: Vec<(i64, Local)>,
    /// The instants that may be compared: a scan does not know what is beyond its ends.
    sure: Range<i64>,
}

impl Local {
    /// Returns the local time that is `seconds` after the beginning of 1970 on the local clock.
    /// `day` caches the date of the last day that was asked for.
    fn new(seconds: i64, day: &mut (i64, Date)) -> Self {
        let number = seconds.div_euclid(DAY);
        if day.0 != number {
            let at = Timestamp::from_second(seconds).unwrap();
            *day = (number, Offset::UTC.to_datetime(at).date());
        }
        let time = seconds.rem_euclid(DAY);
        Self {
            second: (time % 60) as u8,
            minute: (time / 60 % 60) as u8,
            hour: (time / 3600) as u8,
            day: day.1.day() as u8,
            month: day.1.month() as u8,
            weekday: day.1.weekday().to_sunday_zero_offset() as u8,
        }
    }
}

impl Scan {
    fn new(tz: TimeZone, from: i64, to: i64, step: i64) -> Self {
        let shown = |at: i64| {
            let at = Timestamp::from_second(at).unwrap();
            at.as_second() + i64::from(tz.to_offset(at).seconds())
        };
        let range = || (from..to).step_by(step as usize);
        let clock: Vec<(i64, i64)> = range().map(|at| (at, shown(at))).collect();
        let mut landing = 0;
        let mut day = (i64::MIN, Date::ZERO);
        let locals = range().map(|time| {
            // Local times are counted as if they were UTC, so the same range of numbers serves
            // for both.
            let stamp = Timestamp::from_second(time).unwrap();
            let at = Offset::UTC.to_datetime(stamp);
            let instant = match tz.to_ambiguous_timestamp(at).offset() {
                AmbiguousOffset::Unambiguous { offset } => time - i64::from(offset.seconds()),
                AmbiguousOffset::Fold { before, .. } => time - i64::from(before.seconds()),
                AmbiguousOffset::Gap { .. } => {
                    // Find the first instant after the gap.
                    while landing + 1 < clock.len() && clock[landing].1 < time {
                        landing += 1;
                    }
                    clock[landing].0
                }
            };
            (instant, Local::new(time, &mut day))
        });
        let locals = locals.collect();
        let mut day = (i64::MIN, Date::ZERO);
        let instants = clock.iter();
        let instants = instants.map(|&(at, shown)| (at, Local::new(shown, &mut day)));
        Self {
            instants: instants.collect(),
            locals,
            sure: from + MARGIN..to - MARGIN,
            tz,
        }
    }

    fn expected(&self, fields: &Fields) -> Vec<i64> {
        let scanned = match fields.is_interval() {
            true => &self.instants,
            false => &self.locals,
        };
        let due = scanned.iter().filter(|(_, local)| fields.matches(local));
        let mut due: Vec<i64> = due.map(|(at, _)| *at).collect();
        due.sort_unstable();
        due.dedup();
        due.retain(|at| self.sure.contains(at));
        due
    }

    fn check(&self, fields: &Fields, seconds: bool, random: &mut Random) {
        let text = fields.text(seconds);
        let cron = Cron::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let schedule = cron.tz(self.tz.clone()).schedule();
        let expected = self.expected(fields);
        let at = |second: i64| SystemTime::from(Timestamp::from_second(second).unwrap());
        let check = |from: i64, most: usize| {
            let since = expected.partition_point(|&next| next <= from);
            let mut upcoming = schedule.upcoming(at(from));
            for &next in expected[since..].iter().take(most) {
                let (said, next) = (upcoming.next(), at(next));
                assert_eq!(
                    said.and_then(|said| schedule.zoned(said)),
                    schedule.zoned(next),
                    "{text} after {from}"
                );
            }
            if expected.len() - since < most {
                let beyond = upcoming.next();
                assert!(
                    beyond.is_none_or(|next| next >= at(self.sure.end)),
                    "{text}"
                );
            }
        };
        check(self.sure.start - 1, 2000);
        // Search from random instants, too, not only from one occurrence to the next.
        for _ in 0..50 {
            let span = (self.sure.end - self.sure.start) as u64;
            let from = self.sure.start + random.below(span) as i64;
            check(from, 20);
        }
    }
}

fn start(date: Date) -> i64 {
    let midnight = date.to_zoned(TimeZone::UTC).unwrap();
    midnight.timestamp().as_second()
}

/// Checks patterns of minutes over the whole span, and patterns of seconds in the days around the
/// first two clock changes.
fn check(tz: TimeZone, from: Date, to: Date, seed: u64) {
    let mut random = Random::new(seed);
    let (from, to) = (start(from), start(to));
    let scan = Scan::new(tz.clone(), from, to, 60);
    for _ in 0..40 {
        let fields = Fields::random(&mut random, false);
        scan.check(&fields, false, &mut random);
    }
    let changes = tz.following(Timestamp::from_second(from + 5 * DAY).unwrap());
    let changes: Vec<i64> = changes
        .map(|change| change.timestamp().as_second())
        .take_while(|&change| change < to - 5 * DAY)
        .take(2)
        .collect();
    for change in changes {
        let scan = Scan::new(tz.clone(), change - DAY * 3 / 2, change + DAY * 3 / 2, 1);
        for _ in 0..6 {
            let fields = Fields::random(&mut random, true);
            scan.check(&fields, true, &mut random);
        }
    }
}

macro_rules! zones {
    ($($test:ident: $tz:expr, $from:expr => $to:expr;)*) => {$(
        #[test]
        fn $test() {
            let seed = stringify!($test).bytes().map(u64::from).sum();
            check($tz, $from, $to, seed);
        }
    )*};
}

fn zone(name: &str) -> TimeZone {
    TimeZone::get(name).unwrap()
}

zones! {
    paris: zone("Europe/Paris"), date(2024, 2, 20) => date(2026, 1, 10);
    new_york: zone("America/New_York"), date(2007, 2, 1) => date(2007, 12, 1);
    // Summer time is half an hour ahead.
    lord_howe: zone("Australia/Lord_Howe"), date(2024, 9, 1) => date(2025, 5, 1);
    // No changes, and an offset of 5:45.
    kathmandu: zone("Asia/Kathmandu"), date(2024, 1, 1) => date(2024, 6, 1);
    // Midnights that do not exist.
    sao_paulo: zone("America/Sao_Paulo"), date(2017, 9, 1) => date(2018, 4, 1);
    // The hour before midnight does not exist, so the gap ends on the next day.
    nuuk: zone("America/Nuuk"), date(2024, 9, 1) => date(2025, 4, 20);
    // A day does not exist, in the middle of summer time.
    apia: zone("Pacific/Apia"), date(2011, 8, 1) => date(2012, 5, 20);
    // Troll's summer time is two hours ahead. In Dublin, winter time is the exception.
    troll: zone("Antarctica/Troll"), date(2024, 9, 1) => date(2025, 4, 20);
    dublin: zone("Europe/Dublin"), date(2024, 3, 1) => date(2024, 11, 20);
    // Summer time that is suspended for a month: four changes a year.
    casablanca: zone("Africa/Casablanca"), date(2017, 3, 1) => date(2018, 1, 1);
    utc: TimeZone::UTC, date(2024, 2, 1) => date(2024, 6, 1);
    fixed: TimeZone::fixed(Offset::from_seconds(-3 * 3600 - 1800).unwrap()), date(2024, 2, 1) => date(2024, 6, 1);
    // Years far ahead, for which the zone has only a rule.
    far_ahead: zone("Europe/Paris"), date(2400, 2, 1) => date(2400, 12, 1);
}
