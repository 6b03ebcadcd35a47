//! Each cause of lateness is made to happen on purpose, and is named.
//!
//! Three causes need more than a test: the machine is suspended or its clock set in `suspended`,
//! which runs in a virtual machine, and the tests of the program's `trace` have time that a
//! hypervisor takes.

use tourbillon_support as common;

mod causes;
mod suspended;
mod throttled;
mod trace;

use std::time::Duration;

use serde_json::Value;
use tourbillon::{Runtime, flight::Snapshot};
use tourbillon_flight::{Cause, LateTimer, late_timers, write_trace};

/// Returns the late timers of a runtime that have a span with this cause. If there are any, the
/// trace names it, too.
fn late_by(runtime: &Runtime, is_it: impl Fn(&Cause) -> bool) -> Vec<LateTimer> {
    let snapshot = runtime.flight_recorder().snapshot();
    // A trace has the timers that are so late, beyond their tolerance.
    let mut late = late_timers(&snapshot, Duration::from_micros(200));
    for timer in &late {
        let sum: Duration = timer.spans.iter().map(|span| span.length).sum();
        assert_eq!(sum, timer.late, "the spans add up: {timer}");
    }
    late.retain(|timer| timer.spans.iter().any(|span| is_it(&span.cause)));
    let mut spans = late.iter().flat_map(|timer| &timer.spans);
    if let Some(span) = spans.find(|span| is_it(&span.cause)) {
        check_the_words(&snapshot, span.cause.name());
    }
    late
}

/// Requires that a trace names a cause where `tourbillon trace` reads its words: in the sums, and
/// in a late timer.
fn check_the_words(snapshot: &Snapshot, cause: &str) {
    let mut trace = Vec::new();
    write_trace(snapshot, &mut trace).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    let ours = &trace["tourbillon"];
    let has_cause = |all: &Value| {
        let mut all = all.as_array().unwrap().iter();
        all.any(|it| it["cause"] == cause)
    };
    assert!(has_cause(&ours["causes"]), "{cause}: {ours}");
    let mut late = ours["late"].as_array().unwrap().iter();
    assert!(
        late.any(|timer| has_cause(&timer["spans"])),
        "{cause}: {ours}"
    );
}
