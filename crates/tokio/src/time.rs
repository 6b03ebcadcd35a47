//! Time, by Tourbillon: sleeps have a resolution of 1 ns.

pub use tourbillon::time::{
    Duration, Instant, MissedTickBehavior, Timeout, advance, pause, resume,
};
#[cfg(not(all(tokio_unstable, feature = "tracing")))]
pub use tourbillon::time::{Interval, Sleep};

#[cfg(all(tokio_unstable, feature = "tracing"))]
pub use self::{interval::Interval, sleep::Sleep};
use crate::context::need_time;

#[cfg(all(tokio_unstable, feature = "tracing"))]
mod interval;
#[cfg(all(tokio_unstable, feature = "tracing"))]
mod sleep;

/// Errors of this module.
pub mod error {
    use std::{error, fmt};

    pub use tourbillon::time::Elapsed;

    /// An error of tokio's timers. No function here returns it: these timers have no bounds, and
    /// outside of a runtime they panic.
    #[derive(Clone, Copy, Debug)]
    pub struct Error(Kind);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Kind {
        Shutdown,
        AtCapacity,
        Invalid,
    }

    impl Error {
        /// Creates the error that there are no timers any more.
        pub fn shutdown() -> Self {
            Self(Kind::Shutdown)
        }

        /// Returns whether there are no timers any more.
        pub fn is_shutdown(&self) -> bool {
            self.0 == Kind::Shutdown
        }

        /// Creates the error that there are too many timers.
        pub fn at_capacity() -> Self {
            Self(Kind::AtCapacity)
        }

        /// Returns whether there are too many timers.
        pub fn is_at_capacity(&self) -> bool {
            self.0 == Kind::AtCapacity
        }

        /// Creates the error that a duration is too long.
        pub fn invalid() -> Self {
            Self(Kind::Invalid)
        }

        /// Returns whether a duration is too long.
        pub fn is_invalid(&self) -> bool {
            self.0 == Kind::Invalid
        }
    }

    impl fmt::Display for Error {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self.0 {
                Kind::Shutdown => "the runtime is shut down, and its timers with it",
                Kind::AtCapacity => "there are too many timers",
                Kind::Invalid => "the duration is longer than a timer can wait",
            })
        }
    }

    impl error::Error for Error {}
}

/// Waits until `duration` has passed.
///
/// # Panics
///
/// Panics outside of a runtime, and in one without timers.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    need_time();
    traced(tourbillon::time::sleep(duration))
}

/// Waits until `deadline`.
///
/// # Panics
///
/// See [`sleep`].
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    need_time();
    traced(tourbillon::time::sleep_until(deadline))
}

/// Puts a sleep into tokio's spans, if these are built.
#[track_caller]
fn traced(sleep: tourbillon::time::Sleep) -> Sleep {
    #[cfg(all(tokio_unstable, feature = "tracing"))]
    return Sleep::new(sleep, std::panic::Location::caller());
    #[cfg(not(all(tokio_unstable, feature = "tracing")))]
    sleep
}

/// Limits the time that a future may take.
///
/// # Panics
///
/// See [`sleep`].
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    need_time();
    tourbillon::time::timeout(duration, future)
}

/// Limits the time that a future may take to a moment.
///
/// # Panics
///
/// See [`sleep`].
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    need_time();
    tourbillon::time::timeout_at(deadline, future)
}

/// Creates an interval whose first tick is now. Missed ticks come in a burst, as in tokio.
///
/// # Panics
///
/// Panics if `period` is zero. See also [`sleep`].
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Creates an interval whose first tick is at `start`. Missed ticks come in a burst, as in tokio.
///
/// # Panics
///
/// Panics if `period` is zero. See also [`sleep`].
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(period > Duration::ZERO, "`period` must be non-zero.");
    need_time();
    let mut interval = tourbillon::time::interval_at(start, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    #[cfg(all(tokio_unstable, feature = "tracing"))]
    return Interval::new(interval, std::panic::Location::caller());
    #[cfg(not(all(tokio_unstable, feature = "tracing")))]
    interval
}
