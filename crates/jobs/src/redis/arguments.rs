//! The arguments of the scripts.

use redis::ScriptInvocation;

use crate::{job::When, remote::Moment};

/// Rounds a time up to one that the server's numbers can represent. They have 53 bits, so this
/// changes only times after the year 2255.
pub(super) fn exact(micros: i64) -> i64 {
    let micros = micros.min(1 << 61);
    let near = micros as f64;
    let up = match (near as i64) < micros {
        true => near.next_up(),
        false => near,
    };
    up as i64
}

/// Returns the argument of a time from which another one was counted, or of none.
pub(super) fn optional(time: Option<i64>) -> String {
    time.map_or_else(String::new, |micros| exact(micros).to_string())
}

/// Adds the arguments of a time and of a pattern.
pub(super) fn add_when(call: &mut ScriptInvocation<'_>, when: &When, time: Moment) {
    let repeat = when.repeat();
    call.arg(exact(time.micros))
        .arg(i32::from(time.is_delay))
        .arg(optional(time.counted))
        .arg(repeat.map_or("", |repeat| repeat.pattern()))
        .arg(repeat.map_or("", |repeat| repeat.zone()));
}
