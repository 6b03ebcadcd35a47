//! The flight recorder: each cause of lateness is made to happen on purpose, and is named.
//!
//! Three causes need more than a test: the machine is suspended or its clock set in `suspended`,
//! which runs in a virtual machine, and `tests/program/trace.rs` has time that a hypervisor takes.

use tourbillon_support as common;

mod causes;
mod recorder;
mod suspended;
mod throttled;
mod trace;

use std::{fs::File, process::Command, time::Duration};

use tourbillon::{
    Runtime,
    flight::{Cause, LateTimer, Snapshot},
};

use self::common::unix::Dir;

/// Returns the timers of a trace that have a span with this cause. If there are any,
/// `tourbillon trace` names it, too.
fn late_by(runtime: &Runtime, is_it: impl Fn(&Cause) -> bool) -> Vec<LateTimer> {
    let snapshot = runtime.handle().flight_recorder().snapshot();
    // A trace has the timers that are so late, beyond their tolerance.
    let mut late = snapshot.late_timers(Duration::from_micros(200));
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

/// Requires that `tourbillon trace` names a cause. Does nothing without the program, which needs
/// the feature `cli`.
fn check_the_words(snapshot: &Snapshot, cause: &str) {
    let Some(program) = option_env!("CARGO_BIN_EXE_tourbillon") else {
        return;
    };
    let directory = Dir::new();
    let path = directory.path("trace.json");
    snapshot.write_trace(File::create(&path).unwrap()).unwrap();
    let output = Command::new(program).arg("trace").arg(path).output();
    let words = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(words.contains(&format!("\n{cause} ")), "{cause}: {words}");
}
