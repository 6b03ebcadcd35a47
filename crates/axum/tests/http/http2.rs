//! Servers beside HTTP/2 clients that send frames of their own making, or disconnect meanwhile.

use std::{
    io::{ErrorKind, Read, Write},
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
use tourbillon::time::{sleep, timeout};
use tourbillon_axum::serve;

use crate::{
    common::{HOUR, PATIENCE, alarm, eventually, runtime},
    web::{
        SHORT, Site, first_answer,
        frames::{GOAWAY, HEADERS, PING, beginning, frame, http2_get, next_frame},
        http2, limited, told,
    },
};

#[test]
fn a_shutdown_finishes_open_requests_and_accepts_no_more() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (router, asked, answer) = told();
    let site = Site::start(&runtime, router);
    let addr = site.addr;
    runtime.block_on(async {
        let mut sender = http2::<Empty<Bytes>>(addr).await;
        let request = |path| Request::get(format!("http://test{path}")).body(Empty::new());
        let waiting = sender.send_request(request("/told").unwrap());
        let waiting = tourbillon::spawn(waiting);
        asked.wait().await;
        let served = site.stop();
        // The server sees the stop a little later. Until then it may answer requests.
        let refused = async {
            while let Ok(response) = sender.send_request(request("/").unwrap()).await {
                assert_eq!(response.status(), 200);
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, refused).await.unwrap();
        answer.set();
        assert_eq!(waiting.await.unwrap().unwrap().status(), 200);
        served.await.unwrap().unwrap();
    });
}

#[test]
fn a_request_that_crosses_the_goaway_is_answered_however_long_it_takes() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let slow = |Path(ms): Path<u64>| async move { sleep(Duration::from_millis(ms)).await };
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, Router::new().route("/{ms}", get(slow)))
            .with_graceful_shutdown(stop)
            .keep_alive_timeout(SHORT)
    });
    let mut stream = site.connect().stream;
    let mut hello = beginning(&[]);
    hello.extend(http2_get(1, "/0"));
    stream.write_all(&hello).unwrap();
    while next_frame(&mut stream).0 != GOAWAY {}
    // This request crosses the server's goodbye: it comes before the answer to the ping that
    // follows.
    stream.write_all(&http2_get(3, "/2000")).unwrap();
    loop {
        match next_frame(&mut stream) {
            (PING, _, payload) => stream.write_all(&frame(PING, 1, 0, &payload)).unwrap(),
            (HEADERS, 3, _) => break,
            _ => {}
        }
    }
}

#[test]
fn requests_that_cross_the_goaway_late_do_not_end_the_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (router, asked, answer) = told();
    let site = Site::start(&runtime, router);
    let mut stream = site.connect().stream;
    stream.write_all(&beginning(&[])).unwrap();
    stream.write_all(&http2_get(1, "/told")).unwrap();
    runtime.block_on(asked.wait());
    let _served = site.stop();
    while next_frame(&mut stream).0 != GOAWAY {}
    // By then the server has looked twice at what the client does, and it looks again.
    std::thread::sleep(Duration::from_millis(2500));
    stream.write_all(&http2_get(3, "/")).unwrap();
    std::thread::sleep(Duration::from_millis(2500));
    answer.set();
    let mut answered = 0;
    while answered < 2 {
        answered += u32::from(next_frame(&mut stream).0 == HEADERS);
    }
}

#[test]
fn an_upgraded_stream_may_be_silent() {
    use axum::handler::HandlerWithoutStateExt;
    use futures::FutureExt;
    use tourbillon_hyper::FuturesIo;
    let _alarm = alarm();
    let runtime = runtime(2);
    async fn echo(request: Request) {
        tourbillon::spawn(async move {
            let mut stream = FuturesIo::new(hyper::upgrade::on(request).await.unwrap());
            let mut buf = [0; 64];
            while let Ok(n @ 1..) = stream.read(&mut buf).await {
                stream.write_all(&buf[..n]).await.unwrap();
                stream.flush().await.unwrap();
            }
        });
    }
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, echo.into_make_service())
            .with_graceful_shutdown(stop)
            .keep_alive_timeout(SHORT)
    });
    let addr = site.addr;
    runtime.block_on(async {
        let request = || Request::connect("test:80").body(Empty::new()).unwrap();
        let (_sender, response) = first_answer(addr, request).await;
        assert_eq!(response.status(), 200);
        let mut stream = FuturesIo::new(hyper::upgrade::on(response).await.unwrap());
        for wait in [Duration::ZERO, 10 * SHORT + Duration::from_secs(1)] {
            sleep(wait).await;
            stream.write_all(b"hello").await.unwrap();
            stream.flush().await.unwrap();
            let mut reply = [0; 5];
            stream.read_exact(&mut reply).await.unwrap();
            assert_eq!(&reply, b"hello");
        }
        let _ = stream.close().now_or_never();
    });
}

#[test]
fn a_closed_upgraded_stream_does_not_keep_its_connection() {
    use axum::handler::HandlerWithoutStateExt;
    let _alarm = alarm();
    let runtime = runtime(2);
    /// Takes a stream and closes it at once, or does not even take it.
    async fn refuse(request: Request) {
        if request.uri().port_u16() == Some(80) {
            tourbillon::spawn(async move { drop(hyper::upgrade::on(request).await.unwrap()) });
        }
    }
    let site = Site::with(&runtime, |listener, stop| {
        serve(listener, refuse.into_make_service())
            .with_graceful_shutdown(stop)
            .keep_alive_timeout(SHORT)
    });
    for authority in ["test:80", "test:81"] {
        let sender = runtime.block_on(async {
            let request = || Request::connect(authority).body(Empty::new()).unwrap();
            let (sender, response) = first_answer(site.addr, request).await;
            assert_eq!(response.status(), 200);
            sender
        });
        eventually("the connection is closed", || sender.is_closed());
    }
}

#[test]
fn pings_alone_do_not_keep_a_connection() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = limited(&runtime, HOUR, SHORT);
    let mut stream = site.connect().stream;
    let mut hello = beginning(&[]);
    hello.extend(http2_get(1, "/"));
    stream.write_all(&hello).unwrap();
    let start = Instant::now();
    stream.set_nonblocking(true).unwrap();
    loop {
        // Send many pings at once, so that their answers are many bytes.
        let written = stream.write(&frame(PING, 0, 0, b"are you?").repeat(50));
        let closed = match stream.read(&mut [0; 4096]) {
            Ok(n) => n == 0,
            Err(error) => error.kind() != ErrorKind::WouldBlock,
        };
        if closed || written.is_err() {
            break;
        }
        assert!(start.elapsed() < PATIENCE / 2, "still open");
        std::thread::sleep(SHORT / 10);
    }
}
