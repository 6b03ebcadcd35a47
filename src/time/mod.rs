//! Time for tasks: [`sleep`], [`timeout`], [`interval`], under tokio's names.
//!
//! Differences from tokio:
//!
//! - Deadlines have nanosecond resolution.
//! - An interval that was late [skips](MissedTickBehavior::Skip) missed ticks by default. tokio's
//!   default delivers them in a burst.
//! - A period of zero does not panic.
//! - A wait on a runtime that is shut down ends at once.
//!
//! Tests do not have to wait in real time: on a runtime with a [paused](pause) clock, time advances
//! at once when there is nothing else to do.

mod armed;
pub mod delay_queue;
mod handle;
pub(crate) mod interval;
pub(crate) mod paused;
pub(crate) mod sleep;
pub(crate) mod timeout;
pub(crate) mod tolerance;

pub use std::time::Duration;

pub use crate::{
    clock::{instant::Instant, wall::BootInstant},
    error::NotPaused,
    time::{
        delay_queue::DelayQueue,
        interval::{Interval, MissedTickBehavior, interval, interval_at},
        paused::{advance, pause, resume, set_wall_clock, wall_clock},
        sleep::{Sleep, sleep, sleep_until},
        timeout::{Elapsed, Timeout, timeout, timeout_at},
        tolerance::{WithTolerance, tolerant, with_tolerance},
    },
};
