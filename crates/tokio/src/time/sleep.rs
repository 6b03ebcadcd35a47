//! Sleeps in tokio's spans, by which tokio-console sees them as resources.

use std::{
    fmt,
    panic::Location,
    pin::Pin,
    task::{Context, Poll},
};

use tourbillon::{
    facade::tracing::{Span, trace, trace_span},
    time::{self, Instant},
};

/// A sleep of Tourbillon's, in tokio's spans.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    sleep: time::Sleep,
    // Dropped in this order, as in tokio.
    operation: Span,
    poll: Span,
    resource: Span,
    is_begun: bool,
}

impl Sleep {
    pub(super) fn new(sleep: time::Sleep, place: &'static Location<'static>) -> Self {
        let resource = trace_span!(
            target: "tokio::time::sleep",
            parent: None,
            "runtime.resource",
            concrete_type = "Sleep",
            kind = "timer",
            loc.file = place.file(),
            loc.line = place.line(),
            loc.col = place.column(),
        );
        let operation = trace_span!(
            target: "tokio::time::sleep",
            parent: &resource,
            "runtime.resource.async_op",
            source = "Sleep::new_timeout",
        );
        let poll = trace_span!(
            target: "tokio::time::sleep",
            parent: &operation,
            "runtime.resource.async_op.poll"
        );
        Self {
            sleep,
            operation,
            poll,
            resource,
            is_begun: false,
        }
    }

    /// Returns the deadline.
    pub fn deadline(&self) -> Instant {
        self.sleep.deadline()
    }

    /// Returns whether the deadline has passed.
    pub fn is_elapsed(&self) -> bool {
        self.sleep.is_elapsed()
    }

    /// Moves the deadline.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        let this = self.get_mut();
        {
            let _resource = this.resource.enter();
            this.operation = trace_span!(
                target: "tokio::time::sleep",
                "runtime.resource.async_op",
                source = "Sleep::reset"
            );
            let _operation = this.operation.enter();
            this.poll = trace_span!(target: "tokio::time::sleep", "runtime.resource.async_op.poll");
            tell(deadline);
        }
        this.is_begun = true;
        Pin::new(&mut this.sleep).reset(deadline);
    }
}

/// Tells the subscriber for how long the sleep waits.
fn tell(deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    trace!(
        target: "runtime::resource::state_update",
        duration = u64::try_from(left.as_millis()).unwrap_or(u64::MAX),
        duration.unit = "ms",
        duration.op = "override",
    );
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let _resource = this.resource.enter();
        let _operation = this.operation.enter();
        let _poll = this.poll.enter();
        if !this.is_begun {
            this.is_begun = true;
            // tokio tells that the budget allows the poll, and then the deadline.
            trace!(
                target: "runtime::resource::poll_op",
                op_name = "poll_elapsed",
                is_ready = true
            );
            tell(this.sleep.deadline());
        }
        let poll = Pin::new(&mut this.sleep).poll(cx);
        trace!(
            target: "runtime::resource::poll_op",
            op_name = "poll_elapsed",
            is_ready = poll.is_ready()
        );
        poll
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.sleep.fmt(f)
    }
}
