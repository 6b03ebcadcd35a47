//! What a call answers, and what a callback receives and returns.
//!
//! These types say nothing of nodes, shards or threads, so every other module may name them.

use std::ops::ControlFlow;

/// Kind of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// A callback that runs once.
    Once,
    /// A callback that runs repeatedly.
    Recurring,
    /// A sleep, which wakes a task.
    Sleep,
}

/// How a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The deadline passed, and the timer ran.
    Fired,
    /// The timer was cancelled before it ran.
    Cancelled,
    /// The shard was closed before the timer ran.
    Shutdown,
    /// The owner refused the timer: see [`Timer::refused`](crate::Timer::refused).
    Refused,
}

/// Result of a run: `Continue` if a recurring timer runs again, or `Break` with the outcome if it
/// ended. A timer that runs once ends after its run in either case.
pub type Flow = ControlFlow<Outcome>;

/// The result of [`Timer::cancel`](crate::Timer::cancel). It is exact: if several threads try to
/// end a timer, one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// This call cancelled the timer: its callback will not run again, and is dropped. A callback
    /// that takes an outcome is called once more, with [`Outcome::Cancelled`]. If the timer was not
    /// started, that call comes when it is started.
    Cancelled,
    /// The timer recurs and is running. This call makes that run the last one.
    AfterRun,
    /// Too late: the timer is running for the only time.
    Running,
    /// Too late: the timer was over or cancelled before.
    Over,
}

/// The result of [`Timer::reset_at`](crate::Timer::reset_at),
/// [`Timer::reset_after`](crate::Timer::reset_after),
/// [`Timer::reset_from_start`](crate::Timer::reset_from_start) and
/// [`Timer::refresh`](crate::Timer::refresh). It is exact, as [`Cancel`] is.
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

/// The result of [`Timer::start`](crate::Timer::start).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The timer waits for its deadline.
    Pending,
    /// The timer was cancelled before. If its callback takes an outcome, the first call of `start`
    /// passes it on, once.
    Cancelled,
    /// The shard is closed, and the timer was shut down, by this call or before. If its callback
    /// takes an outcome, it gets that one, once.
    Shutdown,
    /// The timer was started before. Nothing has changed.
    AlreadyStarted,
    /// The owner refused the timer when it was made.
    Refused,
}

/// The state of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
