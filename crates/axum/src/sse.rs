//! Keep-alive for server-sent events.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::response::sse::Event;
use futures_core::Stream;
use tourbillon::time::{Instant, Interval, MissedTickBehavior, interval_at, tolerant};
use tourbillon_hyper::TolerantSleep;

/// Returns a stream of server-sent events that sends an empty comment after each `period` without
/// an event. So neither the client nor a proxy considers the connection dead. A period of zero
/// counts as one millisecond.
///
/// A comment need not be exact: it may be late by a 32nd of `period`, at most 250 ms, so that the
/// comments of many connections share wake-ups. [`KeepAlive::tolerance`] sets another bound.
///
/// This replaces [`Sse::keep_alive`](axum::response::sse::Sse::keep_alive), which panics outside of
/// tokio's runtime.
///
/// ```
/// use std::{convert::Infallible, time::Duration};
/// use axum::{Router, response::sse::{Event, Sse}, routing::get};
/// use futures::stream;
/// use tourbillon::time::sleep;
/// use tourbillon_axum::keep_alive;
///
/// let events = || async {
///     let events = stream::unfold(0, |n| async move {
///         sleep(Duration::from_secs(60)).await;
///         Some((Ok::<_, Infallible>(Event::default().data(n.to_string())), n + 1))
///     });
///     Sse::new(keep_alive(events, Duration::from_secs(15)))
/// };
/// let router: Router = Router::new().route("/events", get(events));
/// ```
pub fn keep_alive<S, E>(events: S, period: Duration) -> KeepAlive<S>
where
    S: Stream<Item = Result<Event, E>>,
{
    KeepAlive {
        events: Box::pin(events),
        interval: None,
        period: period.max(Duration::from_millis(1)),
        tolerance: None,
    }
}

/// The stream of [`keep_alive`].
///
/// # Panics
///
/// Panics if it is polled outside of a runtime.
#[must_use = "streams do nothing unless polled"]
pub struct KeepAlive<S> {
    events: Pin<Box<S>>,
    /// Created by the first poll.
    interval: Option<Interval>,
    period: Duration,
    /// `None`: derived from the period.
    tolerance: Option<Duration>,
}

impl<S> KeepAlive<S> {
    /// Sets how late a comment may be, so that it shares a wake-up with others. With zero it is
    /// exact.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Some(tolerance);
        self
    }
}

impl<S, E> Stream for KeepAlive<S>
where
    S: Stream<Item = Result<Event, E>>,
{
    type Item = Result<Event, E>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let period = this.period;
        let interval = this.interval.get_or_insert_with(|| {
            let now = Instant::now();
            let first = now.checked_add(period).unwrap_or(now);
            let mut interval = interval_at(first, period);
            // However many periods were missed, one comment is enough.
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        if let Poll::Ready(event) = this.events.as_mut().poll_next(cx) {
            // An event keeps the connection alive as well as a comment.
            interval.reset();
            return Poll::Ready(event);
        }
        let tolerance = this.tolerance;
        let tolerance = tolerance.unwrap_or_else(|| TolerantSleep::default_tolerance(period));
        // The poll arms the timer.
        let ticked = tolerant(tolerance, || interval.poll_tick(cx));
        ticked.map(|_| Some(Ok(Event::default().comment(""))))
    }
}

impl<S> fmt::Debug for KeepAlive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive")
            .field("period", &self.period)
            .finish_non_exhaustive()
    }
}
