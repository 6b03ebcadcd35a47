//! Limits of a server, handlers that fail, and how a server ends, beside slow and silent clients.

use std::{
    convert::Infallible,
    future::{IntoFuture, pending},
    io::{ErrorKind, Read, Write},
    net::TcpStream as StdStream,
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Path, Request},
    routing::get,
};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http_body_util::Empty;
use hyper::body::Bytes;
use tourbillon::{
    net::{TcpListener, TcpStream, UnixStream},
    time::{sleep, timeout},
};
use tourbillon_axum::serve;
use tourbillon_hyper::{TourbillonExecutor, TourbillonIo};

use crate::{
    common::{
        Drops, HOUR, PATIENCE, alarm, event::Event, eventually, net::ANY_PORT, paused::paused,
        runtime, unix,
    },
    web::{Client, SHORT, Site, hello, http2, limited, page::is_refused, told, without_tokio},
};

#[test]
fn a_shutdown_answers_open_requests_and_closes_other_connections() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (router, asked, answer) = told();
    let site = Site::start(&runtime, router);
    let addr = site.addr;
    let (silent, mut kept, mut waiting) = (site.connect(), site.connect(), site.connect());
    assert_eq!(kept.get("/").body, "hello");
    waiting.send("GET /told HTTP/1.1\r\nHost: test\r\n\r\n");
    runtime.block_on(asked.wait());
    let served = site.stop();
    assert_eq!(silent.end(), "");
    assert_eq!(kept.end(), "");
    // The server closed these connections after the listener.
    eventually("the listener is closed", || is_refused(addr));
    assert!(!served.is_finished());
    answer.set();
    let reply = waiting.reply();
    assert_eq!((reply.status, &*reply.body), (200, "told"));
    assert_eq!(reply.header("connection"), Some("close"));
    waiting.end();
    runtime.block_on(served).unwrap().unwrap();
}

#[test]
fn a_shutdown_that_takes_too_long_closes_open_connections() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let (token, asked) = (drops.clone(), Event::default());
    let asked_here = asked.clone();
    let for_ever = move || async move {
        let _token = token.token();
        asked_here.set();
        pending::<()>().await;
    };
    let router = Router::new().route("/", get(for_ever));
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, router)
            .with_graceful_shutdown(stop)
            .shutdown_timeout(SHORT)
    });
    let mut client = site.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    runtime.block_on(asked.wait());
    let start = Instant::now();
    runtime.block_on(site.stop()).unwrap().unwrap();
    assert!(start.elapsed() >= SHORT);
    assert_eq!(client.end(), "");
    eventually("the handler is dropped", || drops.count() == 1);
}

#[test]
fn a_client_with_a_missing_or_slow_request_head_is_closed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = limited(&runtime, SHORT, HOUR);
    // Send nothing; the beginning of HTTP/2, after which the version is still unknown; and half a
    // head.
    for beginning in ["", "PRI * HTTP/2", "GET / HTTP/1.1\r\nHost: te"] {
        let start = Instant::now();
        let mut client = site.connect();
        client.send(beginning);
        assert_eq!(client.end(), "");
        assert!(start.elapsed() >= SHORT, "{beginning:?}");
    }
    // This client is never silent for long, and never finishes its head.
    let start = Instant::now();
    let mut client = site.connect();
    client.send("GET / HTTP/1.1\r\nHost: ");
    client.stream.set_nonblocking(true).unwrap();
    loop {
        let written = client.stream.write(b"x");
        let closed = match client.stream.read(&mut [0; 64]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if closed || written.is_err() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "still open");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(start.elapsed() >= SHORT);
}

#[test]
fn the_keep_alive_timeout_closes_idle_connections_only() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let slow = |Path(ms): Path<u64>| async move { sleep(Duration::from_millis(ms)).await };
    let router = hello().route("/slow/{ms}", get(slow));
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, router)
            .with_graceful_shutdown(stop)
            .header_read_timeout(HOUR)
            .keep_alive_timeout(SHORT)
    });
    let start = Instant::now();
    let mut client = site.connect();
    assert_eq!(client.get("/slow/400").status, 200);
    client.end();
    assert!(start.elapsed() >= SHORT + Duration::from_millis(400));
    // With HTTP/2 the server announces the end to the client.
    let addr = site.addr;
    runtime.block_on(async {
        let (_sender, connection, start) = loop {
            let stream = TourbillonIo::new(TcpStream::connect(addr).await.unwrap());
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TourbillonExecutor::new(), stream)
                    .await
                    .unwrap();
            let connection = tourbillon::spawn(connection);
            let start = Instant::now();
            let request = Request::get("http://test/slow/200");
            let request = request.body(Empty::<Bytes>::new()).unwrap();
            // On a busy machine the request may come when the connection was idle for too long.
            if sender.send_request(request).await.is_ok() {
                break (sender, connection, start);
            }
        };
        timeout(PATIENCE, connection)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(start.elapsed() >= SHORT + Duration::from_millis(200));
    });
}

