//! The server as a whole: its options, and how it begins and ends.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, IntoFuture, poll_fn},
    io,
    marker::PhantomData,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use ::axum::{extract::Request, response::Response};
use ::hyper::server::conn::http1;
use hyper_util::server::conn::auto;
use tower_service::Service;

use super::{
    accept::{AcceptError, accept},
    gate::{Gate, room},
    listener::{IncomingStream, Listener},
    streams::Streams,
};
use crate::{
    hyper::TourbillonTimer,
    sys::process::descriptor_limit,
    task::{JoinError, JoinSet},
    time::timeout,
};

/// How long the server waits for a client by default, whatever for. It is what hyper waits for a
/// head.
const LIMIT: Duration = Duration::from_secs(30);
/// How many bytes per second are enough by default. It is what Kestrel asks for; Apache asks for
/// 500.
const RATE: u32 = 240;
/// How large the buffers of HTTP/1 may become by default.
const BUF: usize = 64 * 1024;
/// The smallest buffer that hyper takes.
const LEAST_BUF: usize = 8 * 1024;

/// Serves the connections of a listener, on HTTP/1 and HTTP/2: a router, or what makes a service
/// for each connection, such as `router.into_make_service_with_connect_info::<SocketAddr>()`.
///
/// HTTP/2 goes by prior knowledge, or over TLS by ALPN; connections can be upgraded. hyper's
/// `Upgraded::downcast` does not give the listener's stream back, as that is wrapped in a type of
/// this library. Nothing happens until the answer is awaited.
///
/// ```
/// use axum::{Router, routing::get};
/// use tourbillon::{Runtime, net::TcpListener, signal};
///
/// # fn example() -> std::io::Result<()> {
/// let router = Router::new().route("/", get(|| async { "hello" }));
/// Runtime::new().unwrap().block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:8080").await?;
///     tourbillon::axum::serve(listener, router)
///         .with_graceful_shutdown(async { signal::ctrl_c().await.unwrap_or(()) })
///         .await
/// })
/// # }
/// ```
pub fn serve<L, M, S>(listener: L, make_service: M) -> Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Error = Infallible, Response = S>,
{
    serve_all([listener], make_service)
}

/// As [`serve`], from several listeners, such as one for each worker: each is accepted from in a
/// task of its own, and all together are one server.
pub fn serve_all<L, M, S>(listeners: impl IntoIterator<Item = L>, make_service: M) -> Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Error = Infallible, Response = S>,
{
    Serve {
        listeners: listeners.into_iter().collect(),
        make_service,
        shutdown: None,
        options: Options {
            header_read_timeout: Some(LIMIT),
            keep_alive_timeout: Some(LIMIT),
            write_timeout: Some(LIMIT),
            request_body_timeout: Some(LIMIT),
            min_transfer_rate: RATE,
            shutdown_timeout: None,
            max_connections: None,
            max_buf_size: BUF,
            http1_only: false,
            half_close: false,
            on_accept_error: None,
        },
        _service: PhantomData,
    }
}

/// A server that begins when it is awaited: see [`serve`].
///
/// It ends by itself only with [`with_graceful_shutdown`](Serve::with_graceful_shutdown). Dropping
/// it while it is awaited closes its listeners; the connections go on.
///
/// # Errors
///
/// Of awaiting it: if there is no listener, or if a task that accepts connections panicked, which
/// only what it calls of yours can make it, such as a [`Listener`].
///
/// # Panics
///
/// When it is awaited outside of a runtime.
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L, M, S> {
    listeners: Vec<L>,
    make_service: M,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    options: Options,
    _service: PhantomData<fn() -> S>,
}

pub(super) struct Options {
    pub(super) header_read_timeout: Option<Duration>,
    pub(super) keep_alive_timeout: Option<Duration>,
    pub(super) write_timeout: Option<Duration>,
    pub(super) request_body_timeout: Option<Duration>,
    /// In bytes per second.
    pub(super) min_transfer_rate: u32,
    shutdown_timeout: Option<Duration>,
    /// As many as there is room for if none.
    max_connections: Option<usize>,
    max_buf_size: usize,
    http1_only: bool,
    half_close: bool,
    on_accept_error: Option<OnAcceptError>,
}

