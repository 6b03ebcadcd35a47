//! Observation of a runtime: lateness of timers, snapshots, spans and events.

pub(crate) mod lateness;
pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