#[test]
fn too_large_heads_and_other_protocols_are_refused() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, hello());
    let many = "x: y\r\n".repeat(200);
    let mut client = site.connect();
    client.send(&format!("GET / HTTP/1.1\r\n{many}\r\n"));
    assert!(client.end().starts_with("HTTP/1.1 431 "));
    let mut client = site.connect();
    // The server may refuse the head before all of it is sent.
    let line = vec![b'x'; 1 << 20];
    let _ = client.stream.write_all(b"GET / HTTP/1.1\r\nx: ");
    let _ = client.stream.write_all(&line);
    let said = client.end();
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431 "),
        "{said}"
    );
    for nonsense in [
        "\0\u{1}\u{2}nonsense\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/3.7\r\n\r\n",
    ] {
        let mut client = site.connect();
        client.send(nonsense);
        let said = client.end();
        assert!(said.starts_with("HTTP/1.1 400 "), "{said}");
    }
    assert_eq!(site.connect().get("/").body, "hello");
}

#[test]
fn an_http1_only_server_with_small_buffers_refuses_larger_heads_and_http2() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, hello())
            .with_graceful_shutdown(stop)
            .max_buf_size(16 * 1024)
            .http1_only()
    });
    let with_line = |length: usize| {
        let line = "x".repeat(length);
        let mut client = site.connect();
        // The server may refuse the head before all of it is sent.
        let head = format!("GET / HTTP/1.1\r\nConnection: close\r\nx: {line}\r\n\r\n");
        let _ = client.stream.write_all(head.as_bytes());
        client.end()
    };
    assert!(with_line(8 * 1024).starts_with("HTTP/1.1 200 "));
    // hyper accepts such a head by default. (The server may close with unread data, which resets
    // the connection.)
    let said = with_line(100 * 1024);
    assert!(
        said.is_empty() || said.starts_with("HTTP/1.1 431 "),
        "{said}"
    );
    let mut client = site.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    // The answer is neither a frame of HTTP/2, which begins with its length, nor a success.
    let said = client.end();
    assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{said}");
    // A size that is too small for hyper becomes the smallest that hyper takes.
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, hello())
            .with_graceful_shutdown(stop)
            .max_buf_size(0)
    });
    assert_eq!(site.connect().get("/").body, "hello");
}

#[test]
fn a_panic_in_a_handler_ends_only_its_connection_or_stream() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let router = hello().route("/panic", get(panicking));
    let site = Site::start(&runtime, router);
    let before = runtime.metrics().total().panics();
    let (mut other, mut client) = (site.connect(), site.connect());
    assert_eq!(other.get("/").body, "hello");
    client.send("GET /panic HTTP/1.1\r\nHost: test\r\n\r\n");
    assert_eq!(client.end(), "");
    assert_eq!(other.get("/").body, "hello");
    let addr = site.addr;
    runtime.block_on(async {
        let mut sender = http2::<Empty<Bytes>>(addr).await;
        for path in ["/panic", "/"] {
            let request = Request::get(format!("http://test{path}"));
            let request = request.body(Empty::new()).unwrap();
            let response = sender.send_request(request).await;
            assert_eq!(response.is_ok(), path == "/");
        }
    });
    assert_eq!(runtime.metrics().total().panics(), before + 2);
    runtime.block_on(site.stop()).unwrap().unwrap();
}

async fn panicking() {
    panic!("as it should");
}

/// A service that returns errors.
#[derive(Clone)]
struct Failing;

impl tower_service::Service<Request> for Failing {
    type Response = axum::response::Response;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Self::Error>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request) -> Self::Future {
        std::future::ready(Err("out of order"))
    }
}

/// Makes a [`Failing`] for each connection.
#[derive(Clone)]
struct MakeFailing;

impl<T> tower_service::Service<T> for MakeFailing {
    type Response = Failing;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Failing, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: T) -> Self::Future {
        std::future::ready(Ok(Failing))
    }
}

