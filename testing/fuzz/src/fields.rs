//! A second implementation of the fields of cron patterns: which local times match. It returns
//! `None` for syntax that it does not support, so that it reports no false errors.

use tourbillon_cron::jiff::civil::DateTime;

/// A parsed pattern.
pub struct Fields {
    second: Vec<bool>,
    minute: Vec<bool>,
    hour: Vec<bool>,
    month: Vec<bool>,
    day: Days,
    weekday: Weekdays,
    /// Whether both the day of the month and the weekday have to match.
    both: bool,
    pub is_interval: bool,
}

struct Days {
    is_star: bool,
    plain: Vec<bool>,
    last: bool,
    last_weekday: bool,
    /// Days whose nearest weekday matches.
    nearest: Vec<i8>,
}

struct Weekdays {
    is_star: bool,
    plain: Vec<bool>,
    /// A weekday and its number in the month; 0 means the last one.
    nth: Vec<(usize, i8)>,
}

const MONTHS: &str = "JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC";
const WEEKDAYS: &str = "SUNMONTUEWEDTHUFRISAT";

impl Fields {
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_uppercase();
        let text = match &*text {
            "@YEARLY" | "@ANNUALLY" => "0 0 1 1 *",
            "@MONTHLY" => "0 0 1 * *",
            "@WEEKLY" => "0 0 * * 0",
            "@DAILY" | "@MIDNIGHT" => "0 0 * * *",
            "@HOURLY" => "0 * * * *",
            other => other,
        };
        let mut words: Vec<_> = text.split_whitespace().collect();
        if words.len() == 5 {
            words.insert(0, "0");
        }
        let [second, minute, hour, day, month, weekday] = words[..] else {
            return None;
        };
        let both = weekday.starts_with('+');
        let weekday = weekday.strip_prefix('+').unwrap_or(weekday);
        let (day, weekday) = (&*day.replace('?', "*"), &*weekday.replace('?', "*"));
        let fields = Self {
            second: values(second, 0..=59, "")?,
            minute: values(minute, 0..=59, "")?,
            hour: values(hour, 0..=23, "")?,
            month: values(month, 1..=12, MONTHS)?,
            day: days(day)?,
            weekday: weekdays(weekday)?,
            both,
            is_interval: false,
        };
        let is_all = |text: &str, values: &[bool]| {
            text.starts_with('*') || values.iter().all(|&value| value)
        };
        let is_interval = is_all(second, &fields.second)
            || is_all(minute, &fields.minute)
            || is_all(hour, &fields.hour);
        Some(Self {
            is_interval,
            ..fields
        })
    }

    pub fn matches(&self, at: DateTime) -> bool {
        self.second[at.second() as usize]
            && self.minute[at.minute() as usize]
            && self.hour[at.hour() as usize]
            && self.month[at.month() as usize]
            && self.is_day(at)
    }

    /// Returns whether the date matches.
    pub fn is_date(&self, at: DateTime) -> bool {
        self.month[at.month() as usize] && self.is_day(at)
    }

    fn is_day(&self, at: DateTime) -> bool {
        let (day, weekday) = (self.day.matches(at), self.weekday.matches(at));
        match (self.day.is_star, self.weekday.is_star) {
            (false, false) if !self.both => day || weekday,
            _ => day && weekday,
        }
    }
}

impl Days {
    fn matches(&self, at: DateTime) -> bool {
        let (day, last) = (at.day(), at.date().days_in_month());
        let on = |day: i8| {
            let date = at.date().with().day(day).build();
            let date = date.expect("the month has it");
            date.weekday().to_sunday_zero_offset()
        };
        let is_weekday = |day: i8| (1..=5).contains(&on(day));
        let nearest = |to: i8| match on(to) {
            6 if to == 1 => 3,
            6 => to - 1,
            0 if to == last => to - 2,
            0 => to + 1,
            _ => to,
        };
        let is_nearest = |&to: &i8| to <= last && nearest(to) == day;
        self.plain[day as usize]
            || (self.last && day == last)
            || (self.last_weekday
                && is_weekday(day)
                && (day + 1..=last).all(|later| !is_weekday(later)))
            || self.nearest.iter().any(is_nearest)
    }
}

