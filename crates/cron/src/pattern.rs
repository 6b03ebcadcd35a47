//! A parsed pattern: the local times that match, without a time zone.
//!
//! croner parses the pattern, and decides which days match (`L`, `W`, `#`). Before that, this
//! module rejects patterns that croner accepts but that are most likely mistakes, and it decides
//! which fields count as a `*`: in croner, `*/2` does not. The search through time is also here, so
//! that it ends soon if nothing matches.

use std::borrow::Cow;

use croner::{
    CronComponent, CronPattern, Weekday,
    parser::{CronParser, Seconds, Year},
};
use jiff::{Span, civil::Date};

use crate::error::{CronError, Field};

/// Local time in seconds since 1970 began on the same clock.
pub(crate) type Local = i64;

const DAY: i64 = 86_400;

/// The day with number 0.
const EPOCH: Date = Date::constant(1970, 1, 1);

/// The number of days after which the calendar repeats, including weekdays: 400 years.
const CYCLE: i64 = 146_097;

const MONTHS: [&str; 12] = [
    "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC",
];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

#[derive(Clone, Debug)]
pub(crate) struct Pattern {
    /// The pattern as given.
    text: String,
    days: CronPattern,
    /// One bit per value.
    seconds: u64,
    minutes: u64,
    hours: u64,
    /// See [`Pattern::is_interval`].
    is_interval: bool,
}

impl Pattern {
    pub(crate) fn parse(text: &str) -> Result<Self, CronError> {
        let wrong = |field, reason: String| CronError::Pattern {
            pattern: text.to_owned(),
            field,
            reason,
        };
        // cron knows this name, but croner does not.
        let normal = if text.trim().eq_ignore_ascii_case("@midnight") {
            "@daily"
        } else {
            text.trim()
        };
        let mut stars = Stars::default();
        // Check each field alone, to name the wrong one.
        if !normal.starts_with('@') {
            for (field, part) in fields(normal).map_err(|reason| wrong(None, reason))? {
                lint(field, part)
                    .and_then(|()| check_alone(field, part))
                    .map_err(|reason| wrong(Some(field), reason))?;
                stars.look_at(field, part);
            }
        } else if croner(normal).is_err() {
            return Err(wrong(None, "there is no such name".to_owned()));
        }
        let days = croner(&stars.combine_days(normal)).map_err(|reason| wrong(None, reason))?;
        Ok(Self {
            text: text.to_owned(),
            seconds: bits(&days.seconds),
            minutes: bits(&days.minutes),
            hours: bits(&days.hours),
            is_interval: stars.in_time
                || [&days.seconds, &days.minutes, &days.hours]
                    .iter()
                    .any(|field| has_all(field)),
            days,
        })
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns whether the pattern is an interval instead of times of the day: its hour, minute or
    /// second begins with a `*`, which is cron's own rule, or names all values.
    pub(crate) fn is_interval(&self) -> bool {
        self.is_interval
    }

    /// Returns the first matching local time from `from` on.
    ///
    /// Returns `None` if there is none in the next 400 years, after which the calendar repeats, or
    /// none before the end of the year 9999.
    pub(crate) fn next(&self, from: Local) -> Option<Local> {
        let first = from.div_euclid(DAY);
        let mut day = first;
        // After a whole cycle of the calendar nothing new comes: the pattern never matches.
        while day <= first + CYCLE {
            let date = date(day)?;
            if !self.days.month_match(date.month() as u32).ok()? {
                // Skip to the first day of the next month.
                day += i64::from(date.days_in_month() - date.day()) + 1;
                continue;
            }
            let from = if day == first { from - day * DAY } else { 0 };
            if let (true, Some(time)) = (self.is_day(date)?, self.time(from)) {
                return Some(day * DAY + time);
            }
            day += 1;
        }
        None
    }

    fn is_day(&self, date: Date) -> Option<bool> {
        let weekday = date.weekday().to_sunday_zero_offset();
        let weekday = Weekday::from_days_from_sunday(weekday as u32);
        let (month, day) = (date.month() as u32, date.day() as u32);
        // Only fails for invalid dates, and this one is valid.
        let day = self.days.day_match(date.year().into(), month, day, weekday);
        day.ok()
    }

    /// Returns the first matching time of the day from `from` on, in seconds.
    fn time(&self, from: i64) -> Option<i64> {
        let (hour, minute, second) = (from / 3600, from / 60 % 60, from % 60);
        let in_hour = |hour: i64, minute: i64, second: i64| {
            // First the rest of this minute, then the first second of a later one.
            let this = bit(self.minutes, minute).filter(|&at| at == minute);
            let this = this.and_then(|minute| Some((minute, bit(self.seconds, second)?)));
            let next = || Some((bit(self.minutes, minute + 1)?, bit(self.seconds, 0)?));
            let (minute, second) = this.or_else(next)?;
            Some(hour * 3600 + minute * 60 + second)
        };
        let this = bit(self.hours, hour).filter(|&at| at == hour);
        let this = this.and_then(|hour| in_hour(hour, minute, second));
        this.or_else(|| in_hour(bit(self.hours, hour + 1)?, 0, 0))
    }
}

/// Which fields of a pattern count as a `*`. cron looks only at the first character: `*/2` and
/// `*/2,5` count, `5,*/2` does not.
#[derive(Default)]
struct Stars {
    /// The second, the minute or the hour.
    in_time: bool,
    /// The day of the month or of the week, with more text behind the `*`.
    in_days: bool,
}

impl Stars {
    fn look_at(&mut self, field: Field, part: &str) {
        match field {
            Field::Second | Field::Minute | Field::Hour => self.in_time |= part.starts_with('*'),
            Field::DayOfMonth | Field::DayOfWeek => {
                self.in_days |= part.len() > 1 && part.starts_with(['*', '?']);
            }
            Field::Month => {}
        }
    }

