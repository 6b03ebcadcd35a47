//! Callbacks by cron patterns: which instants a pattern names, and what happens when the wall clock
//! is set.

#[path = "../common/mod.rs"]
mod common;

mod clock_steps;
mod oracle;
mod original;
mod schedule;
