#![doc = include_str!("../README.md")]
//!
//! # Patterns
//!
//! A pattern is `minute hour day-of-month month day-of-week`, optionally with a second in front.
//! Each field is `*`, a value, a list `1,2`, a range `1-5`, or a step `*/2` or `1-9/2`.
//!
//! | field | values | also |
//! |---|---|---|
//! | second, minute | 0 to 59 | |
//! | hour | 0 to 23 | |
//! | day of the month | 1 to 31 | `L`, `15W`, `LW`, `?` |
//! | month | 1 to 12, `JAN` to `DEC` | |
//! | day of the week | 0 to 7 (0 and 7 are Sunday), `SUN` to `SAT` | `FRI#2`, `FRIL`, `?` |
//!
//! `L` is the last day of the month, `15W` the weekday nearest to the 15th in the same month, and
//! `LW` the last weekday. `FRI#2` is the second Friday of the month, and `FRIL` the last one. `?`
//! is the same as `*`.
//!
//! If neither the day of the month nor the day of the week begins with a `*`, a day that matches
//! either of them is enough, as in cron. Otherwise both must match: `0 0 */2 * MON` means odd days
//! that are Mondays. With a `+` before the day of the week (`0 0 13 * +FRI`), both must match, too.
//!
//! `@hourly`, `@daily`, `@midnight`, `@weekly` (on Sunday), `@monthly`, `@yearly` and `@annually`
//! are names of usual patterns. They mean the first minute of each period.
//!
//! # Changes of the clock
//!
//! When clocks go forward or back, the rule depends on the pattern, as in cron. A pattern whose
//! second, minute or hour begins with a `*`, such as `*/15`, is an *interval*. So is one that names
//! all values of such a field, other than in cron. Any other pattern means *times of the day*.
//!
//! - **A local time is skipped.** Times of the day (`30 2 * * *`) run at the first instant after
//!   the gap, and only once if several of them are in the gap. An interval (`*/15 * * * *`, `0 * *
//!   * *`) does not run; its next run is at the next matching time that clocks show.
//! - **A local time occurs twice.** Times of the day run the first time. An interval runs both
//!   times.
//!
//! So a job at half past two runs once on every day, and an hourly job runs once in every hour that
//! passes. `*/20 2 * * *` begins with a `*`, so it does not run on the day without two o'clock.
//! Write `0,20,40 2 * * *` instead.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

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

pub use crate::{
    builder::Cron,
    error::{CronError, Field},
    handle::{CancelOnDrop, CronJob},
    job::Occurrence,
    policy::{Missed, Overlap},
    schedule::{Schedule, Upcoming},
};
