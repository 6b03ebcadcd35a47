//! Reads jobs from the rows of the stores' answers, which have the same columns in each store.

use crate::{
    job::{DEFAULT_PRIORITY, Job, Repeat, State, Time, Token},
    recount::Counted,
    store::Held,
};

/// A row of an answer.
pub(crate) trait Row {
    type Error;
}

/// Returns a value of this type from a column of a row.
pub(crate) trait Get<T>: Row {
    fn at(&self, column: usize) -> Result<T, Self::Error>;
}

/// A row with values of all the types that jobs have.
pub(crate) trait Values:
    Get<String> + Get<Option<String>> + Get<Vec<u8>> + Get<i64> + Get<bool>
{
    fn time(&self, column: usize) -> Result<Time, Self::Error> {
        Ok(Time::from_micros(self.at(column)?))
    }

    fn attempts(&self, column: usize) -> Result<u32, Self::Error> {
        let attempts: i64 = self.at(column)?;
        Ok(u32::try_from(attempts).unwrap_or(0))
    }

    fn priority(&self, column: usize) -> Result<u8, Self::Error> {
        let priority: i64 = self.at(column)?;
        Ok(u8::try_from(priority).unwrap_or(DEFAULT_PRIORITY))
    }

    /// Reads a pattern, and its time zone from the next column.
    fn repeat(&self, column: usize) -> Result<Option<Repeat>, Self::Error> {
        let pattern: Option<String> = self.at(column)?;
        let zone: Option<String> = self.at(column + 1)?;
        let both = pattern.zip(zone);
        Ok(both.map(|(pattern, zone)| Repeat::stored(pattern, zone)))
    }
}

impl<R> Values for R where
    R: Get<String> + Get<Option<String>> + Get<Vec<u8>> + Get<i64> + Get<bool> + ?Sized
{
}

/// Reads a job from `key, payload, due, at, attempts, pattern, zone, error, dead, running,
/// kind, priority, queue, traceparent`.
pub(crate) fn job<R: Values + ?Sized>(row: &R) -> Result<Job, R::Error> {
    Ok(Job {
        key: row.at(0)?,
        kind: row.at(10)?,
        queue: row.at(12)?,
        priority: row.priority(11)?,
        payload: row.at(1)?,
        due: row.time(2)?,
        at: row.time(3)?,
        attempts: row.attempts(4)?,
        repeat: row.repeat(5)?,
        error: row.at(7)?,
        state: match (row.at(8)?, row.at(9)?) {
            (true, _) => State::Dead,
            (false, true) => State::Running,
            (false, false) => State::Waiting,
        },
        traceparent: row.at(13)?,
    })
}

/// Reads a job from `key, due, at, attempts, pattern, zone, length of the payload, token, kind,
/// priority, queue, traceparent`.
pub(crate) fn held<R: Values + ?Sized>(row: &R) -> Result<Held, R::Error> {
    let size: i64 = row.at(6)?;
    Ok(Held {
        key: row.at(0)?,
        kind: row.at(8)?,
        queue: row.at(10)?,
        priority: row.priority(9)?,
        due: row.time(1)?,
        at: row.time(2)?,
        attempts: row.attempts(3)?,
        repeat: row.repeat(4)?,
        size: usize::try_from(size).unwrap_or(0),
        token: Token(row.at(7)?),
        traceparent: row.at(11)?,
    })
}

/// Reads a job from `key, at, counted, attempts, pattern, zone`.
pub(crate) fn counted<R: Values + ?Sized>(row: &R) -> Result<Counted, R::Error> {
    Ok(Counted {
        key: row.at(0)?,
        at: row.time(1)?,
        counted: row.time(2)?,
        attempts: row.attempts(3)?,
        repeat: row.repeat(4)?,
    })
}
