//! What the statements get, and what they answer.

use std::{collections::HashSet, time::Duration};

use tokio_postgres::Row;

use super::connection::failed;
use crate::{
    job::Token,
    node::session::LONGEST,
    remote::{Moment, micros},
    store::{Span, StoreError},
};

pub(super) fn get<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a Row,
    column: usize,
) -> Result<T, StoreError> {
    row.try_get(column).map_err(failed)
}

/// The statements wake the nodes of a job that is due within this many microseconds. The nodes find
/// later ones when they look by themselves.
pub(super) fn soon() -> i64 {
    micros(2 * LONGEST)
}

/// Times as a statement gets them.
pub(super) struct Times {
    pub(super) micros: Vec<i64>,
    pub(super) are_delays: Vec<bool>,
    pub(super) counted: Vec<Option<i64>>,
}

impl Times {
    pub(super) fn new(moments: impl Iterator<Item = Moment> + Clone) -> Self {
        Self {
            micros: moments.clone().map(|moment| moment.micros).collect(),
            are_delays: moments.clone().map(|moment| moment.is_delay).collect(),
            counted: moments.map(|moment| moment.counted).collect(),
        }
    }
}

/// Returns after and within which times of now the jobs of a span are due.
pub(super) fn bounds(span: Span) -> (i64, i64) {
    match span {
        Span::Due => (-micros(Duration::MAX), 0),
        Span::Within(window) => (0, micros(window)),
    }
}

/// A job and a token. A batch may have a job twice, with an old and a new token.
pub(super) type Attempt = (String, Token);

/// Returns the attempts of an answer.
pub(super) fn attempts(found: &[Row]) -> Result<HashSet<Attempt>, StoreError> {
    let read = |row| Ok((get(row, 0)?, Token(get(row, 1)?)));
    found.iter().map(read).collect()
}