#[test]
fn an_error_of_a_service_ends_its_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, MakeFailing).with_graceful_shutdown(stop)
    });
    for _ in 0..2 {
        let mut client = site.connect();
        client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
        assert_eq!(client.end(), "");
    }
    runtime.block_on(site.stop()).unwrap().unwrap();
}

#[test]
fn a_handler_is_dropped_when_its_client_disconnects() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (drops, asked) = (Drops::new(), Event::default());
    let (token, asked_here) = (drops.clone(), asked.clone());
    let for_ever = move || async move {
        let _token = token.token();
        asked_here.set();
        pending::<()>().await;
    };
    let site = Site::start(&runtime, Router::new().route("/", get(for_ever)));
    let mut client = site.connect();
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    runtime.block_on(asked.wait());
    assert_eq!(drops.count(), 0);
    drop(client);
    eventually("the handler is dropped", || drops.count() == 1);
    runtime.block_on(site.stop()).unwrap().unwrap();
}

#[test]
fn connections_above_the_limit_wait() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, hello())
            .with_graceful_shutdown(stop)
            .max_connections(2)
    });
    let (mut first, mut second) = (site.connect(), site.connect());
    assert_eq!(first.get("/").body, "hello");
    assert_eq!(second.get("/").body, "hello");
    let mut third = site.connect();
    third.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    third.stream.set_read_timeout(Some(SHORT)).unwrap();
    let error = third.stream.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    third.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(first);
    assert_eq!(third.reply().body, "hello");
}

#[test]
fn a_long_response_may_be_read_slowly_but_not_abandoned() {
    let _alarm = alarm();
    const LEN: usize = 4 << 20;
    // The limits are the defaults, 30 s.
    paused(2).block_on(async {
        let (listener, addr) = unix::listen();
        let long = without_tokio(Router::new().route("/", get(|| async { vec![7; LEN] })));
        let server = tourbillon::spawn(serve(listener, long).into_future());
        let ask = async || {
            let mut client = UnixStream::connect_addr(&addr).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
            client.write_all(request).await.unwrap();
            client
        };
        let mut client = ask().await;
        let mut taken = Vec::new();
        let mut piece = vec![0; LEN / 10];
        while taken.len() < LEN {
            sleep(Duration::from_secs(20)).await;
            let n = client.read(&mut piece).await.unwrap();
            assert!(n > 0, "closed after {} bytes", taken.len());
            taken.extend_from_slice(&piece[..n]);
        }
        assert!(taken.ends_with(&[7; 1000]));

        let mut client = ask().await;
        let mut beginning = Vec::new();
        sleep(HOUR).await;
        let _ = client.read_to_end(&mut beginning).await;
        assert!(
            beginning.len() < LEN,
            "it was taken, or the end never comes"
        );
        server.abort();
    });
}

#[test]
fn a_dropped_server_stops_listening_and_keeps_its_connections() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let listener = runtime.block_on(TcpListener::bind(ANY_PORT)).unwrap();
    let addr = listener.local_addr().unwrap();
    let server = runtime.spawn(serve(listener, hello()).into_future());
    let mut client = Client::connect(addr);
    assert_eq!(client.get("/").body, "hello");
    server.abort();
    eventually("the listener is closed", || {
        StdStream::connect(addr).is_err()
    });
    assert_eq!(client.get("/").body, "hello");
}

#[test]
fn zero_and_endless_limits_work() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = limited(&runtime, Duration::ZERO, HOUR);
    assert_eq!(site.connect().end(), "");
    let site = limited(&runtime, HOUR, Duration::ZERO);
    let mut client = site.connect();
    assert_eq!(client.get("/").body, "hello");
    assert_eq!(client.end(), "");
    let site = limited(&runtime, Duration::MAX, Duration::MAX);
    let mut client = site.connect();
    assert_eq!(client.get("/").body, "hello");
    assert_eq!(client.get("/").body, "hello");
    runtime.block_on(site.stop()).unwrap().unwrap();
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, hello())
            .with_graceful_shutdown(stop)
            .header_read_timeout(None)
            .keep_alive_timeout(None)
            .max_connections(0)
            .shutdown_timeout(Duration::ZERO)
    });
    let mut client = site.connect();
    assert_eq!(client.get("/").body, "hello");
    runtime.block_on(site.stop()).unwrap().unwrap();
    assert_eq!(client.end(), "");
}
