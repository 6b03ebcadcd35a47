//! Callbacks by cron patterns: which instants a pattern names, and what happens when the wall clock
//! is set.

mod clock_steps;
mod oracle;
mod original;
mod reports;
mod schedule;