    /// Returns the pattern for croner. If one of the two fields of days counts as a `*`, a day must
    /// match both. croner knows this of a field that is nothing but `*`; for others, it needs a
    /// `+`.
    fn combine_days<'a>(&self, pattern: &'a str) -> Cow<'a, str> {
        match pattern.rsplit_once(char::is_whitespace) {
            Some((others, weekday)) if self.in_days && !weekday.starts_with('+') => {
                format!("{others} +{weekday}").into()
            }
            _ => pattern.into(),
        }
    }
}

fn croner(pattern: &str) -> Result<CronPattern, String> {
    CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .build()
        .parse(pattern)
        .map(|cron| cron.pattern)
        .map_err(|error| {
            let text = error.to_string();
            text.strip_prefix("Component error: ")
                .unwrap_or(&text)
                .trim_end_matches('.')
                .to_owned()
        })
}

/// Returns the fields of a pattern with their names.
fn fields(pattern: &str) -> Result<impl Iterator<Item = (Field, &str)>, String> {
    let count = pattern.split_whitespace().count();
    // Five fields have no seconds, so the first of them is the minute.
    let first = match count {
        5 => 1,
        6 => 0,
        _ => return Err(format!("there are {count} fields")),
    };
    Ok(Field::ALL[first..]
        .iter()
        .copied()
        .zip(pattern.split_whitespace()))
}

/// Parses one field with croner, with `*` as the others. So an error belongs to this field.
fn check_alone(field: Field, part: &str) -> Result<(), String> {
    // With all other fields open, an error can only come from this one.
    let others = Field::ALL.map(|other| if other == field { part } else { "*" });
    croner(&others.join(" ")).map(|_| ())
}

/// Rejects mistakes that croner accepts: empty items, names with other text attached (`JANFEB`
/// means 12) or in the wrong field, steps longer than the field, and `L` together with `LW` (it
/// ignores `L`).
fn lint(field: Field, part: &str) -> Result<(), String> {
    let upper = part.to_ascii_uppercase();
    let upper = match field {
        Field::DayOfWeek => upper.strip_prefix('+').unwrap_or(&upper),
        _ => &upper,
    };
    // The number of values of the field. A longer step would match only the first of them.
    let values = match field {
        Field::Second | Field::Minute => 60,
        Field::Hour => 24,
        Field::DayOfMonth => 31,
        Field::Month => 12,
        Field::DayOfWeek => 7,
    };
    let mut items = Vec::new();
    for item in upper.split(',') {
        if item.is_empty() {
            return Err(
                "an item of the list is empty: write a value between two commas".to_owned(),
            );
        }
        let step = item.split_once('/').and_then(|(_, step)| step.parse().ok());
        if step.is_some_and(|step: u32| step >= values) {
            return Err(format!(
                "the step of `{item}` is too large for this field of {values} values: only the \
                 first one would match"
            ));
        }
        // croner would read a name in the wrong field as a number, or ignore text behind it.
        for word in item.split(['-', '/', '#']) {
            check_name(field, word)?;
        }
        items.push(item);
    }
    if items.contains(&"L") && items.contains(&"LW") {
        return Err("`L` and `LW` cannot be combined: use two jobs".to_owned());
    }
    Ok(())
}

/// Checks that a word is a number, or a name that this field knows.
fn check_name(field: Field, word: &str) -> Result<(), String> {
    let letters = word.trim_start_matches(|c: char| c.is_ascii_digit());
    let is_known = match field {
        _ if !letters.contains(|c: char| c.is_ascii_alphabetic()) => true,
        Field::DayOfMonth => matches!(letters, "L" | "W" | "LW"),
        Field::Month => MONTHS.contains(&word),
        Field::DayOfWeek => letters == "L" || names_weekday(word),
        Field::Second | Field::Minute | Field::Hour => false,
    };
    if is_known {
        Ok(())
    } else {
        Err(format!("there is no `{word}`"))
    }
}

