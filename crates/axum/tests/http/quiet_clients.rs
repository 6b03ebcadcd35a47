//! Servers with default limits beside clients that are slow or silent within those limits: they are
//! not closed. On a paused clock.

use std::{
    convert::Infallible,
    future::IntoFuture,
    io::{self, IoSlice},
    os::unix::net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    middleware::map_request,
    response::Response,
    routing::{get, post},
};
use futures::{SinkExt, channel::mpsc, stream};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http_body_util::BodyExt;
use hyper::rt::{Read, ReadBufCursor, Write};
use tourbillon::{
    net::UnixStream,
    time::{Sleep, sleep},
};
use tourbillon_axum::{ListenerExt, serve, without_body_timeout};
use tourbillon_hyper::{TourbillonExecutor, TourbillonIo};

use crate::{
    common::{Drops, HOUR, alarm, paused::paused, unix::listen},
    web::without_tokio,
};

fn on_a_paused_clock(test: impl Future<Output = ()>) {
    let _alarm = alarm();
    paused(2).block_on(test);
}

/// Starts a server with the default limits. Returns its address.
fn start(router: Router) -> SocketAddr {
    let (listener, addr) = listen();
    drop(tourbillon::spawn(
        serve(listener, without_tokio(router)).into_future(),
    ));
    addr
}

/// Connects by HTTP/2. The server may send `window` bytes on each stream before the client allows
/// more.
async fn http2(addr: &SocketAddr, window: u32) -> hyper::client::conn::http2::SendRequest<Body> {
    let stream = TourbillonIo::new(UnixStream::connect_addr(addr).await.unwrap());
    let mut builder = hyper::client::conn::http2::Builder::new(TourbillonExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(stream).await.unwrap();
    drop(tourbillon::spawn(connection));
    sender
}

/// Returns a body that comes from a channel, and the sender of the channel.
fn channel() -> (mpsc::Sender<Result<Bytes, Infallible>>, Body) {
    let (sender, receiver) = mpsc::channel(0);
    (sender, Body::from_stream(receiver))
}

async fn hourly() -> Body {
    Body::from_stream(stream::unfold(0, |n| async move {
        sleep(HOUR).await;
        (n < 3).then_some((Ok::<_, Infallible>("tick"), n + 1))
    }))
}

#[test]
fn a_response_with_nothing_to_send_may_be_silent() {
    on_a_paused_clock(async {
        let addr = start(Router::new().route("/", get(hourly)));
        let mut sender = http2(&addr, 1 << 16).await;
        let request = Request::get("http://test/").body(Body::empty()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "tickticktick");

        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        client.write_all(request).await.unwrap();
        let mut said = String::new();
        client.read_to_string(&mut said).await.unwrap();
        assert_eq!(said.matches("tick").count(), 3, "{said}");
    });
}

#[test]
fn a_handler_may_take_as_long_as_it_likes_to_answer() {
    on_a_paused_clock(async {
        let slow = || async { sleep(HOUR).await };
        let addr = start(Router::new().route("/", get(slow)));
        let mut sender = http2(&addr, 1 << 16).await;
        let request = Request::get("http://test/").body(Body::empty()).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
    });
}

#[test]
fn an_http2_response_may_be_read_slowly() {
    const LEN: usize = 1 << 20;
    on_a_paused_clock(async {
        let addr = start(Router::new().route("/", get(|| async { vec![7; LEN] })));
        let mut sender = http2(&addr, 20_000).await;
        let request = Request::get("http://test/").body(Body::empty()).unwrap();
        let mut body = sender.send_request(request).await.unwrap().into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().into_data().unwrap().len();
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(length, LEN);
    });
}

#[test]
fn a_body_may_be_read_slowly() {
    const LEN: usize = 4 << 20;
    on_a_paused_clock(async {
        let read = |mut body: Body| async move {
            let mut length = 0;
            while let Some(frame) = body.frame().await {
                length += frame.unwrap().into_data().unwrap().len();
                sleep(HOUR).await;
            }
            length.to_string()
        };
        let addr = start(Router::new().route("/", post(read)));
        let mut sender = http2(&addr, 1 << 16).await;
        let request = Request::post("http://test/");
        let request = request.body(Body::from(vec![7; LEN])).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, LEN.to_string());
    });
}

