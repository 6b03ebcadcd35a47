//! Intervals in tokio's spans, by which tokio-console sees them as resources.

use std::{
    fmt,
    future::poll_fn,
    panic::Location,
    task::{Context, Poll},
};

use tourbillon::{
    facade::tracing::{Span, trace, trace_span},
    time::{self, Duration, Instant, MissedTickBehavior},
};

/// An interval of Tourbillon's, in tokio's spans.
pub struct Interval {
    interval: time::Interval,
    resource: Span,
}

impl Interval {
    pub(super) fn new(interval: time::Interval, place: &'static Location<'static>) -> Self {
        let resource = trace_span!(
            target: "tokio::time::interval",
            parent: None,
            "runtime.resource",
            concrete_type = "Interval",
            kind = "timer",
            loc.file = place.file(),
            loc.line = place.line(),
            loc.col = place.column(),
        );
        Self { interval, resource }
    }

    /// Waits for the next tick, and returns when it was due. If this future is dropped before it
    /// is ready, no tick is lost.
    pub async fn tick(&mut self) -> Instant {
        // The operation is dropped first, as in tokio.
        let resource = self.resource.clone();
        let (poll, operation) = resource.in_scope(|| {
            let operation = trace_span!(
                target: "tokio::util::trace",
                "runtime.resource.async_op",
                source = "Interval::tick",
                inherits_child_attrs = false
            );
            let poll = operation.in_scope(
                || trace_span!(target: "tokio::util::trace", "runtime.resource.async_op.poll"),
            );
            (poll, operation)
        });
        poll_fn(|cx| {
            let _resource = resource.enter();
            let _operation = operation.enter();
            let _poll = poll.enter();
            let polled = self.poll_tick(cx);
            trace!(
                target: "runtime::resource::poll_op",
                op_name = "poll_tick",
                is_ready = polled.is_ready()
            );
            polled
        })
        .await
    }

    /// Polls for the next tick, without the spans of an operation, as in tokio.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Instant> {
        self.interval.poll_tick(cx)
    }

    /// Sets the next tick to one period from now.
    pub fn reset(&mut self) {
        self.interval.reset();
    }

    /// Makes the next tick come at once.
    pub fn reset_immediately(&mut self) {
        self.interval.reset_immediately();
    }

    /// Sets the next tick to `after` from now.
    pub fn reset_after(&mut self, after: Duration) {
        self.interval.reset_after(after);
    }

    /// Sets the next tick to `deadline`, or to now if `deadline` has passed.
    pub fn reset_at(&mut self, deadline: Instant) {
        self.interval.reset_at(deadline);
    }

    /// Returns what the interval does after a missed tick.
    pub fn missed_tick_behavior(&self) -> MissedTickBehavior {
        self.interval.missed_tick_behavior()
    }

    /// Sets what the interval does after a missed tick.
    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        self.interval.set_missed_tick_behavior(behavior);
    }

    /// Returns the time between ticks.
    pub fn period(&self) -> Duration {
        self.interval.period()
    }
}

impl fmt::Debug for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.interval.fmt(f)
    }
}