fn names_weekday(word: &str) -> bool {
    WEEKDAYS.contains(&word)
        || word
            .strip_suffix('L')
            .is_some_and(|day| WEEKDAYS.contains(&day))
}

fn has_all(field: &CronComponent) -> bool {
    field.values().len() == usize::from(field.max) + 1
}

fn bits(field: &CronComponent) -> u64 {
    field.values().iter().fold(0, |bits, bit| bits | 1 << bit)
}

/// Returns the lowest set bit at or above `from`, which is at most 60.
fn bit(bits: u64, from: i64) -> Option<i64> {
    let rest = bits & (u64::MAX << from);
    (rest != 0).then(|| rest.trailing_zeros().into())
}

/// Returns the date of a day. This uses the calendar alone: the first day within the range of
/// timestamps begins before that range.
fn date(day: i64) -> Option<Date> {
    let span = Span::new().try_days(day).ok()?;
    EPOCH.checked_add(span).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(pattern: &str) -> (Option<Field>, String) {
        match Pattern::parse(pattern) {
            Err(CronError::Pattern { field, reason, .. }) => (field, reason),
            other => panic!("{pattern}: {other:?}"),
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        for (pattern, field) in [
            ("60 * * * *", Field::Minute),
            ("MON 0 * * *", Field::Minute),
            ("60 * * * * *", Field::Second),
            ("*/0 * * * *", Field::Minute),
            ("*/90 * * * *", Field::Minute),
            ("5/10 * * * *", Field::Minute),
            ("0 24 * * *", Field::Hour),
            ("0 , * * *", Field::Hour),
            ("0 1,,2 * * *", Field::Hour),
            ("0 22-4 * * *", Field::Hour),
            ("0 L * * *", Field::Hour),
            ("0 0 0 * *", Field::DayOfMonth),
            ("0 0 32 * *", Field::DayOfMonth),
            ("0 0 L-3 * *", Field::DayOfMonth),
            ("0 0 L,LW * *", Field::DayOfMonth),
            ("0 0 MON * *", Field::DayOfMonth),
            ("0 0 1 13 *", Field::Month),
            ("0 0 1 JANFEB *", Field::Month),
            ("0 0 1 JANUARY *", Field::Month),
            ("0 0 1 MON *", Field::Month),
            ("0 0 * * 8", Field::DayOfWeek),
            ("0 0 * * FRI-MON", Field::DayOfWeek),
            ("0 0 * * SUN5", Field::DayOfWeek),
            ("0 0 * * MONDAY", Field::DayOfWeek),
            ("0 0 * * FRI#6", Field::DayOfWeek),
            ("0 0 * * é", Field::DayOfWeek),
        ] {
            assert_eq!(refused(pattern).0, Some(field), "{pattern}");
        }
    }

    #[test]
    fn a_text_that_is_no_pattern_names_no_field() {
        for pattern in [
            "",
            "  ",
            "* * * *",
            "* * * * * * *",
            "@reboot",
            "@",
            "hello",
        ] {
            assert_eq!(refused(pattern).0, None, "{pattern}");
        }
        assert_eq!(refused("1 2 3").1, "there are 3 fields");
    }

    #[test]
    fn intervals_are_told_from_times_of_the_day_by_the_rule_of_cron() {
        for pattern in [
            "* * * * *",
            "*/15 * * * *",
            "0 * * * *",
            "0 0-23 * * *",
            "*/20 2 * * *",
            "30 */6 * * *",
            "* 30 2 * * *",
            "@hourly",
        ] {
            assert!(Pattern::parse(pattern).unwrap().is_interval(), "{pattern}");
        }
        for pattern in [
            "30 2 * * *",
            "0,30 2 * * *",
            "0 2,14 * * *",
            "0 1-22 * * *",
            "10,*/30 2 * * *",
            "@daily",
        ] {
            assert!(!Pattern::parse(pattern).unwrap().is_interval(), "{pattern}");
        }
    }

    #[test]
    fn names_are_those_of_cron() {
        for (name, same) in [
            ("@yearly", "0 0 1 1 *"),
            ("@annually", "0 0 1 jan *"),
            ("@monthly", "0 0 1 * ?"),
            ("@weekly", "0 0 * * sun"),
            ("@daily", "0 0 * * *"),
            (" @Midnight ", "0 0 0 * * *"),
            ("@hourly", " 0  * * *  * "),
        ] {
            let (name, same) = (Pattern::parse(name).unwrap(), Pattern::parse(same).unwrap());
            assert_eq!(name.days, same.days);
        }
    }
}