type OnAcceptError = Box<dyn Fn(&AcceptError) + Send + Sync>;

impl<L: Listener, M, S> Serve<L, M, S> {
    /// Ends the server when `signal` is ready: its listeners are closed, so that new connections
    /// are refused; connections without a request are closed; and requests are answered, each as
    /// the last of its connection. Awaiting the server ends when all connections are closed.
    ///
    /// Connections that were upgraded are no longer the server's. Of those to which a handler
    /// answers for ever, as with server-sent events, make an end yourself, or with
    /// [`shutdown_timeout`](Serve::shutdown_timeout).
    pub fn with_graceful_shutdown<F>(mut self, signal: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shutdown = Some(Box::pin(signal));
        self
    }

    /// Returns how long a [graceful shutdown](Serve::with_graceful_shutdown) waits for the
    /// connections: those that are open then are cut. By default it waits until all are closed.
    ///
    /// The server does not wait for those that it has cut: one whose handler blocks its thread ends
    /// after that.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.options.shutdown_timeout = Some(timeout);
        self
    }

    /// Returns how long a client may take from when its connection is accepted to the end of its
    /// first request's head, with all that comes before: a TLS handshake, and finding out which
    /// protocol it speaks. 30 s by default; `None` is no limit, which lets anybody keep connections
    /// open for ever.
    ///
    /// Bytes that come in do not prolong it. A connection that took too long is closed.
    pub fn header_read_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.header_read_timeout = timeout.into();
        self
    }

    /// For how long a connection is kept that had a request and has none that is being answered.
    /// That includes the time in which the head of the next one is sent: bytes that come in do not
    /// prolong it, either. 30 s by default; `None` is no limit.
    ///
    /// A request is being answered until hyper has taken all of the response's body. The time
    /// counts from then, or from when the client last took enough of what hyper had taken
    /// ([`write_timeout`](Serve::write_timeout)), so that it may take a long response slowly. A
    /// connection of HTTP/2 with a stream that was upgraded is kept until the program has dropped
    /// the upgraded stream, or the client has reset it.
    pub fn keep_alive_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.keep_alive_timeout = timeout.into();
        self
    }

    /// For how long a response may wait for its client. 30 s by default; `None` is no limit.
    ///
    /// In each such time the client has to take a part of what is there to be taken: as many bytes
    /// as [`min_transfer_rate`](Serve::min_transfer_rate) asks for, or all. Otherwise its
    /// connection is closed; by HTTP/2 the stream is reset, and others of the connection go on.
    /// This comes between once and twice the time after the client has stopped taking. Either way
    /// the response's body is dropped.
    ///
    /// Over TCP the client has taken what its system has acknowledged, with TLS or without. Over
    /// Unix sockets, and with a [`Listener`] of another kind, it has taken what was accepted to be
    /// sent: the system accepts more only when a large part of its buffer is free.
    ///
    /// A response that has nothing to send does not wait for its client, however long that takes:
    /// server-sent events, long polls and slow bodies are not limited. Connections and streams that
    /// were upgraded are not, either.
    pub fn write_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.write_timeout = timeout.into();
        self
    }

    /// For how long a handler may wait for the body of its request. 30 s by default; `None` is no
    /// limit.
    ///
    /// In each such time the client has to send as many bytes as
    /// [`min_transfer_rate`](Serve::min_transfer_rate) asks for. Otherwise the body ends with an
    /// error, whose [source](std::error::Error::source) is an [`io::Error`] of kind
    /// [`TimedOut`](io::ErrorKind::TimedOut). axum's extractors answer it with 400. The connection
    /// is closed after the answer; by HTTP/2 the stream is reset.
    ///
    /// The time counts only while the handler waits for the body. A read that is given up, as by a
    /// `select!`, counts on until the time is up; if the handler comes back a second later than
    /// that, or more, the time begins anew. It does not count once the handler has answered: a
    /// request and a response that are streamed at once may both be silent. For routes whose
    /// clients send nothing for long, there is
    /// [`without_body_timeout`](super::without_body_timeout).
    pub fn request_body_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.request_body_timeout = timeout.into();
        self
    }

    /// Returns how many bytes per second a client has to send of a request's body, or to take of a
    /// response, on average over [`request_body_timeout`](Serve::request_body_timeout) or
    /// [`write_timeout`](Serve::write_timeout). 240 by default. With zero one byte in each such
    /// time is enough.
    pub fn min_transfer_rate(mut self, bytes: u32) -> Self {
        self.options.min_transfer_rate = bytes;
        self
    }

    /// Returns how many connections may be open; further ones wait in the system's queue to be
    /// accepted. Zero counts as one. `usize::MAX` is no bound.
    ///
    /// By default it follows from how many descriptors the process may have open (`RLIMIT_NOFILE`)
    /// when the server begins: all but an eighth, but 32 at least are left for other things. Of
    /// 1024 that is 896.
    ///
    /// Listeners do not wait for each other when there is room for one more: with several of them
    /// there may be more by so many less one.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.options.max_connections = Some(count.max(1));
        self
    }

    /// Returns how many bytes a connection of HTTP/1 may hold in each direction: a request's head
    /// that is longer is answered with 431, and of a response no more is taken in advance. 64 KiB
    /// by default, and 8 KiB at least. Many connections that send heads without an end take as much
    /// each.
    pub fn max_buf_size(mut self, bytes: usize) -> Self {
        self.options.max_buf_size = bytes.max(LEAST_BUF);
        self
    }

    /// Returns whether a client of HTTP/1 may close its writing half after a request, and still be
    /// answered. Not by default.
    ///
    /// By default the end of what a client sends ends its connection, and its handler is dropped
    /// where it waits. A client that has gone away and one that has only closed its writing half
    /// look alike to the server. So with `true` the server learns that a client has gone only when
    /// it writes: a handler goes on until it has answered, and with it the connection. Bound
    /// handlers by a timeout then.
    pub fn half_close(mut self, may: bool) -> Self {
        self.options.half_close = may;
        self
    }

    /// Speaks HTTP/1 and no HTTP/2, which a client may otherwise begin with. That leaves less to
    /// who means ill, and nothing out for browsers: they speak HTTP/2 only over TLS.
    pub fn http1_only(mut self) -> Self {
        self.options.http1_only = true;
        self
    }

    /// Calls `f` when a connection cannot be accepted though one waits, which is when the process
    /// has no descriptors left: once a second at most, for each listener, while it is tried again
    /// each 100 ms. With feature `tracing` it is a warning as well.
    pub fn on_accept_error(mut self, f: impl Fn(&AcceptError) + Send + Sync + 'static) -> Self {
        self.options.on_accept_error = Some(Box::new(f));
        self
    }

    /// The address that the first listener listens at.
    ///
    /// # Errors
    ///
    /// What the system says; `InvalidInput` if there is no listener.
    pub fn local_addr(&self) -> io::Result<L::Addr> {
        self.listeners.first().ok_or_else(no_listener)?.local_addr()
    }
}

