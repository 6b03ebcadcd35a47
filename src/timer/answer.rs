//! What a timer's methods answer, and what its callback is told.
//!
//! They are types of this crate, so that its public API names none of `tourbillon_shards`. Each has
//! the variants of the type that a shard answers with, in the same order, so that the conversion
//! costs nothing.

use tourbillon_shards as shards;

/// How a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The deadline passed, and the timer ran.
    Fired,
    /// The timer was cancelled before it ran.
    Cancelled,
    /// The runtime was shut down before the timer ran, or had been when the timer was armed.
    Shutdown,
    /// The runtime was full when the timer was armed: see
    /// [`Builder::max_timers`](crate::runtime::Builder::max_timers).
    Refused,
}

/// The answer of [`Timer::cancel`](crate::Timer::cancel). It is exact: if several threads try to
/// end a timer, one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// This call cancelled the timer: its callback will not run again, and is dropped. A callback
    /// that takes an outcome is called once more, with [`Outcome::Cancelled`]. If the timer was not
    /// started, that call comes when it is started.
    Cancelled,
    /// The timer recurs and is running. This call makes that run the last one.
    AfterRun,
    /// Too late: the timer is running for the last time.
    Running,
    /// Too late: the timer was over or cancelled before.
    Over,
}

/// The answer of [`Timer::refresh`](crate::Timer::refresh),
/// [`Timer::reset_after`](crate::Timer::reset_after),
/// [`Timer::reset_from_start`](crate::Timer::reset_from_start) and
/// [`Timer::reset_at`](crate::Timer::reset_at). It is exact, as [`Cancel`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The timer waits for the new deadline.
    Pending,
    /// The timer recurs and is running. After this run it waits for the new deadline.
    AfterRun,
    /// The timer was not started. Nothing has changed.
    NotStarted,
    /// Too late: the timer is running for the last time, or is over.
    TooLate,
}

/// The answer of [`Timer::start`](crate::Timer::start).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The timer waits for its deadline.
    Pending,
    /// The timer was cancelled before. If its callback takes an outcome, the first call of `start`
    /// passes it on, once.
    Cancelled,
    /// The runtime has been shut down, and the timer with it, by this call or before. If its
    /// callback takes an outcome, it gets that one, once.
    Shutdown,
    /// The timer was started before. Nothing has changed.
    AlreadyStarted,
    /// The runtime was full when the timer was built.
    Refused,
}

/// The state of a timer: see [`Timer::status`](crate::Timer::status).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// The timer was built and not started.
    NotStarted,
    /// The timer waits for its deadline, or for a worker to run it.
    Pending,
    /// The callback is running, or is about to be called with the outcome. If `last` is false, it
    /// will run again.
    Running {
        /// Whether this is its last run.
        last: bool,
    },
    /// The timer is over.
    Over(Outcome),
}

// Not `From`: an implementation would be public, and name a type of the shards.

impl Outcome {
    #[inline]
    pub(crate) fn of(shard: shards::Outcome) -> Self {
        match shard {
            shards::Outcome::Fired => Self::Fired,
            shards::Outcome::Cancelled => Self::Cancelled,
            shards::Outcome::Shutdown => Self::Shutdown,
            shards::Outcome::Refused => Self::Refused,
        }
    }
}

impl Cancel {
    #[inline]
    pub(crate) fn of(shard: shards::Cancel) -> Self {
        match shard {
            shards::Cancel::Cancelled => Self::Cancelled,
            shards::Cancel::AfterRun => Self::AfterRun,
            shards::Cancel::Running => Self::Running,
            shards::Cancel::Over => Self::Over,
        }
    }
}

impl Reset {
    #[inline]
    pub(crate) fn of(shard: shards::Reset) -> Self {
        match shard {
            shards::Reset::Pending => Self::Pending,
            shards::Reset::AfterRun => Self::AfterRun,
            shards::Reset::NotStarted => Self::NotStarted,
            shards::Reset::TooLate => Self::TooLate,
        }
    }
}

impl Started {
    #[inline]
    pub(crate) fn of(shard: shards::Started) -> Self {
        match shard {
            shards::Started::Pending => Self::Pending,
            shards::Started::Cancelled => Self::Cancelled,
            shards::Started::Shutdown => Self::Shutdown,
            shards::Started::AlreadyStarted => Self::AlreadyStarted,
            shards::Started::Refused => Self::Refused,
        }
    }
}

impl Status {
    #[inline]
    pub(crate) fn of(shard: shards::Status) -> Self {
        match shard {
            shards::Status::NotStarted => Self::NotStarted,
            shards::Status::Pending => Self::Pending,
            shards::Status::Running { last } => Self::Running { last },
            shards::Status::Over(how) => Self::Over(Outcome::of(how)),
        }
    }
}
