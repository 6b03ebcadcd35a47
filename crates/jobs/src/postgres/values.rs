//! What the statements get, and what they answer.

use std::{collections::HashSet, time::Duration};

use tokio_postgres::{
    Row,
    types::{FromSql, FromSqlOwned},
};

use super::connection::failed;
use crate::{
    job::{Repeat, Token, When},
    node::session::LONGEST,
    remote::{Moment, micros},
    row::{self, Get},
    store::{Kinds, Span, StoreError},
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

/// Returns after and within which times of now the jobs of a span are due.
pub(super) fn bounds(span: Span) -> (i64, i64) {
    match span {
        Span::Due => (-micros(Duration::MAX), 0),
        Span::Within(window) => (0, micros(window)),
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