fn no_listener() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "there is no listener")
}

impl<L, M, S> Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    async fn run(self) -> io::Result<()> {
        if self.listeners.is_empty() {
            return Err(no_listener());
        }
        let server = Arc::new(Server::new(self.options));
        let mut acceptors = JoinSet::new();
        for listener in self.listeners {
            let make_service = self.make_service.clone();
            acceptors.spawn(accept::<L, M, S>(listener, make_service, server.clone()));
        }
        let mut shutdown = self.shutdown;
        poll_fn(|cx| {
            // They end only by a panic.
            if let Poll::Ready(Some(ended)) = acceptors.poll_join_next(cx) {
                return Poll::Ready(ended.map_err(accepting_failed));
            }
            match &mut shutdown {
                Some(signal) => signal.as_mut().poll(cx).map(Ok),
                None => Poll::Pending,
            }
        })
        .await?;
        // The listeners are closed when it answers.
        acceptors.shutdown().await;
        server.gate.close();
        let closed = server.gate.at_most(0);
        match server.options.shutdown_timeout {
            None => closed.await,
            Some(limit) => {
                if timeout(limit, closed).await.is_err() {
                    server.cut();
                }
            }
        }
        Ok(())
    }
}

fn accepting_failed(error: JoinError) -> io::Error {
    io::Error::other(error)
}

