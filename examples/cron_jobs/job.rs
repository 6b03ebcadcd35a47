//! Parses jobs: `[TZ=ZONE] PATTERN -- COMMAND`.

use std::fmt;

use tourbillon_cron::{Cron, CronError, Field};

/// A command and its schedule.
pub struct Job {
    pub cron: Cron,
    pub command: String,
}

/// An error in a job, with its position.
#[derive(Debug)]
pub struct BadJob {
    text: String,
    /// The wrong part of the text, in characters: its start and length.
    part: Option<(usize, usize)>,
    reason: String,
}

impl Job {
    /// Parses a job. Its time zone is `zone` unless the job names another one.
    ///
    /// # Errors
    ///
    /// Fails if the job has no command, or if its pattern or time zone is invalid.
    pub fn parse(text: &str, zone: &str) -> Result<Self, BadJob> {
        let bad = |part: Option<&str>, reason: String| BadJob {
            text: text.to_owned(),
            part: part.map(|part| position(text, part)),
            reason,
        };
        let words = words(text);
        let Some(end) = words.iter().position(|&word| word == "--") else {
            return Err(bad(None, "there is no ` -- ` before a command".into()));
        };
        let command = words
            .get(end + 1)
            .map_or("", |&first| from(text, first).trim_end());
        if command.is_empty() {
            return Err(bad(
                Some(words[end]),
                "there is no command after this".into(),
            ));
        }
        // The time zone is optional; the rest before `--` is the pattern.
        let named = words[0].strip_prefix("TZ=");
        let fields = &words[usize::from(named.is_some())..end];
        let cron = Cron::parse(&fields.join(" ")).map_err(|error| {
            let wrong = match &error {
                CronError::Pattern {
                    field: Some(field), ..
                } => fields.get(place(*field, fields.len())).copied(),
                _ => None,
            };
            bad(wrong, error.to_string())
        })?;
        let cron = cron
            .time_zone(named.unwrap_or(zone))
            .map_err(|error| bad(named, error.to_string()))?;
        Ok(Self {
            cron,
            command: command.to_owned(),
        })
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// Returns the byte offset of a part within its text.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// Returns the text from the start of one of its parts.
fn from<'a>(text: &'a str, part: &str) -> &'a str {
    &text[offset(text, part)..]
}

/// Returns the position of a part within its text, in characters.
fn position(text: &str, part: &str) -> (usize, usize) {
    let before = &text[..offset(text, part)];
    (before.chars().count(), part.chars().count().max(1))
}

/// Returns the index of a field among `fields` fields.
fn place(field: Field, fields: usize) -> usize {
    let place: usize = match field {
        Field::Second => 0,
        Field::Minute => 1,
        Field::Hour => 2,
        Field::DayOfMonth => 3,
        Field::Month => 4,
        Field::DayOfWeek => 5,
    };
    // A pattern of five fields starts with the minute.
    if fields == 5 {
        place.saturating_sub(1)
    } else {
        place
    }
}

impl fmt::Display for BadJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.reason, self.text)?;
        if let Some((first, count)) = self.part {
            write!(f, "\n  {:first$}{:^<count$}", "", "")?;
        }
        Ok(())
    }
}
