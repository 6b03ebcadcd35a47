//! The requests of one connection: how many are being answered, and when something was last done for one.

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
    task::{Context, Poll},
    time::Duration,
};

use ::axum::{
    body::{Body, Bytes},
    extract::Request,
    response::Response,
};
use ::hyper::{
    Method, Version,
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
};

use crate::time::Instant;

/// What a connection's timer asks. HTTP/2 answers requests in tasks of their own.
pub(super) struct Requests {
    start: Instant,
    /// Those that are being answered.
    answering: AtomicUsize,
    /// When one was over last, or something of its response written, in nanoseconds from the start.
    active: AtomicU64,
    /// Whether there was one.
    any: AtomicBool,
    /// Whether it came by HTTP/2, which has a way to say that no more are taken.
    http2: AtomicBool,
    /// Whether a stream of HTTP/2 was upgraded: hyper does not tell when that ends.
    upgraded: AtomicBool,
    /// Whether something is to be written that the client does not take.
    is_stuck: AtomicBool,
}

impl Requests {
    /// Those of a connection that is there from now on.
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            answering: AtomicUsize::new(0),
            active: AtomicU64::new(0),
            any: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            upgraded: AtomicBool::new(false),
            is_stuck: AtomicBool::new(false),
        }
    }

    /// Since when nothing was done for a request; none while one is being answered, and the client takes that.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        // Acquire: with the last that was over comes when that was, and that it was an upgrade.
        let idle = self.answering.load(Acquire) == 0 && !self.upgraded.load(Relaxed);
        let idle = idle || self.is_stuck.load(Relaxed);
        idle.then(|| self.start + Duration::from_nanos(self.active.load(Relaxed)))
    }

    /// Whether any is being answered.
    pub(super) fn answers(&self) -> bool {
        self.answering.load(Relaxed) > 0
    }

    /// Something is done for one.
    pub(super) fn is_active(&self) {
        let elapsed = self.start.elapsed().as_nanos();
        let elapsed = u64::try_from(elapsed).unwrap_or(u64::MAX);
        // Several tasks may say so at once.
        self.active.fetch_max(elapsed, Relaxed);
    }

    /// Whether there is something to be written that the client does not take.
    pub(super) fn set_stuck(&self, is_stuck: bool) {
        if self.is_stuck.load(Relaxed) != is_stuck {
            // It counts from here on; a write that its worker put off for others comes here, too.
            self.is_active();
            self.is_stuck.store(is_stuck, Relaxed);
        }
    }

    /// Whether there is.
    pub(super) fn are_stuck(&self) -> bool {
        self.is_stuck.load(Relaxed)
    }

    /// Whether there was a request.
    pub(super) fn any(&self) -> bool {
        self.any.load(Relaxed)
    }

    /// Whether requests come by HTTP/2.
    pub(super) fn are_http2(&self) -> bool {
        self.http2.load(Relaxed)
    }

    fn begin<B>(self: &Arc<Self>, request: &::hyper::Request<B>) -> Answering {
        self.any.store(true, Relaxed);
        if request.version() == Version::HTTP_2 {
            self.http2.store(true, Relaxed);
        }
        self.answering.fetch_add(1, Relaxed);
        Answering(self.clone())
    }
}

/// A request that is being answered, until its response was taken or given up: when this is dropped.
struct Answering(Arc<Requests>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.is_active();
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
        let upgrade = request.version() == Version::HTTP_2 && request.method() == Method::CONNECT;
        let mut service = self.service.clone();
        Box::pin(async move {
            poll_fn(|cx| service.poll_ready(cx)).await?;
            let response = service.call(request.map(Body::new)).await?;
            if upgrade && response.status().is_success() {
                answering.0.upgraded.store(true, Relaxed);
            }
            Ok(response.map(|body| CountedBody {
                body,
                _answering: answering,
            }))
        })
    }
}

/// A response's body: it is over when this is dropped.
pub(super) struct CountedBody {
    body: Body,
    _answering: Answering,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = ::axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ::axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
