//! The server: its options, its start and its end.

use std::{
    convert::Infallible,
    error::Error,
    fmt,
    future::{Future, IntoFuture, poll_fn},
    io,
    marker::PhantomData,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use axum::{extract::Request, response::Response};
use tourbillon::{JoinError, task::JoinSet, time::timeout};
use tower_service::Service;

use crate::{
    accept::accept,
    accept_error::AcceptError,
    listener::{IncomingStream, Listener},
    options::Options,
    route_labels::label_routes,
    server::Server,
};

/// The default of all time limits. hyper has the same default for request heads.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
/// The default minimum transfer rate in bytes per second. Kestrel has the same; Apache asks for
/// 500.
const DEFAULT_RATE: u32 = 240;
/// The default maximum size of HTTP/1 buffers.
const DEFAULT_BUF: usize = 64 * 1024;
/// The smallest buffer size that hyper accepts.
const MIN_BUF: usize = 8 * 1024;

/// Serves the connections of a listener over HTTP/1 and HTTP/2.
///
/// `make_service` is a router, or something that creates a service for each connection, such as
/// `router.into_make_service_with_connect_info::<SocketAddr>()`. Nothing happens until the result
/// is awaited.
///
/// Reports of stalls name a handler of a router by its method and route: see
/// [`RouteLabels`](crate::RouteLabels).
///
/// HTTP/2 works by prior knowledge, or over TLS by ALPN. Connections can be upgraded. hyper's
/// `Upgraded::downcast` does not return the listener's stream, because a type of this library wraps
/// it.
///
/// ```
/// use axum::{Router, routing::get};
/// use tourbillon::{Runtime, net::TcpListener, signal};
///
/// # fn example() -> std::io::Result<()> {
/// let router = Router::new().route("/", get(|| async { "hello" }));
/// Runtime::new().unwrap().block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:8080").await?;
///     tourbillon_axum::serve(listener, router)
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

/// Serves the connections of several listeners, for example one per worker. Each listener has its
/// own accepting task, and all belong to one server. See [`serve`].
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
            header_read_timeout: Some(DEFAULT_TIMEOUT),
            keep_alive_timeout: Some(DEFAULT_TIMEOUT),
            pressure: None,
            write_timeout: Some(DEFAULT_TIMEOUT),
            request_body_timeout: Some(DEFAULT_TIMEOUT),
            min_transfer_rate: DEFAULT_RATE,
            shutdown_timeout: None,
            timeout_tolerance: None,
            max_connections: None,
            max_buf_size: DEFAULT_BUF,
            http1_only: false,
            half_close: false,
            on_accept_error: None,
        },
        _service: PhantomData,
    }
}

/// A server that starts when it is awaited. See [`serve`].
///
/// It ends only with [`with_graceful_shutdown`](Serve::with_graceful_shutdown). Dropping the future
/// closes the listeners, while the connections continue.
///
/// # Errors
///
/// Awaiting it fails if there is no listener. It also fails if an accepting task panics, which
/// happens only if user code such as a [`Listener`] panics.
///
/// # Panics
///
/// Panics if it is awaited outside of a runtime.
#[must_use = "a server does nothing unless awaited"]
pub struct Serve<L, M, S> {
    listeners: Vec<L>,
    make_service: M,
    shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    options: Options,
    _service: PhantomData<fn() -> S>,
}

