//! The watchdog: peers rescue a worker that does not return to its loop, and report long jobs.
//!
//! - `rescue`: a peer takes over the timers, sockets and next task of a stuck worker.
//! - `rest`: whether a worker that goes to sleep sets its alarm.
//! - `rescuers`: limits how many workers rescue at once, and how often.
//! - `looks`: what peers note about a worker between two checks.
//! - `watch`: the job that a worker publishes, for peers to read.
//! - `seen`: what peers have seen of these jobs.
//! - `report`, `stall`: finds jobs that take too long, and reports them.

pub(crate) mod alarm;
pub(crate) mod looks;
pub(crate) mod report;
pub(crate) mod rescue;
pub(crate) mod rescuers;
pub(crate) mod rest;
pub(crate) mod seen;
pub(crate) mod stall;
pub(crate) mod state;
pub(crate) mod watch;
