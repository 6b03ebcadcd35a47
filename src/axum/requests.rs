//! The requests of one connection: how many are being answered, and when something was last done
//! for one.

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

use ::axum::{body::Body, extract::Request, response::Response};
use ::hyper::{
    Method, Version,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};

use super::{
    pace::Pace,
    request_body::{Answered, limited},
    serve::Options,
    streams::{Piece, Sending, upgrades},
};
use crate::time::Instant;

/// What a connection's timer asks. HTTP/2 answers requests in tasks of their own.
pub(super) struct Requests {
    start: Instant,
    /// How fast bodies have to come, and responses be taken.
    body: Pace,
    pub(super) write: Pace,
    /// Those that are being answered.
    answering: AtomicUsize,
    /// When one was over last, or enough of a response was taken, in nanoseconds from the start.
    active: AtomicU64,
    /// How many bytes of responses the client took since then.
    taken: AtomicU64,
    /// How many there were.
    count: AtomicUsize,
    /// Whether it came by HTTP/2, which has a way to say that no more are taken.
    http2: AtomicBool,
    /// Since when something is to be written that the socket does not take, or not enough of it: in
    /// nanoseconds from the start; zero if all was written.
    stuck: AtomicU64,
    /// How many bytes the socket took since then.
    written: AtomicU64,
}

impl Requests {
    /// Those of a connection that is there from now on.
    pub(super) fn new(options: &Options) -> Self {
        Self {
            start: Instant::now(),
            body: Pace::new(options.request_body_timeout, options.min_transfer_rate),
            write: Pace::new(options.write_timeout, options.min_transfer_rate),
            answering: AtomicUsize::new(0),
            active: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            http2: AtomicBool::new(false),
            stuck: AtomicU64::new(0),
            written: AtomicU64::new(0),
        }
    }

    /// Since when nothing was done for a request; none while one is being answered.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Acquire: with the last that was over comes when that was.
        let idle = self.answering.load(Acquire) == 0;
        idle.then(|| self.start + Duration::from_nanos(self.active.load(Relaxed)))
    }

    /// Since when the socket takes nothing, or too little, of what is to be written; none if all
    /// was written.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let stuck = self.stuck.load(Relaxed);
        (stuck > 0).then(|| self.start + Duration::from_nanos(stuck))
    }

    /// Returns whether any is being answered.
    pub(super) fn answers(&self) -> bool {
        self.answering.load(Relaxed) > 0
    }

    fn nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Notes that something was done for a request.
    fn note_active(&self) {
        // Several tasks may say so at once.
        self.active.fetch_max(self.nanos(), Relaxed);
    }

    /// Counts bytes of responses that the client took. hyper may be done with a response long
    /// before the client is.
    pub(super) fn took(&self, bytes: usize) {
        if has_enough(&self.taken, bytes, self.write) {
            self.note_active();
        }
    }

    /// Counts bytes that the socket took.
    pub(super) fn wrote(&self, bytes: usize) {
        // By HTTP/2 they may be answers to pings, which a client could have for ever: pieces of
        // bodies are counted.
        if !self.are_http2() {
            self.took(bytes);
        }
        if self.stuck.load(Relaxed) > 0 && has_enough(&self.written, bytes, self.write) {
            self.stuck.store(self.nanos(), Relaxed);
        }
    }

    /// Notes that there is something to be written, and the socket takes nothing.
    pub(super) fn note_stuck(&self) {
        if self.stuck.load(Relaxed) == 0 {
            self.written.store(0, Relaxed);
            self.stuck.store(self.nanos().max(1), Relaxed);
        }
    }

    /// Notes that all was written.
    pub(super) fn note_flushed(&self) {
        if self.stuck.load(Relaxed) > 0 {
            self.stuck.store(0, Relaxed);
        }
    }

    /// Returns how many requests there were.
    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Returns whether requests come by HTTP/2.
    pub(super) fn are_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    fn begin<B>(self: &Arc<Self>, request: &::hyper::Request<B>) -> Answering {
        // The connection's task counts, and nobody else.
        self.count.store(self.count() + 1, Relaxed);
        if request.version() == Version::HTTP_2 {
            self.http2.store(true, Relaxed);
        }
        Answering::begin(self)
    }
}

/// Adds to the bytes of a client; answers whether they are enough, and begins anew if so.
///
/// One task counts, but for bytes that are dropped with a stream: a sum that such a moment spoils
/// is of no concern, and so no atomic addition is needed.
fn has_enough(count: &AtomicU64, bytes: usize, pace: Pace) -> bool {
    let sum = count.load(Relaxed).saturating_add(bytes as u64);
    let has_enough = sum >= pace.least;
    count.store(if has_enough { 0 } else { sum }, Relaxed);
    has_enough
}

/// A request that is being answered, until its response was taken or given up, or the stream that
/// it was upgraded to has ended: when this is dropped.
pub(super) struct Answering(Arc<Requests>);

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

/// A service of tower's as hyper calls it, and counted.
pub(super) struct Counted<S> {
    pub(super) service: S,
    pub(super) requests: Arc<Requests>,
}

impl<S> ::hyper::service::Service<::hyper::Request<Incoming>> for Counted<S>
where
    S: tower_service::Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    type Response = ::hyper::Response<CountedBody>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, S::Error>> + Send>>;

    fn call(&self, request: ::hyper::Request<Incoming>) -> Self::Future {
        let answering = self.requests.begin(&request);
        let is_http2 = request.version() == Version::HTTP_2;
        let upgrade = is_http2 && request.method() == Method::CONNECT;
        let (request, answered) = limited(request, self.requests.body);
        let mut service = self.service.clone();
        // By HTTP/1 the socket tells what the client takes.
        let sending = is_http2.then(|| Sending::begin(&self.requests));
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            let response = service.call(request).await?;
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

/// A response's body: it is over when this is dropped.
pub(super) struct CountedBody {
    body: Body,
    /// By HTTP/2.
    sending: Option<Arc<Sending>>,
    _answering: Answering,
    /// If the request has a body.
    _answered: Option<Answered>,
}

impl HttpBody for CountedBody {
    type Data = Piece;
    type Error = ::axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, ::axum::Error>>> {
        let this = &mut *self;
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
