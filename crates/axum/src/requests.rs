//! The requests of a connection: the number in progress, and the time of the last activity.

use std::{
    error::Error,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{
            AtomicBool, AtomicU64, AtomicUsize,
            Ordering::{Acquire, Relaxed, Release},
        },
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{body::Body, extract::Request, response::Response};
use hyper::{
    Method, Version,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};

use tourbillon::time::Instant;

use crate::{
    options::Options,
    pace::Pace,
    request_body::{Answered, limited},
    streams::{Piece, Sending, upgrades},
};

/// The state that a connection's timer reads. With HTTP/2, each request is answered in its own
/// task, so the fields are atomic.
pub(crate) struct Requests {
    start: Instant,
    /// The minimum speed of request bodies, and of responses.
    body: Pace,
    pub(crate) write: Pace,
    /// The number of requests in progress.
    answering: AtomicUsize,
    /// The time of the last activity, in ns since `start`: a request ended, or the client took
    /// enough of a response.
    active: AtomicU64,
    /// The number of response bytes that the client has taken since then.
    taken: AtomicU64,
    /// The total number of requests.
    count: AtomicUsize,
    /// Whether the connection uses HTTP/2, which can announce that no more requests are taken.
    http2: AtomicBool,
    /// The start of the period in which the socket accepts too little, in ns since `start`. Zero if
    /// everything was written.
    stuck: AtomicU64,
    /// The number of bytes that the socket has accepted since then.
    written: AtomicU64,
}

impl Requests {
    /// Creates the state of a connection that starts at this moment.
    pub(crate) fn new(options: &Options) -> Self {
        let pace = |limit| Pace::new(limit, options.timeout_tolerance, options.min_transfer_rate);
        Self {
            start: Instant::now(),
            body: pace(options.request_body_timeout),
            write: pace(options.write_timeout),
            answering: AtomicUsize::new(0),
            active: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            http2: AtomicBool::new(false),
            stuck: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Returns the time of the last activity, or `None` while a request is in progress.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        // Acquire: pairs with the release in `Answering::drop`, which publishes the time of the
        // last end.
        let idle = self.answering.load(Acquire) == 0;
        idle.then(|| self.start + Duration::from_nanos(self.active.load(Relaxed)))
    }

    /// Returns the time since when the socket accepts nothing or too little, or `None` if
    /// everything was written.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        let stuck = self.stuck.load(Relaxed);
        (stuck > 0).then(|| self.start + Duration::from_nanos(stuck))
    }

    /// Returns whether a request is in progress.
    pub(crate) fn answers(&self) -> bool {
        self.answering.load(Relaxed) > 0
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records activity.
    fn note_active(&self) {
        // Several tasks may do so at once: the latest time wins.
        self.active.fetch_max(self.nanos(), Relaxed);
    }

    /// Counts response bytes that the client took. This continues after hyper has finished a
    /// response.
    pub(crate) fn took(&self, bytes: usize) {
        if has_enough(&self.taken, bytes, self.write) {
            self.note_active();
        }
    }

    /// Counts bytes that the socket accepted.
    pub(crate) fn wrote(&self, bytes: usize) {
        // With HTTP/2 these may be answers to pings, which a client could cause forever. There, the
        // pieces of bodies are counted instead.
        if !self.are_http2() {
            self.took(bytes);
        }
        // It is slow, but takes enough: its time begins anew.
        if self.stuck.load(Relaxed) > 0 && has_enough(&self.written, bytes, self.write) {
            self.stuck.store(self.nanos(), Relaxed);
        }
    }

    /// Records that the socket does not accept pending data.
    pub(crate) fn note_stuck(&self) {
        if self.stuck.load(Relaxed) == 0 {
            // Count anew what the client takes from here on.
            self.written.store(0, Relaxed);
            self.stuck.store(self.nanos().max(1), Relaxed);
        }
    }

    /// Records that everything was written.
    pub(crate) fn note_flushed(&self) {
        if self.stuck.load(Relaxed) > 0 {
            self.stuck.store(0, Relaxed);
        }
    }

    /// Returns the total number of requests.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns whether the connection uses HTTP/2.
    pub(crate) fn are_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    fn begin<B>(self: &Arc<Self>, request: &hyper::Request<B>) -> Answering {
        // Only the connection's task counts, so a load and a store suffice.
        self.count.store(self.count() + 1, Relaxed);
        if request.version() == Version::HTTP_2 {
            self.http2.store(true, Relaxed);
        }
        Answering::begin(self)
    }
}

/// Adds to the bytes of a client. Returns whether they are enough, and restarts the count if so.
///
/// A single task counts, except for bytes that are dropped with a stream. An error in this rare
/// case does no harm, so a load and a store suffice.
fn has_enough(count: &AtomicU64, bytes: usize, pace: Pace) -> bool {
    let sum = count.load(Relaxed).saturating_add(bytes as u64);
    let has_enough = sum >= pace.least;
    count.store(if has_enough { 0 } else { sum }, Relaxed);
    has_enough
}

/// A request in progress. It ends when this is dropped: the response was taken or given up, or the
/// stream that it was upgraded to has ended.
pub(crate) struct Answering(Arc<Requests>);

impl Answering {
    fn begin(requests: &Arc<Requests>) -> Self {
        requests.answering.fetch_add(1, Relaxed);
        Self(requests.clone())
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.note_active();
        self.0.answering.fetch_sub(1, Release);
    }
}

/// A tower service with the interface of hyper, which counts requests.
pub(crate) struct Counted<S> {
    pub(crate) service: S,
    pub(crate) requests: Arc<Requests>,
}

impl<S> hyper::service::Service<hyper::Request<Incoming>> for Counted<S>
where
    S: tower_service::Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    type Response = hyper::Response<CountedBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let answering = self.requests.begin(&request);
        let is_http2 = request.version() == Version::HTTP_2;
        // An upgraded HTTP/2 stream outlives its answer, and keeps the connection from being idle.
        let upgrade = is_http2 && request.method() == Method::CONNECT;
        let (request, answered) = limited(request, self.requests.body);
        let mut service = self.service.clone();
        // With HTTP/1, the socket tells how much the client takes.
        let sending = is_http2.then(|| Sending::begin(&self.requests));
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            let response = service.call(request).await?;
            // From here on, the request body has no time limit: see `request_body`.
            if let Some(answered) = &answered {
                answered.begin();
            }
            if upgrade && response.status().is_success() {
                upgrades(Answering::begin(&answering.0));
            }
            Ok(response.map(|body| CountedBody {
                body,
                sending,
                _answering: answering,
                _answered: answered,
            }))
        })
    }
}

/// A response body. Dropping it ends the request.
pub(crate) struct CountedBody {
    body: Body,
    /// Only with HTTP/2.
    sending: Option<Arc<Sending>>,
    _answering: Answering,
    /// Only if the request has a body.
    _answered: Option<Answered>,
}

impl HttpBody for CountedBody {
    type Data = Piece;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, axum::Error>>> {
        let this = &mut *self;
        // Give no more data while much is unsent, so that the stream's task lives and can reset it.
        if let Some(sending) = &this.sending {
            ready!(sending.poll_few(cx));
        }
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        frame.map_ok(|frame| {
            frame.map_data(|bytes| match &this.sending {
                Some(sending) => sending.give(bytes),
                None => Piece::plain(bytes),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        let has_many = || self.sending.as_ref().is_some_and(|it| it.has_many());
        self.body.is_end_stream() && !has_many()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
