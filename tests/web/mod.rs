//! Servers in the test's own process, and clients that show each byte.

#![allow(
    dead_code,
    reason = "each test binary is a crate of its own, and uses a part"
)]

pub mod frames;
pub mod tls;

use std::{
    future::{Future, IntoFuture},
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    process::Command,
    time::Duration,
};

use axum::{Router, body::Bytes, extract::Request, middleware, response::Response, routing::get};
use futures::channel::oneshot;
use http_body_util::Empty;
use tourbillon::{
    JoinHandle, Runtime, axum::serve, hyper::TourbillonExecutor, net::TcpListener, task::yield_now,
};

use crate::common::{PATIENCE, event::Event, net::ANY_PORT};

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
        let listener = runtime.block_on(TcpListener::bind(ANY_PORT)).unwrap();
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

/// A connection on which requests are written by hand.
pub struct Client {
    pub stream: TcpStream,
    read: Vec<u8>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Self {
        Self::of(TcpStream::connect(addr).unwrap())
    }

    /// Returns a client for an existing connection.
    pub fn of(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream,
            read: Vec::new(),
        }
    }

    pub fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).unwrap();
    }

    /// Sends a `GET`, and reads its response.
    pub fn get(&mut self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
        self.reply()
    }

    /// Sends a body of JSON, and reads the response.
    pub fn post(&mut self, path: &str, json: &str) -> Reply {
        let length = json.len();
        self.send(&format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{json}"
        ));
        self.reply()
    }

    /// Reads a response whose length is said.
    pub fn reply(&mut self) -> Reply {
        let head = self.read_through("\r\n\r\n");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = header(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        while self.read.len() < length {
            self.read_more();
        }
        let body = self.read.drain(..length).collect();
        Reply {
            status,
            head,
            body: String::from_utf8(body).unwrap(),
        }
    }

    /// Reads until the end of the text `what`, which has to come. Returns what was read.
    pub fn read_through(&mut self, what: &str) -> String {
        let what = what.as_bytes();
        loop {
            let found = self.read.windows(what.len()).position(|at| at == what);
            if let Some(at) = found {
                let text = self.read.drain(..at + what.len()).collect();
                return String::from_utf8(text).unwrap();
            }
            self.read_more();
        }
    }

    fn read_more(&mut self) {
        let mut buf = [0; 4096];
        let n = self.stream.read(&mut buf).unwrap();
        assert!(n > 0, "{:?}, and then the end", self.read);
        self.read.extend_from_slice(&buf[..n]);
    }

    /// Waits until the server closes the connection. Returns what it sent before.
    pub fn end(mut self) -> String {
        let mut buf = [0; 4096];
        loop {
            match self.stream.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => self.read.extend_from_slice(&buf[..n]),
                // If the server closes with unread data, the connection is reset.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
                Err(error) => panic!("not closed: {error}"),
            }
        }
        String::from_utf8_lossy(&self.read).into_owned()
    }
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.head, name)
    }
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Returns curl's output.
#[track_caller]
pub fn curl(args: &[&str]) -> String {
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--noproxy", "*"])
        .args(["--max-time", "60"])
        .args(args)
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    assert!(output.status.success(), "{out} {err}");
    out
}

/// Connects by HTTP/2, on the runtime that polls this.
pub async fn http2<B>(addr: SocketAddr) -> hyper::client::conn::http2::SendRequest<B>
where
    B: hyper::body::Body + Unpin + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let stream = tourbillon::net::TcpStream::connect(addr).await.unwrap();
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
