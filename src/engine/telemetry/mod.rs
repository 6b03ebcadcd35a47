//! Observation of a runtime: lateness of timers, polls of tasks, where tasks wait, snapshots, spans and events.

pub(crate) mod lateness;
pub(crate) mod polls;
pub(crate) mod snapshot;
#[cfg(feature = "tracing")]
pub(crate) mod trace;
pub(crate) mod traces;

/// Returns the number of the span that the calling thread is in: the origin of a timer that it
/// arms. `None` without feature `tracing`, or if no subscriber is interested.
#[inline]
pub(crate) fn current_span() -> Option<std::num::NonZeroU64> {
    #[cfg(feature = "tracing")]
    return trace::current_span();
    #[cfg(not(feature = "tracing"))]
    None
}