impl<L: Listener, M, S> Serve<L, M, S> {
    /// Ends the server when `signal` is ready.
    ///
    /// The server then closes its listeners and the connections without a request. It answers the
    /// requests in progress, each as the last one of its connection. The server's future completes
    /// when all connections are closed.
    ///
    /// Upgraded HTTP/1 connections do not belong to the server. An HTTP/2 connection does, and the
    /// server waits for its upgraded streams. If a handler answers without an end, as
    /// with server-sent events, end it yourself, or set a
    /// [`shutdown_timeout`](Serve::shutdown_timeout).
    pub fn with_graceful_shutdown<F>(mut self, signal: F) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.shutdown = Some(Box::pin(signal));
        self
    }

    /// Limits how long a [graceful shutdown](Serve::with_graceful_shutdown) waits for connections.
    /// It then cuts those that are still open. By default there is no limit.
    ///
    /// The server does not wait for connections that it has cut: if a handler blocks its thread,
    /// its connection ends after that.
    pub fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.options.shutdown_timeout = Some(timeout);
        self
    }

    /// Limits the time from accepting a connection to the end of its first request head. This
    /// includes a TLS handshake and the detection of the protocol. The default is 30 s. `None` is
    /// no limit, which lets any client keep connections open forever.
    ///
    /// Incoming bytes do not extend the time. A connection that exceeds it is closed.
    pub fn header_read_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.header_read_timeout = timeout.into();
        self
    }

    /// Limits how long a connection stays open between requests: after a request, and without one
    /// in progress. The default is 30 s; `None` is no limit.
    ///
    /// The time includes reading the head of the next request, and incoming bytes do not extend it.
    ///
    /// A request is in progress until hyper has taken the whole response body. The time counts from
    /// then. If the client takes a long response slowly, it counts from when the client last took
    /// enough of it (see [`write_timeout`](Serve::write_timeout)). An HTTP/2 connection with an
    /// upgraded stream stays open until the program drops this stream, or the client resets it.
    pub fn keep_alive_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.keep_alive_timeout = timeout.into();
        self
    }

    /// Shortens [`keep_alive_timeout`](Serve::keep_alive_timeout) while the server has too much to do.
    ///
    /// The function returns the part of the work that is refused, from 0 to 1. The limit is shorter
    /// by that part, at most to a tenth. Each connection asks ten times in each
    /// `keep_alive_timeout`. `Admission::pressure` of the crate `tourbillon-admission` is such a
    /// part.
    ///
    /// ```no_run
    /// use axum::{Router, routing::get};
    /// use tourbillon::net::TcpListener;
    ///
    /// # fn part_of_refused_requests() -> f64 { 0.0 }
    /// # async fn run() -> std::io::Result<()> {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let router = Router::new().route("/", get(|| async { "hello" }));
    /// tourbillon_axum::serve(listener, router)
    ///     .pressure(part_of_refused_requests)
    ///     .await
    /// # }
    /// ```
    pub fn pressure<F>(mut self, pressure: F) -> Self
    where
        F: Fn() -> f64 + Send + Sync + 'static,
    {
        self.options.pressure = Some(Box::new(pressure));
        self
    }

    /// Limits how long a response may wait for its client. The default is 30 s; `None` is no limit.
    ///
    /// In each such period the client must take all pending data, or as many bytes as
    /// [`min_transfer_rate`](Serve::min_transfer_rate) asks for. Otherwise its connection is
    /// closed; with HTTP/2 only the stream is reset. This happens between one and two periods after
    /// the client stops taking data. In both cases the response body is dropped.
    ///
    /// Over TCP, with or without TLS, the client has taken the bytes that its system has
    /// acknowledged. Over Unix sockets, and with other kinds of [`Listener`], it has taken the
    /// bytes that the socket accepted. The system accepts more only after a large part of its
    /// buffer is free.
    ///
    /// A response without pending data does not wait for its client: server-sent events, long polls
    /// and slow bodies have no limit. Upgraded HTTP/1 connections have none, either. An upgraded
    /// HTTP/2 stream is never reset by this limit. But if the socket of its connection accepts too
    /// little, the connection is closed, with all its streams.
    pub fn write_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.write_timeout = timeout.into();
        self
    }

    /// Limits how long a handler may wait for the request body. The default is 30 s; `None` is no
    /// limit.
    ///
    /// In each such period the client must send as many bytes as
    /// [`min_transfer_rate`](Serve::min_transfer_rate) asks for. Otherwise the body ends with an
    /// error, whose [source](std::error::Error::source) is an [`io::Error`] of kind
    /// [`TimedOut`](io::ErrorKind::TimedOut). axum's extractors answer this with 400. The
    /// connection is closed after the answer; with HTTP/2 the stream is reset.
    ///
    /// Time counts only while the handler waits for the body. A read that the handler gave up, for
    /// example in a `select!`, counts until the limit. If the handler reads again a second or more
    /// after the limit, the time starts anew.
    ///
    /// Time does not count once the response has begun: a request and a response that stream at the
    /// same time may both be silent. For routes whose clients may be silent for long, use
    /// [`without_body_timeout`](super::without_body_timeout).
    pub fn request_body_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.options.request_body_timeout = timeout.into();
        self
    }

    /// Sets how late the time limits of clients may be, so that the limits of many connections
    /// share wake-ups. With zero they are exact.
    ///
    /// By default each limit may be late by a 32nd of it, at most 250 ms. No limit is ever early.
    /// This concerns [`header_read_timeout`](Serve::header_read_timeout),
    /// [`keep_alive_timeout`](Serve::keep_alive_timeout), [`write_timeout`](Serve::write_timeout)
    /// and [`request_body_timeout`](Serve::request_body_timeout).
    pub fn timeout_tolerance(mut self, tolerance: Duration) -> Self {
        self.options.timeout_tolerance = Some(tolerance);
        self
    }

    /// Sets the minimum transfer rate of request and response bodies, in bytes per second. The
    /// default is 240.
    ///
    /// It is an average over [`request_body_timeout`](Serve::request_body_timeout) or
    /// [`write_timeout`](Serve::write_timeout). With zero, one byte per period is enough.
    pub fn min_transfer_rate(mut self, bytes: u32) -> Self {
        self.options.min_transfer_rate = bytes;
        self
    }

    /// Limits the number of open connections. Further ones wait in the system's queue. Zero counts
    /// as one; `usize::MAX` is no limit.
    ///
    /// The default depends on how many descriptors the process may have open (`RLIMIT_NOFILE`) when
    /// the server starts: all but an eighth, and all but at least 32. With 1024 descriptors that is
    /// 896.
    ///
    /// Listeners do not wait for each other when there is room for one more. So with `n` listeners
    /// there may be `n - 1` connections more.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.options.max_connections = Some(count.max(1));
        self
    }

    /// Limits how many bytes an HTTP/1 connection may buffer in each direction. The default is 64
    /// KiB, the minimum 8 KiB.
    ///
    /// A longer request head is answered with 431. Of a response, no more than this is taken in
    /// advance. Each of many connections that send endless heads can use this much memory.
    pub fn max_buf_size(mut self, bytes: usize) -> Self {
        self.options.max_buf_size = bytes.max(MIN_BUF);
        self
    }

    /// Sets whether an HTTP/1 client may close its writing half after a request and still be
    /// answered. By default it may not.
    ///
    /// By default, the end of the client's data ends the connection and drops the handler. The
    /// server cannot distinguish a client that has gone away from one that has closed its writing
    /// half. With `true` the server only notices a client's absence when it writes. The handler
    /// then continues until it has answered, and so does the connection. Limit handlers by a
    /// timeout in this case.
    pub fn half_close(mut self, may: bool) -> Self {
        self.options.half_close = may;
        self
    }

    /// Speaks HTTP/1 only, even if a client begins with HTTP/2. This reduces the attack surface and
    /// affects no browser, because they use HTTP/2 only over TLS.
    pub fn http1_only(mut self) -> Self {
        self.options.http1_only = true;
        self
    }

    /// Calls `f` when a waiting connection cannot be accepted because the process has no
    /// descriptors left.
    ///
    /// The server tries again every 100 ms. It calls `f` at most once per second and listener. With
    /// the feature `tracing` it also logs a warning.
    pub fn on_accept_error(mut self, f: impl Fn(&AcceptError) + Send + Sync + 'static) -> Self {
        self.options.on_accept_error = Some(Box::new(f));
        self
    }

    /// Returns the address of the first listener.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or `InvalidInput` if there is no listener.
    pub fn local_addr(&self) -> io::Result<L::Addr> {
        self.listeners.first().ok_or_else(no_listener)?.local_addr()
    }
}

