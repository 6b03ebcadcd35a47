//! Time for tasks: [`sleep`], [`timeout`], [`interval`], under tokio's names.
//!
//! What differs from tokio: deadlines are exact to the nanosecond; an interval that was late
//! [skips](MissedTickBehavior::Skip) by default, where tokio's makes up for it in a burst; a period of
//! zero is no panic; and what waits for a runtime that is shut down ends at once.
//!
//! Tests need not wait: on a runtime whose clock is [paused](pause), time passes when there is nothing
//! else to do, and at once.

pub mod delay_queue;
pub(crate) mod interval;
pub(crate) mod paused;
pub(crate) mod sleep;
pub(crate) mod timeout;

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
    },
};
