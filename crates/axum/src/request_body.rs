//! Request bodies with a time limit: a body fails if its client sends too slowly.
//!
//! Time counts only while the handler waits for the body, so a handler may read as slowly as it
//! likes. A body does not learn that the handler gave up a read: see [`Wait::is_over`].
//!
//! Each body has one timer, armed when the handler first has to wait. Incoming bytes do not touch
//! it. When it fires, it is set to the time at which the body would be too slow.

use std::{
    error::Error,
    fmt, io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::Request,
};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tourbillon::time::Instant;
use tourbillon_hyper::TolerantSleep;

use crate::pace::Pace;

/// A handler that polls this long after its timer has fired was not waiting. One that waits polls
/// as soon as its worker has time.
const POLL_GRACE: Duration = Duration::from_secs(1);

/// The shortest time until the next look at a body whose limit does not apply for now.
const LEAST_LOOK: Duration = Duration::from_millis(1);

/// Removes the limit of [`request_body_timeout`](super::Serve::request_body_timeout) from a
/// request.
///
/// Use it for routes whose clients may be silent for long, such as gRPC calls that stream requests
/// and get their response at the end:
///
/// ```
/// use axum::{Router, body::Body, middleware::map_request, routing::post};
///
/// async fn collect(body: Body) { /* read it to its end */ }
///
/// let router: Router = Router::new()
///     .route("/readings", post(collect))
///     .layer(map_request(tourbillon_axum::without_body_timeout));
/// ```
pub async fn without_body_timeout(request: Request) -> Request {
    if let Some(BodyLimit(flags)) = request.extensions().get() {
        flags.is_exempt.store(true, Relaxed);
    }
    request
}

/// Tells whether the limit of a body applies. It is stored in the request's extensions; clones
/// refer to one body.
#[derive(Clone)]
struct BodyLimit(Arc<Flags>);

#[derive(Default)]
struct Flags {
    /// Set if the program removed the limit.
    is_exempt: AtomicBool,
    /// Set while the response is in progress. A request and a response that stream at the same
    /// time, like a conversation, may be silent.
    is_answered: AtomicBool,
}

impl Flags {
    fn is_limited(&self) -> bool {
        !self.is_exempt.load(Relaxed) && !self.is_answered.load(Relaxed)
    }
}

/// The response to a request with a body. Dropping it marks the end of the response.
pub(crate) struct Answered(Arc<Flags>);

impl Answered {
    /// Records that the response begins.
    pub(crate) fn begin(&self) {
        self.0.is_answered.store(true, Relaxed);
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.is_answered.store(false, Relaxed);
    }
}

/// Converts a request of hyper to one of axum, with a limited body. If there is a body, also
/// returns the object that must be told when the response begins.
pub(crate) fn limited(
    request: hyper::Request<Incoming>,
    pace: Pace,
) -> (Request, Option<Answered>) {
    // Without a body there is nothing to wait for.
    if request.body().is_end_stream() {
        return (request.map(|_| Body::empty()), None);
    }
    let flags = Arc::new(Flags::default());
    let mut request = request.map(|body| {
        Body::new(Limited {
            body,
            pace,
            flags: flags.clone(),
            wait: Wait::default(),
            has_failed: false,
        })
    });
    request.extensions_mut().insert(BodyLimit(flags.clone()));
    (request, Some(Answered(flags)))
}

/// A body that fails if its client is too slow.
struct Limited {
    body: Incoming,
    pace: Pace,
    flags: Arc<Flags>,
    wait: Wait,
    has_failed: bool,
}

impl HttpBody for Limited {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        if this.has_failed {
            return Poll::Ready(None);
        }
        // Accept data that is there, however late.
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                let data = frame.data_ref();
                this.wait.end(data.map_or(0, Bytes::len), this.pace);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.wait.poll(this.pace, &this.flags, cx));
        // The body ends with this error, whatever comes later.
        this.has_failed = true;
        let error = io::Error::new(io::ErrorKind::TimedOut, TooSlow);
        Poll::Ready(Some(Err(error.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.has_failed || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The time that the handler has waited for the body.
#[derive(Default)]
struct Wait {
    /// The start of the current wait, if there is one.
    since: Option<Instant>,
    /// The sum of earlier waits since `came` was last zero.
    before: Duration,
    came: u64,
    timer: Option<TolerantSleep>,
}

impl Wait {
    /// Ends a wait: `bytes` bytes came.
    fn end(&mut self, bytes: usize, pace: Pace) {
        if let Some(since) = self.since {
            let now = Instant::now();
            match self.is_over(now) {
                // The handler had given up this wait: its time does not count.
                true => self.before = Duration::ZERO,
                false => self.before += now.duration_since(since),
            }
            self.since = None;
        }
        self.came += bytes as u64;
        // Enough for one period: the next period begins.
        if self.came >= pace.least {
            self.came = 0;
            self.before = Duration::ZERO;
        }
    }

    /// Returns whether the handler gave up its wait: it did not poll when the timer fired, nor soon
    /// after. The time then starts anew.
    fn is_over(&self, now: Instant) -> bool {
        let came_up = self.timer.as_ref().map(TolerantSleep::deadline);
        let late = came_up.and_then(|came_up| came_up.checked_add(POLL_GRACE));
        self.since.is_some() && late.is_some_and(|late| now > late)
    }

    /// Returns ready when the handler has waited for too long.
    fn poll(&mut self, pace: Pace, flags: &Flags, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = pace.limit else {
            return Poll::Pending;
        };
        // Check this before the timer, which may have fired after the handler gave up a wait.
        if self.since.is_some() {
            let now = Instant::now();
            if self.is_over(now) {
                (self.since, self.before) = (Some(now), Duration::ZERO);
            }
        }
        let since = self.since.get_or_insert_with(Instant::now);
        let timer = self
            .timer
            .get_or_insert_with(|| pace.wait(limit.saturating_sub(self.before)));
        loop {
            // The timer may fire too early, but not too late, because incoming bytes only extend
            // the time.
            ready!(Pin::new(&mut *timer).poll(cx));
            // If it is complete but not elapsed, the runtime has shut down.
            if !timer.is_elapsed() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            let left = if flags.is_limited() {
                limit.saturating_sub(self.before + now.duration_since(*since))
            } else {
                // If the limit applies again later, the time starts at about this moment.
                (*since, self.before) = (now, Duration::ZERO);
                limit.max(LEAST_LOOK)
            };
            if left.is_zero() {
                return Poll::Ready(());
            }
            timer.set_deadline(now + left);
        }
    }
}

/// The error of a body that was too slow.
#[derive(Debug)]
struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client sent the request's body too slowly")
    }
}

impl Error for TooSlow {}
