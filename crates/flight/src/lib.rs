#![doc = include_str!("../README.md")]

mod analysis;
mod cause;
mod found;
mod json;
mod late;
mod stalls;
mod timeline;
mod trace;

use std::{cmp::Reverse, time::Duration};

use tourbillon::flight::Snapshot;

pub use self::{
    analysis::Analysis,
    cause::{Cause, CauseTotal, JobTotal, NotTaken, causes, jobs},
    found::{Found, Key, Stage},
    late::{LateTimer, Span},
    stalls::{StackTotal, own_line, stacks},
    trace::write_trace,
};

/// Returns the timers that ran at least this long after their deadlines and tolerances, the latest
/// one first, each with the causes of its lateness.
///
/// In light recording only timers that were 200 µs late or later are known: all of those that were
/// late already when they were taken from their store, and one in 16 of those that were only queued
/// for long.
///
/// A sleep that a task polls long after it was woken counts as late, whatever the task did in
/// between.
pub fn late_timers(snapshot: &Snapshot, at_least: Duration) -> Vec<LateTimer> {
    let analysis = Analysis::new(snapshot);
    let found = analysis.find(at_least);
    let mut late: Vec<_> = found.iter().map(|it| analysis.explain(it)).collect();
    late.sort_by_key(|timer| Reverse(timer.late));
    late
}

/// Returns a duration in ns, or the most that fits.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
