//! The history: what clients asked for and what handlers did, a line for each event.
//!
//! Several processes append to one file. Each line is one write, so lines are whole, and their
//! order is that of the writes. A process that is killed loses no line that it wrote.

use std::{
    fmt,
    fs::File,
    io::{self, BufRead, Write},
    path::Path,
};

use tourbillon_jobs::{Time, job::Token};

/// How an attempt ended, by the node that ran it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Done,
    Retry,
    Dead,
}

/// What a job did as another one took its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// It was not there any more.
    Free,
    /// No attempt of it ran.
    Idle,
    /// An attempt of it ran.
    Running,
}

/// What happened to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client is about to schedule the job at this time.
    Asks { at: Time },
    /// The store has answered with an error. The client asks again.
    Failed,
    /// The store has acknowledged the job.
    Scheduled,
    /// A client is about to move the job.
    Moves { at: Time },
    /// The store has acknowledged a move; no attempt was running.
    Moved { at: Time },
    /// A client is about to cancel the job.
    Cancels,
    /// The store has acknowledged it; no attempt was running.
    Cancelled,
    /// A client is about to put another job of the same key in the place of the job.
    Replaces { at: Time },
    /// The store has acknowledged the other job.
    Replaced { place: Place },
    /// The store refused to move or cancel, as the job is over, or answered that an attempt was
    /// running.
    TooLate,
    /// A handler runs. `now` is a time that the store's clock has reached. `is_other` says whether
    /// it got the job that took the place of the first one.
    Runs {
        token: Token,
        number: u32,
        at: Time,
        now: Time,
        is_other: bool,
    },
    /// The store has answered to the end of an attempt. `accepted` is `None` if an answer was lost.
    Ended {
        token: Token,
        kind: Kind,
        accepted: Option<bool>,
    },
    /// In the end, the store has the job, or the one that took its place, among the dead.
    Buried { is_other: bool },
}

/// What a line of the job that took the place of the first one has at its end.
fn other(is_other: &bool) -> &'static str {
    match is_other {
        true => " other",
        false => "",
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asks { at } => write!(f, "asks {}", at.as_micros()),
            Self::Failed => f.write_str("failed"),
            Self::Scheduled => f.write_str("scheduled"),
            Self::Moves { at } => write!(f, "moves {}", at.as_micros()),
            Self::Moved { at } => write!(f, "moved {}", at.as_micros()),
            Self::Cancels => f.write_str("cancels"),
            Self::Cancelled => f.write_str("cancelled"),
            Self::Replaces { at } => write!(f, "replaces {}", at.as_micros()),
            Self::Replaced { place } => write!(f, "replaced {place:?}"),
            Self::TooLate => f.write_str("too-late"),
            Self::Runs {
                token,
                number,
                at,
                now,
                is_other,
            } => write!(
                f,
                "runs {token} {number} {} {}{}",
                at.as_micros(),
                now.as_micros(),
                other(is_other)
            ),
            Self::Ended {
                token,
                kind,
                accepted,
            } => {
                let accepted = match accepted {
                    Some(true) => "accepted",
                    Some(false) => "refused",
                    None => "unknown",
                };
                write!(f, "ended {token} {kind:?} {accepted}")
            }
            Self::Buried { is_other } => write!(f, "buried{}", other(is_other)),
        }
    }
}

impl Event {
    fn parse(text: &str) -> Option<Self> {
        let mut words: Vec<&str> = text.split(' ').collect();
        let is_other = words.pop_if(|word| *word == "other").is_some();
        let time = |text: &str| text.parse().ok().map(Time::from_micros);
        let token = |text: &str| text.parse().ok().map(Token);
        Some(match words[..] {
            ["asks", at] => Self::Asks { at: time(at)? },
            ["failed"] => Self::Failed,
            ["scheduled"] => Self::Scheduled,
            ["moves", at] => Self::Moves { at: time(at)? },
            ["moved", at] => Self::Moved { at: time(at)? },
            ["cancels"] => Self::Cancels,
            ["cancelled"] => Self::Cancelled,
            ["too-late"] => Self::TooLate,
            ["replaces", at] => Self::Replaces { at: time(at)? },
            ["replaced", place] => Self::Replaced {
                place: match place {
                    "Free" => Place::Free,
                    "Idle" => Place::Idle,
                    "Running" => Place::Running,
                    _ => return None,
                },
            },
            ["buried"] => Self::Buried { is_other },
            ["runs", held, number, at, now] => Self::Runs {
                token: token(held)?,
                number: number.parse().ok()?,
                at: time(at)?,
                now: time(now)?,
                is_other,
            },
            ["ended", held, kind, accepted] => Self::Ended {
                token: token(held)?,
                kind: match kind {
                    "Done" => Kind::Done,
                    "Retry" => Kind::Retry,
                    "Dead" => Kind::Dead,
                    _ => return None,
                },
                accepted: match accepted {
                    "accepted" => Some(true),
                    "refused" => Some(false),
                    "unknown" => None,
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

/// A file that gets events.
pub struct History(File);

impl History {
    /// Opens a file for more events.
    pub fn append(path: &Path) -> io::Result<Self> {
        Ok(Self(File::options().create(true).append(true).open(path)?))
    }

    /// Appends an event.
    ///
    /// # Panics
    ///
    /// Panics if the file cannot be written: a history with holes is worth nothing.
    pub fn write(&self, key: &str, event: Event) {
        let line = format!("{key} {event}\n");
        (&self.0)
            .write_all(line.as_bytes())
            .expect("the history is written");
    }
}

/// Reads all events of a history, each with the job's key.
pub fn read(history: impl BufRead) -> impl Iterator<Item = Result<(String, Event), String>> {
    history.lines().map(|line| {
        let line = line.map_err(|error| error.to_string())?;
        let read = line
            .split_once(' ')
            .and_then(|(key, event)| Some((key.to_owned(), Event::parse(event)?)));
        read.ok_or_else(|| format!("no event: {line}"))
    })
}
