//! Feature `tracing`: a span around each callback, and an event for each rescue.
//!
//! While nothing subscribes, a callback pays only for one check of the maximum level. Subscribers
//! are user code and may panic: such a panic is caught and counted as a panic of the worker.

use tourbillon_shards::Due;
use tracing::span::EnteredSpan;

use crate::engine::core::{Core, TimerOwner};

/// The span of a running callback. Dropping it exits the span.
pub(crate) struct Callback<'a> {
    core: &'a Core,
    span: Option<EnteredSpan>,
}

/// Enters the span of a callback that is about to run on the worker of `core`.
#[inline]
pub(crate) fn callback<'a, O: TimerOwner>(core: &'a Core, due: &Due<O>) -> Callback<'a> {
    let mut span = None;
    core.contain(|| {
        let callback = tracing::trace_span!(
            target: "tourbillon::timer",
            "tourbillon.callback",
            worker = core.index,
            callback = due.type_name().get(),
            lateness_us = lateness_us(due),
        );
        // A span without a subscriber is neither entered nor exited.
        span = (!callback.is_disabled()).then(|| callback.entered());
    });
    Callback { core, span }
}

/// Returns how long ago the deadline was, in µs, or zero if the timer was cancelled meanwhile.
fn lateness_us<O: TimerOwner>(due: &Due<O>) -> u64 {
    let now = due.home().owner().now();
    due.deadline()
        .map_or(0, |deadline| now.saturating_sub(deadline) / 1_000)
}

impl Drop for Callback<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(span) = self.span.take() {
            self.core.contain(|| drop(span));
        }
    }
}

/// What a rescue took over from a stuck worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rescue {
    /// The number of the stuck worker.
    pub(crate) from: usize,
    pub(crate) timers: usize,
    pub(crate) tasks: usize,
}

/// Emits the event of a rescue by the worker of `core`.
pub(crate) fn rescue(core: &Core, rescue: Rescue) {
    core.contain(|| {
        tracing::debug!(
            target: "tourbillon::rescue",
            worker = core.index,
            from = rescue.from,
            timers = rescue.timers,
            tasks = rescue.tasks,
            "took over jobs of a stuck worker"
        );
    });
}
