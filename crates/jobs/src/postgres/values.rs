//! What the statements get, and what they answer.

use std::{collections::HashSet, time::Duration};

use tokio_postgres::{
    Row,
    types::{FromSql, FromSqlOwned, ToSql},
};

use super::connection::failed;
use crate::{
    job::{LOWEST_PRIORITY, NewJob, Repeat, Token, When, micros},
    node::session::LONGEST,
    remote::Moment,
    row::{self, Get},
    store::{End, Finish, Kinds, Span, StoreError},
};

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, StoreError> {
    row.try_get(column).map_err(failed)
}

impl row::Row for Row {
    type Error = StoreError;
}

impl<T: FromSqlOwned> Get<T> for Row {
    fn at(&self, column: usize) -> Result<T, StoreError> {
        get(self, column)
    }
}

/// The statements wake the nodes of a job that is due within this many microseconds. The nodes find
/// later ones when they look by themselves.
pub(super) fn soon() -> i64 {
    micros(2 * LONGEST)
}

/// Times and patterns as a statement gets them.
#[derive(Default)]
pub(super) struct Times<'a> {
    pub(super) micros: Vec<i64>,
    pub(super) are_delays: Vec<bool>,
    pub(super) counted: Vec<Option<i64>>,
    pub(super) patterns: Vec<Option<&'a str>>,
    pub(super) zones: Vec<Option<&'a str>>,
}

impl<'a> Times<'a> {
    pub(super) fn push(&mut self, when: &'a When, moment: Moment) {
        self.micros.push(moment.micros);
        self.are_delays.push(moment.is_delay);
        self.counted.push(moment.counted);
        self.patterns.push(when.repeat().map(Repeat::pattern));
        self.zones.push(when.repeat().map(Repeat::zone));
    }
}

/// New jobs as a statement gets them.
#[derive(Default)]
pub(super) struct Jobs<'a> {
    pub(super) keys: Vec<&'a str>,
    pub(super) payloads: Vec<&'a [u8]>,
    pub(super) kinds: Vec<&'a str>,
    pub(super) priorities: Vec<i16>,
    pub(super) queues: Vec<&'a str>,
    pub(super) unique_for: Vec<Option<i64>>,
    pub(super) traceparents: Vec<Option<&'a str>>,
    pub(super) times: Times<'a>,
}

impl<'a> Jobs<'a> {
    pub(super) fn push(&mut self, job: &'a NewJob, moment: Moment) {
        self.keys.push(&job.key);
        self.payloads.push(&job.payload);
        self.kinds.push(&job.kind);
        self.priorities.push(job.priority.into());
        self.queues.push(&job.queue);
        self.unique_for.push(job.kept().map(micros));
        self.traceparents.push(job.traceparent.as_deref());
        self.times.push(&job.when, moment);
    }

    /// Returns the parameters of a statement that adds these jobs. `soon`: within which time of now
    /// the nodes are woken.
    pub(super) fn values<'b>(&'b self, soon: &'b i64) -> [&'b (dyn ToSql + Sync); 13] {
        [
            &self.keys,
            &self.payloads,
            &self.times.micros,
            &self.times.are_delays,
            &self.times.patterns,
            &self.times.zones,
            soon,
            &self.times.counted,
            &self.kinds,
            &self.priorities,
            &self.queues,
            &self.unique_for,
            &self.traceparents,
        ]
    }
}

/// The ends of attempts whose jobs stay, as a statement gets them.
#[derive(Default)]
pub(super) struct Ends<'a> {
    pub(super) keys: Vec<&'a str>,
    pub(super) tokens: Vec<i64>,
    pub(super) times: Vec<i64>,
    pub(super) are_delays: Vec<bool>,
    pub(super) errors: Vec<Option<String>>,
    /// Which end each is: 0 for the next occurrence, 1 for another attempt, 2 for a job that is
    /// dead, 3 for a snooze.
    pub(super) ends: Vec<i32>,
    pub(super) counted: Vec<Option<i64>>,
}

impl<'a> Ends<'a> {
    /// Adds an end, which is not [`End::Done`].
    pub(super) fn push(&mut self, Finish { key, token, end }: &'a Finish) {
        let mut from = None;
        let (time, is_delay, error, number) = match end {
            End::Done => return,
            End::Next { at, counted, error } => {
                from = Some(counted.as_micros());
                (at.as_micros(), false, error.as_ref(), 0)
            }
            End::Retry { delay, error } => (micros(*delay), true, Some(error), 1),
            End::Dead { error } => (0, false, Some(error), 2),
            End::Snooze { delay } => (micros(*delay), true, None, 3),
        };
        self.keys.push(key);
        self.tokens.push(token.0);
        self.times.push(time);
        self.are_delays.push(is_delay);
        // The server refuses a text with this character.
        self.errors
            .push(error.map(|error| error.replace('\0', "\u{fffd}")));
        self.ends.push(number);
        self.counted.push(from);
    }
}

/// Which jobs a statement looks for.
pub(super) struct Bounds {
    /// After and within which times of now they are due.
    pub(super) after: i64,
    pub(super) within: i64,
    /// The number of the lowest priority. If it is negative, there are none.
    pub(super) lowest: i32,
}

/// Returns which jobs are of a span.
pub(super) fn bounds(span: Span) -> Bounds {
    let due = |lowest| Bounds {
        after: -micros(Duration::MAX),
        within: 0,
        lowest,
    };
    match span {
        Span::Due => due(LOWEST_PRIORITY.into()),
        Span::Above(priority) => due(i32::from(priority) - 1),
        Span::Within(window) => Bounds {
            after: 0,
            within: micros(window),
            lowest: LOWEST_PRIORITY.into(),
        },
    }
}

/// Returns the names of kinds, or `None` for all.
pub(super) fn names(kinds: &Kinds) -> Option<Vec<&str>> {
    match kinds {
        Kinds::All => None,
        Kinds::Only(kinds) => Some(kinds.iter().map(String::as_str).collect()),
    }
}

/// Divides jobs and their tokens into what a statement gets.
pub(super) fn divide<'a>(
    attempts: impl Iterator<Item = (&'a String, &'a Token)>,
) -> (Vec<&'a str>, Vec<i64>) {
    attempts.map(|(key, token)| (key.as_str(), token.0)).unzip()
}

/// A job and a token. A batch may have a job twice, with an old and a new token.
pub(super) type Attempt = (String, Token);

/// Returns the attempts of an answer.
pub(super) fn attempts(found: &[Row]) -> Result<HashSet<Attempt>, StoreError> {
    let read = |row| Ok((get(row, 0)?, Token(get(row, 1)?)));
    found.iter().map(read).collect()
}
