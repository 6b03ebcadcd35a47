//! Time for tasks: [`sleep`], [`timeout`], [`interval`], under tokio's names.

mod clock;
pub mod delay_queue;
mod instant;
mod interval;
mod sleep;
mod timeout;

pub use std::time::Duration;

pub(crate) use self::clock::Clock;
pub use self::{
    delay_queue::DelayQueue,
    instant::Instant,
    interval::{Interval, MissedTickBehavior, interval, interval_at},
    sleep::{Sleep, sleep, sleep_until},
    timeout::{Elapsed, Timeout, timeout, timeout_at},
};
