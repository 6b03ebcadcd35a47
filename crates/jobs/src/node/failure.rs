//! How an attempt fails.

use std::{fmt, time::Duration};

use super::Cause;

/// Why an attempt failed, or did not do its work yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub(super) error: String,
    pub(super) then: Then,
    pub(super) cause: Cause,
}

/// What follows an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Retry,
    GiveUp,
    Snooze(Duration),
}

impl Failure {
    /// Another attempt follows, if the job has one left.
    pub fn retry(error: impl fmt::Display) -> Self {
        Self {
            error: error.to_string(),
            then: Then::Retry,
            cause: Cause::Error,
        }
    }

    /// Returns the failure for another cause than an error of the handler.
    pub(super) fn by(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// No other attempt follows: the job is dead. A cron job waits for its next occurrence.
    pub fn give_up(error: impl fmt::Display) -> Self {
        Self {
            error: error.to_string(),
            then: Then::GiveUp,
            cause: Cause::Error,
        }
    }

    /// The job is not ready: another attempt follows after this delay. This one does not count, so
    /// a job can snooze for ever, and the job keeps the error of an earlier attempt.
    ///
    /// The delay begins when the store learns of it. If the process ends before that, the attempt
    /// counts. A cron job has no other occurrence meanwhile.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use tourbillon_jobs::{Attempt, Failure};
    /// # fn is_uploaded(_: &[u8]) -> bool { true }
    /// async fn convert(attempt: Attempt) -> Result<(), Failure> {
    ///     if !is_uploaded(&attempt.payload) {
    ///         return Err(Failure::snooze(Duration::from_secs(30)));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn snooze(delay: Duration) -> Self {
        Self {
            error: String::new(),
            then: Then::Snooze(delay),
            cause: Cause::Error,
        }
    }
}

/// Each error means another attempt.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::retry(error)
    }
}