impl<L, M, S> IntoFuture for Serve<L, M, S>
where
    L: Listener,
    M: for<'a> Service<IncomingStream<'a, L>, Response = S, Error = Infallible, Future: Send>
        + Clone
        + Send
        + 'static,
    S: Service<Request, Response = Response> + Clone + Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    S::Future: Send,
{
    type Output = io::Result<()>;
    type IntoFuture = ServeFuture;

    fn into_future(self) -> ServeFuture {
        ServeFuture(Box::pin(self.run()))
    }
}

impl<L: fmt::Debug, M, S> fmt::Debug for Serve<L, M, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve")
            .field("listeners", &self.listeners)
            .field("header_read_timeout", &self.options.header_read_timeout)
            .field("keep_alive_timeout", &self.options.keep_alive_timeout)
            .field("write_timeout", &self.options.write_timeout)
            .field("shutdown_timeout", &self.options.shutdown_timeout)
            .field("request_body_timeout", &self.options.request_body_timeout)
            .field("min_transfer_rate", &self.options.min_transfer_rate)
            .field("max_connections", &self.options.max_connections)
            .field("max_buf_size", &self.options.max_buf_size)
            .field("http1_only", &self.options.http1_only)
            .field("half_close", &self.options.half_close)
            .finish_non_exhaustive()
    }
}

/// The future of a [`Serve`].
pub struct ServeFuture(Pin<Box<dyn Future<Output = io::Result<()>> + Send>>);

impl Future for ServeFuture {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.as_mut().poll(cx)
    }
}

impl fmt::Debug for ServeFuture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServeFuture").finish_non_exhaustive()
    }
}

/// What speaks with clients.
pub(super) enum Http {
    /// The version that the client begins with.
    Any(auto::Builder<Streams>),
    /// HTTP/1. (`auto::Builder::http1_only` is of no effect where connections may be upgraded.)
    One(http1::Builder),
}

impl Http {
    fn new(options: &Options) -> Self {
        // The connection's own timer covers heads, and what comes before.
        if options.http1_only {
            let mut http = http1::Builder::new();
            http.timer(TourbillonTimer::new())
                .header_read_timeout(None)
                .max_buf_size(options.max_buf_size)
                .half_close(options.half_close);
            return Self::One(http);
        }
        let mut http = auto::Builder::new(Streams);
        http.http1()
            .timer(TourbillonTimer::new())
            .header_read_timeout(None)
            .max_buf_size(options.max_buf_size)
            .half_close(options.half_close);
        http.http2()
            .timer(TourbillonTimer::new())
            // What a websocket over HTTP/2 begins with.
            .enable_connect_protocol();
        Self::Any(http)
    }
}

/// What the connections of a server share.
pub(super) struct Server {
    pub(super) gate: Gate,
    pub(super) http: Http,
    pub(super) options: Options,
    pub(super) max_connections: usize,
    cut: AtomicBool,
}

impl Server {
    fn new(options: Options) -> Self {
        let http = Http::new(&options);
        let max_connections = options.max_connections;
        Self {
            gate: Gate::default(),
            http,
            options,
            max_connections: max_connections.unwrap_or_else(|| room(descriptor_limit())),
            cut: AtomicBool::new(false),
        }
    }

    /// Ends all connections, whatever they do.
    fn cut(&self) {
        self.cut.store(true, Ordering::Release);
        // Again: who is woken looks at the above.
        self.gate.close();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.cut.load(Ordering::Acquire)
    }

    pub(super) fn complain(&self, error: &AcceptError) {
        #[cfg(feature = "tracing")]
        tracing::warn!(
            target: "tourbillon::axum",
            error = %error.io_error(),
            open = error.open_connections(),
            "cannot accept connections"
        );
        if let Some(hook) = &self.options.on_accept_error {
            hook(error);
        }
    }
}
