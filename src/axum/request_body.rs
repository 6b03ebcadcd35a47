//! Bodies of requests: each fails if its client sends it too slowly.
//!
//! The time counts in which the handler waits for the body, and no other: a handler may read as
//! slowly as it likes. A body is not told that a handler has given up a read: see
//! [`Wait::is_over`]. One timer serves a body. It is armed when the handler first has to wait.
//! Bytes that come in do not touch it: when it comes up, it is set to when the body will be too
//! slow.

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

use ::axum::{
    body::{Body, Bytes},
    extract::Request,
};
use ::hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};

use super::pace::Pace;
use crate::time::{Instant, Sleep, sleep};

/// How much later than its timer a handler comes that has not waited. One that waits comes as soon
/// as its worker has time.
const LATE: Duration = Duration::from_secs(1);

/// Lets the client of this request send the body as slowly as it likes, whatever
/// [`request_body_timeout`](super::Serve::request_body_timeout) says.
///
/// It is for routes whose clients may have nothing to send for long, such as gRPC calls that stream
/// requests and have their response at the end:
///
/// ```
/// use axum::{Router, body::Body, middleware::map_request, routing::post};
///
/// async fn collect(body: Body) { /* read it to its end */ }
///
/// let router: Router = Router::new()
///     .route("/readings", post(collect))
///     .layer(map_request(tourbillon::axum::without_body_timeout));
/// ```
pub async fn without_body_timeout(request: Request) -> Request {
    if let Some(Terms(flags)) = request.extensions().get() {
        flags.is_exempt.store(true, Relaxed);
    }
    request
}

/// Whether a body is limited now. In the request's extensions, and clones are the same body's.
#[derive(Clone)]
struct Terms(Arc<Flags>);

#[derive(Default)]
struct Flags {
    /// Whether the program has said that it is not.
    is_exempt: AtomicBool,
    /// Whether the response has begun, and has not ended: what is sent in both directions at once,
    /// such as a conversation, may be silent.
    is_answered: AtomicBool,
}

impl Flags {
    fn is_limited(&self) -> bool {
        !self.is_exempt.load(Relaxed) && !self.is_answered.load(Relaxed)
    }
}

/// The response to a request with a body: it has ended when this is dropped.
pub(super) struct Answered(Arc<Flags>);

impl Answered {
    /// Says that the response begins.
    pub(super) fn begin(&self) {
        self.0.is_answered.store(true, Relaxed);
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.0.is_answered.store(false, Relaxed);
    }
}

/// Makes axum's request of hyper's. If it has a body, the second answer is to be told when the
/// response begins.
pub(super) fn limited(
    request: ::hyper::Request<Incoming>,
    pace: Pace,
) -> (Request, Option<Answered>) {
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
    request.extensions_mut().insert(Terms(flags.clone()));
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
        // What is there is taken, however late it is.
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) {
            if let Some(Ok(frame)) = &frame {
                let data = frame.data_ref();
                this.wait.end(data.map_or(0, Bytes::len), this.pace);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        ready!(this.wait.poll(this.pace, &this.flags, cx));
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

/// How long the handler has waited for the body.
#[derive(Default)]
struct Wait {
    /// Since when it waits, if it does.
    since: Option<Instant>,
    /// How long it waited before, for the bytes that `came` counts.
    before: Duration,
    came: u64,
    timer: Option<Sleep>,
}

impl Wait {
    /// So many bytes came.
    fn end(&mut self, bytes: usize, pace: Pace) {
        if let Some(since) = self.since {
            let now = Instant::now();
            match self.is_over(now) {
                true => self.before = Duration::ZERO,
                false => self.before += now.duration_since(since),
            }
            self.since = None;
        }
        self.came += bytes as u64;
        if self.came >= pace.least {
            self.came = 0;
            self.before = Duration::ZERO;
        }
    }

    /// Returns whether the handler waited, and gave that up: it did something else when the timer
    /// came up, and long after. Its time begins anew.
    fn is_over(&self, now: Instant) -> bool {
        let came_up = self.timer.as_ref().map(Sleep::deadline);
        let late = came_up.and_then(|came_up| came_up.checked_add(LATE));
        self.since.is_some() && late.is_some_and(|late| now > late)
    }

    /// Ready when the handler has waited for too long.
    fn poll(&mut self, pace: Pace, flags: &Flags, cx: &mut Context<'_>) -> Poll<()> {
        let Some(limit) = pace.limit else {
            return Poll::Pending;
        };
        // Before the timer is asked, which may be over since the handler gave up a wait.
        if self.since.is_some() {
            let now = Instant::now();
            if self.is_over(now) {
                (self.since, self.before) = (Some(now), Duration::ZERO);
            }
        }
        let since = self.since.get_or_insert_with(Instant::now);
        let timer = self
            .timer
            .get_or_insert_with(|| sleep(limit.saturating_sub(self.before)));
        loop {
            // It may come too early, and never too late: bytes that came only put the end off.
            ready!(Pin::new(&mut *timer).poll(cx));
            // Not elapsed and over: the runtime is.
            if !timer.is_elapsed() {
                return Poll::Ready(());
            }
            let now = Instant::now();
            if !flags.is_limited() {
                // Should the body be limited again, the time begins about then.
                (*since, self.before) = (now, Duration::ZERO);
            }
            let waited = self.before + now.duration_since(*since);
            let left = limit.saturating_sub(waited);
            if left.is_zero() {
                return Poll::Ready(());
            }
            timer.set_deadline(now.saturating_add(left));
        }
    }
}

/// Why a body failed.
#[derive(Debug)]
struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client sent the request's body too slowly")
    }
}

impl Error for TooSlow {}