fn no_listener() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "there is no listener: pass at least one",
    )
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
    async fn run(mut self) -> io::Result<()> {
        if self.listeners.is_empty() {
            return Err(no_listener());
        }
        label_routes(&mut self.make_service);
        let server = Arc::new(Server::new(self.options));
        let mut acceptors = JoinSet::new();
        // One task for each listener, so that a busy one does not hold up the others.
        for listener in self.listeners {
            let make_service = self.make_service.clone();
            acceptors.spawn(accept::<L, M, S>(listener, make_service, server.clone()));
        }
        let mut shutdown = self.shutdown;
        poll_fn(|cx| {
            // Accepting tasks only end by a panic.
            if let Poll::Ready(Some(ended)) = acceptors.poll_join_next(cx) {
                return Poll::Ready(ended.map_err(accepting_failed));
            }
            match &mut shutdown {
                Some(signal) => signal.as_mut().poll(cx).map(Ok),
                None => Poll::Pending,
            }
        })
        .await?;
        // When this returns, the listeners are closed.
        acceptors.shutdown().await;
        // Close the connections after the listeners, so that none is added after it.
        server.connections.close();
        let closed = server.connections.at_most(0);
        match server.options.shutdown_timeout {
            None => closed.await,
            Some(limit) => {
                // Do not wait for these: a handler that blocks its thread could keep the server for
                // ever.
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
            .field("timeout_tolerance", &self.options.timeout_tolerance)
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
