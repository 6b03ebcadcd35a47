//! The flight recorder: each cause of lateness is made to happen on purpose, and is named.
//!
//! Three causes need more than a test: the machine is suspended or its clock set in `suspended`,
//! which runs in a virtual machine, and `tests/program/trace.rs` has time that a hypervisor takes.

#[path = "../common/mod.rs"]
mod common;

mod causes;
mod recorder;
mod suspended;
mod trace;

use std::time::Duration;

use tourbillon::{
    Runtime,
    flight::{Cause, LateTimer},
};

/// Returns the late timers of a runtime that have a span with this cause.
fn late_by(runtime: &Runtime, is_it: impl Fn(&Cause) -> bool) -> Vec<LateTimer> {
    let snapshot = runtime.handle().flight_recorder().snapshot();
    let mut late = snapshot.late_timers(Duration::ZERO);
    for timer in &late {
        let sum: Duration = timer.spans.iter().map(|span| span.length).sum();
        assert_eq!(sum, timer.late, "the spans add up: {timer}");
    }
    late.retain(|timer| timer.spans.iter().any(|span| is_it(&span.cause)));
    late
}
