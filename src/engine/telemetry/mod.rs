//! Observation of a runtime: lateness of timers, polls of tasks, snapshots, spans and events.

pub(crate) mod lateness;
#[cfg_attr(
    not(feature = "inspect"),
    expect(dead_code, reason = "only the live page asks for polls")
)]
pub(crate) mod polls;
pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