impl Weekdays {
    fn matches(&self, at: DateTime) -> bool {
        let weekday = at.weekday().to_sunday_zero_offset() as usize;
        let (day, last) = (at.day(), at.date().days_in_month());
        let is_nth = |&(on, nth): &(usize, i8)| {
            let is_there = match nth {
                0 => day + 7 > last,
                nth => (day - 1) / 7 + 1 == nth,
            };
            on == weekday && is_there
        };
        self.plain[weekday] || self.nth.iter().any(is_nth)
    }
}

/// Parses a number or a name of three letters.
fn value(text: &str, first: usize, names: &str) -> Option<usize> {
    if !text.is_empty() && text.len() <= 2 && text.chars().all(|c| c.is_ascii_digit()) {
        return text.parse().ok();
    }
    let at = names.find(text).filter(|_| text.len() == 3)?;
    (at % 3 == 0).then_some(at / 3 + first)
}

/// Parses a list of values.
fn values(text: &str, range: std::ops::RangeInclusive<usize>, names: &str) -> Option<Vec<bool>> {
    let (first, last) = range.into_inner();
    let mut values = vec![false; last + 1];
    for item in text.split(',') {
        let (part, step) = match item.split_once('/') {
            None => (item, None),
            Some((part, step)) => (part, Some(value(step, 0, "").filter(|&step| step > 0)?)),
        };
        let (from, to) = match part.split_once('-') {
            None if part == "*" && (step.is_some() || text == "*") => (first, last),
            // `5/10`, which some implementations take for a range.
            None if step.is_some() => return None,
            None => {
                let value = value(part, first, names)?;
                (value, value)
            }
            Some((from, to)) => (value(from, first, names)?, value(to, first, names)?),
        };
        if from < first || to > last || from > to {
            return None;
        }
        for value in (from..=to).step_by(step.unwrap_or(1)) {
            values[value] = true;
        }
    }
    Some(values)
}

fn days(text: &str) -> Option<Days> {
    let mut days = Days {
        is_star: text.starts_with('*'),
        plain: vec![false; 32],
        last: false,
        last_weekday: false,
        nearest: Vec::new(),
    };
    if text == "*" {
        days.plain.fill(true);
        return Some(days);
    }
    for item in text.split(',') {
        if item == "L" {
            days.last = true;
        } else if item == "LW" {
            days.last_weekday = true;
        } else if let Some(day) = item.strip_suffix('W') {
            let day = value(day, 1, "").filter(|day| (1..=31).contains(day))?;
            days.nearest.push(day as i8);
        } else {
            for (all, value) in days.plain.iter_mut().zip(values(item, 1..=31, "")?) {
                *all |= value;
            }
        }
    }
    Some(days)
}

fn weekdays(text: &str) -> Option<Weekdays> {
    let mut weekdays = Weekdays {
        is_star: text.starts_with('*'),
        plain: vec![false; 7],
        nth: Vec::new(),
    };
    if text == "*" {
        weekdays.plain.fill(true);
        return Some(weekdays);
    }
    for item in text.split(',') {
        let on = |text: &str| value(text, 0, WEEKDAYS).filter(|&day| day <= 7);
        if let Some((day, nth)) = item.split_once('#') {
            let nth = value(nth, 0, "").filter(|nth| (1..=5).contains(nth))?;
            weekdays.nth.push((on(day)? % 7, nth as i8));
        } else if let Some(day) = item.strip_suffix('L') {
            weekdays.nth.push((on(day)? % 7, 0));
        } else {
            let last = if item.starts_with('*') { 6 } else { 7 };
            for (value, is_there) in values(item, 0..=last, WEEKDAYS)?.into_iter().enumerate() {
                weekdays.plain[value % 7] |= is_there;
            }
        }
    }
    Some(weekdays)
}
