//! Callbacks by cron patterns, in time zones.
//!
//! ```
//! use std::time::SystemTime;
//! use tourbillon::cron::Cron;
//!
//! let cron = Cron::parse("0 9 * * MON-FRI")?.time_zone("Europe/Paris")?;
//! for at in cron.schedule().upcoming(SystemTime::now()).take(3) {
//!     println!("{}", cron.schedule().zoned(at).unwrap());
//! }
//! # Ok::<(), tourbillon::cron::CronError>(())
//! ```
//!
//! # Patterns
//!
//! `minute hour day-of-month month day-of-week`, or the same with a second before it; in each field
//! `*`, a value, a list `1,2`, a range `1-5`, a step `*/2` or `1-9/2`.
//!
//! | field | values | besides |
//! |---|---|---|
//! | second, minute | 0 to 59 | |
//! | hour | 0 to 23 | |
//! | day of the month | 1 to 31 | `L`: the last. `15W`: the weekday nearest to the 15th, in the same month. `LW`: the last weekday. `?`: as `*` |
//! | month | 1 to 12, `JAN` to `DEC` | |
//! | day of the week | 0 to 7 (0 and 7 are Sunday), `SUN` to `SAT` | `FRI#2`: the second Friday of the month. `FRIL`: its last. `?`: as `*` |
//!
//! If neither the day of the month nor that of the week is `*`, either is enough, as in cron; with
//! a `+` before the day of the week (`0 0 13 * +FRI`) both have to match.
//!
//! `@hourly`, `@daily` and `@midnight`, `@weekly` (Sunday), `@monthly`, `@yearly` and `@annually`
//! are names for the usual ones, at the first minute of each.
//!
//! # Where clocks are put forward or back
//!
//! As in cron, it depends on whether the pattern has a `*` in its second, minute or hour (`*/15`
//! counts, and a list of all there are): such a pattern means *every so often*, any other means
//! *times of the day*.
//!
//! | | times of the day: `30 2 * * *` | every so often: `*/15 * * * *`, `0 * * * *` |
//! |---|---|---|
//! | a local time that does not exist | runs when clocks have been put forward, at the first instant after the gap; once, however many times fell in | does not run: the next one is what clocks show next |
//! | a local time that there is twice | runs the first time | runs both times |
//!
//! So a job at half past two runs on each day, once; and one of each hour runs in each hour that
//! passes. `*/20 2 * * *`, which has a `*`, does not run on the day without two o'clock: write
//! `0,20,40 2 * * *`.

mod builder;
mod driver;
#[cfg(test)]
mod driver_tests;
mod error;
mod handle;
mod job;
#[cfg(test)]
mod job_tests;
mod pattern;
mod policy;
mod schedule;
mod start;

pub use jiff;

pub use self::{
    builder::Cron,
    error::{CronError, Field},
    handle::{CancelOnDrop, CronJob},
    job::Occurrence,
    policy::{Missed, Overlap},
    schedule::{Schedule, Upcoming},
    start::cron,
};