#[test]
fn a_handler_may_return_to_an_unread_body_late() {
    on_a_paused_clock(async {
        // The handler gives up a read, as a branch of a `select!` does, and does something else
        // for a long time.
        let read = |mut body: Body| async move {
            let mut read = String::new();
            for _ in 0..3 {
                assert!(futures::poll!(body.frame()).is_pending());
                sleep(Duration::from_secs(40)).await;
                let frame = body.frame().await.unwrap().unwrap();
                read += std::str::from_utf8(&frame.into_data().unwrap()).unwrap();
            }
            read
        };
        let addr = start(Router::new().route("/", post(read)));
        let mut sender = http2(&addr, 1 << 16).await;
        let (mut input, body) = channel();
        let request = Request::post("http://test/").body(body).unwrap();
        let asked = tourbillon::spawn(sender.send_request(request));
        // The first part comes while the handler waits again, the second before that, and the
        // third as the first.
        for pause in [60, 30, 75] {
            sleep(Duration::from_secs(pause)).await;
            let _ = input.send(Ok(Bytes::from_static(b"x"))).await;
        }
        let response = asked.await.unwrap().unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, "xxx");
    });
}

#[test]
fn a_request_and_response_that_stream_both_ways_may_be_silent() {
    on_a_paused_clock(async {
        let echo = |body: Body| async { Response::new(body) };
        let addr = start(Router::new().route("/", post(echo)));
        let mut sender = http2(&addr, 1 << 16).await;
        let (mut input, body) = channel();
        let request = Request::post("http://test/").body(body).unwrap();
        let mut output = sender.send_request(request).await.unwrap().into_body();
        for _ in 0..3 {
            sleep(HOUR).await;
            input.send(Ok(Bytes::from_static(b"hello"))).await.unwrap();
            let frame = output.frame().await.unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), "hello");
        }
        drop(input);
        assert_eq!(output.collect().await.unwrap().to_bytes(), "");
    });
}

#[test]
fn a_route_may_disable_the_body_timeout() {
    on_a_paused_clock(async {
        let read = |body: Body| async {
            let body = to_bytes(body, usize::MAX).await;
            body.map_or(0, |body| body.len()).to_string()
        };
        let router = Router::new()
            .route("/slow", post(read))
            .layer(map_request(without_body_timeout))
            .route("/", post(read));
        let addr = start(router);
        let mut sender = http2(&addr, 1 << 16).await;
        for (path, length) in [("/slow", "2"), ("/", "0")] {
            let (mut input, body) = channel();
            let request = Request::post(format!("http://test{path}"));
            let asked = tourbillon::spawn(sender.send_request(request.body(body).unwrap()));
            input.send(Ok(Bytes::from_static(b"x"))).await.unwrap();
            sleep(HOUR).await;
            let _ = input.send(Ok(Bytes::from_static(b"y"))).await;
            drop(input);
            let response = asked.await.unwrap().unwrap();
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, length, "{path}");
        }
    });
}

/// A connection whose client takes at most `part` bytes each second.
struct Trickle {
    io: TourbillonIo<UnixStream>,
    part: usize,
    pause: Pin<Box<Sleep>>,
}

impl Read for Trickle {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.io), cx, buf)
    }
}

impl Write for Trickle {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.pause.as_mut().poll(cx));
        self.pause = Box::pin(sleep(Duration::from_secs(1)));
        let part = &buf[..buf.len().min(self.part)];
        Write::poll_write(Pin::new(&mut self.io), cx, part)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let first = bufs.iter().find(|buf| !buf.is_empty());
        self.poll_write(cx, first.map_or(&[], |buf| buf))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.io), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.io), cx)
    }
}

/// Returns how many bytes of a response of `length` bytes arrive, if the client takes `part`
/// bytes each second.
async fn trickled(part: usize, length: usize) -> usize {
    let (listener, addr) = listen();
    let listener = listener.handshake(move |io| async move {
        let pause = Box::pin(sleep(Duration::ZERO));
        Ok(Trickle { io, part, pause })
    });
    let drops = Drops::new();
    let token = drops.clone();
    let page = move || {
        let token = token.token();
        // The body comes in pieces, so that hyper does not take it all at once.
        let pieces = (0..length / 1024).map(move |_| {
            let _ = &token;
            Ok::<_, Infallible>(vec![7; 1024])
        });
        async { Body::from_stream(stream::iter(pieces)) }
    };
    let server = serve(listener, Router::new().route("/", get(page)))
        .max_buf_size(8 * 1024)
        .into_future();
    let server = tourbillon::spawn(server);
    let mut client = UnixStream::connect_addr(&addr).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    client.write_all(request).await.unwrap();
    let mut taken = Vec::new();
    let _ = client.read_to_end(&mut taken).await;
    // The client may see the end before the server has dropped everything.
    while drops.count() == 0 {
        sleep(Duration::from_millis(1)).await;
    }
    server.abort();
    taken.len()
}

#[test]
fn a_response_read_at_the_minimum_rate_may_take_long() {
    const LEN: usize = 256 * 1024;
    on_a_paused_clock(async {
        assert!(trickled(100, LEN).await < LEN);
        assert!(trickled(300, LEN).await > LEN);
    });
}
