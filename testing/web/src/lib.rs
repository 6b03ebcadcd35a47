//! Servers in the test's own process, and clients that show each byte.

#![allow(missing_docs, reason = "only our tests use it")]
#![allow(
    clippy::should_implement_trait,
    reason = "this is a rule for published interfaces"
)]

mod client;
pub mod frames;
pub mod page;
pub mod tls;

use std::{
    future::{Future, IntoFuture},
    io,
    net::{Ipv4Addr, SocketAddr},
    time::Duration,
};

use axum::{Router, body::Bytes, extract::Request, middleware, response::Response, routing::get};
use futures::channel::oneshot;
use http_body_util::Empty;
use tourbillon::{JoinHandle, Runtime, net::TcpListener, task::yield_now};
use tourbillon_axum::serve;
use tourbillon_hyper::{TourbillonExecutor, TourbillonIo};
use tourbillon_support::{event::Event, net::ANY_PORT};

pub use self::client::{Client, Reply, curl};
pub use tourbillon_examples::handshake;

/// A short limit, for tests that wait until it is over.
pub const SHORT: Duration = Duration::from_millis(150);

/// Returns a router with one page.
pub fn hello() -> Router {
    without_tokio(Router::new().route("/", get(|| async { "hello" })))
}

/// Returns a router and two events. Its handler sets the first event when it is asked, and
/// answers after the second is set.
pub fn told() -> (Router, Event, Event) {
    let (asked, answer) = (Event::default(), Event::default());
    let (asked_here, answer_here) = (asked.clone(), answer.clone());
    let handler = move || async move {
        asked_here.set();
        answer_here.wait().await;
        // The answer comes in a later poll than the one in which the handler got the signal.
        yield_now().await;
        "told"
    };
    let router = Router::new().route("/told", get(handler));
    (router.merge(hello()), asked, answer)
}

/// Starts a server with these timeouts for request heads and for idle connections.
pub fn limited(runtime: &Runtime, head: Duration, kept: Duration) -> Site {
    Site::with(runtime, |listener, stop| {
        serve(listener, hello())
            .with_graceful_shutdown(stop)
            .header_read_timeout(head)
            .keep_alive_timeout(kept)
    })
}

/// A running server.
pub struct Site {
    pub addr: SocketAddr,
    stop: oneshot::Sender<()>,
    served: JoinHandle<io::Result<()>>,
}

impl Site {
    /// Serves a router. Each request checks that there is no runtime of tokio's.
    pub fn start(runtime: &Runtime, router: Router) -> Self {
        Self::with(runtime, |listener, stop| {
            serve(listener, without_tokio(router)).with_graceful_shutdown(stop)
        })
    }

    /// Serves by `serve`, which gets a listener and the signal to end at.
    pub fn with<F: IntoFuture<Output = io::Result<()>>>(
        runtime: &Runtime,
        serve: impl FnOnce(TcpListener, Stop) -> F,
    ) -> Self
    where
        F::IntoFuture: Send + 'static,
    {
        Self::at(runtime, ANY_PORT, serve)
    }

    /// Serves at `addr` by `serve`, as [`with`](Self::with) does.
    pub fn at<F: IntoFuture<Output = io::Result<()>>>(
        runtime: &Runtime,
        addr: (Ipv4Addr, u16),
        serve: impl FnOnce(TcpListener, Stop) -> F,
    ) -> Self
    where
        F::IntoFuture: Send + 'static,
    {
        let listener = runtime.block_on(TcpListener::bind(addr)).unwrap();
        let addr = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(serve(listener, Stop(stopped)).into_future());
        Self { addr, stop, served }
    }

    /// Tells the server to end.
    pub fn stop(self) -> JoinHandle<io::Result<()>> {
        self.stop.send(()).unwrap();
        self.served
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.addr)
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr)
    }
}

/// The signal at which a [`Site`] ends: a future that is then ready.
pub struct Stop(oneshot::Receiver<()>);

impl Future for Stop {
    type Output = ();

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<()> {
        let stopped = std::pin::Pin::new(&mut self.0).poll(cx);
        // Dropping the other end does not stop the server.
        stopped.map(|stopped| {
            if stopped.is_err() {
                panic!("dropped")
            }
        })
    }
}

/// Returns the router with a check that requests find no runtime of tokio's.
pub fn without_tokio(router: Router) -> Router {
    router.layer(middleware::from_fn(
        |request: Request, next: middleware::Next| async {
            assert!(tokio::runtime::Handle::try_current().is_err());
            let response: Response = next.run(request).await;
            assert!(tokio::runtime::Handle::try_current().is_err());
            response
        },
    ))
}

/// Connects by HTTP/2, on the runtime that polls this.
pub async fn http2<B>(addr: SocketAddr) -> hyper::client::conn::http2::SendRequest<B>
where
    B: hyper::body::Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tourbillon::net::TcpStream::connect(addr).await.unwrap();
    let stream = TourbillonIo::new(stream);
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TourbillonExecutor::new(), stream)
            .await
            .unwrap();
    tourbillon::spawn(connection);
    sender
}

/// Sends the first request of a connection by HTTP/2. A server that closes idle connections soon
/// may close it before the request comes, on a busy machine: then this tries another one.
pub async fn first_answer(
    addr: SocketAddr,
    request: impl Fn() -> Request<Empty<Bytes>>,
) -> (
    hyper::client::conn::http2::SendRequest<Empty<Bytes>>,
    Response<hyper::body::Incoming>,
) {
    loop {
        let mut sender = http2(addr).await;
        if let Ok(response) = sender.send_request(request()).await {
            return (sender, response);
        }
    }
}
