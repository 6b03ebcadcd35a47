//! Time, by Tourbillon: sleeps have a resolution of 1 ns.

pub use tourbillon::time::{
    Duration, Instant, Interval, MissedTickBehavior, Sleep, Timeout, advance, pause, resume, sleep,
    sleep_until, timeout, timeout_at,
};

/// Errors of this module.
pub mod error {
    pub use tourbillon::time::Elapsed;
}

/// Creates an interval whose first tick is now. Missed ticks come in a burst, as in tokio.
///
/// # Panics
///
/// Panics if `period` is zero.
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Creates an interval whose first tick is at `start`. Missed ticks come in a burst, as in tokio.
///
/// # Panics
///
/// Panics if `period` is zero.
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    let mut interval = tourbillon::time::interval_at(start, period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Burst);
    interval
}
