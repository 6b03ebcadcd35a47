//! Time for tasks: [`sleep`], [`timeout`], [`interval`], under tokio's names.
//!
//! What differs from tokio: deadlines are exact to the nanosecond; an interval that was late
//! [skips](MissedTickBehavior::Skip) by default, where tokio's makes up for it in a burst; a period of
//! zero is no panic; and what waits for a runtime that is shut down ends at once.
//!
//! Tests need not wait: on a runtime whose clock is [paused](pause), time passes when there is nothing
//! else to do, and at once.

mod clock;
pub mod delay_queue;
mod instant;
mod interval;
mod other;
mod paused;
mod sleep;
mod timeout;
pub(crate) mod wall;

pub use std::time::Duration;

pub(crate) use self::clock::{Clock, Epoch};
pub(crate) use self::other::OtherClock;
pub use self::{
    delay_queue::DelayQueue,
    instant::Instant,
    interval::{Interval, MissedTickBehavior, interval, interval_at},
    paused::{NotPaused, advance, pause, resume, set_wall_clock, wall_clock},
    sleep::{Sleep, sleep, sleep_until},
    timeout::{Elapsed, Timeout, timeout, timeout_at},
    wall::BootInstant,
};
