//! Metrics: how many timers wait and where, what each worker has done, and how late timers are.
//!
//! No test of this program pauses a clock. Once a process has paused one, a sleep may be over before
//! it is armed, and [`lateness`] does not count such a sleep.

#[path = "../common/mod.rs"]
mod common;

mod counts;
mod lateness;
mod timer_info;
mod totals;
