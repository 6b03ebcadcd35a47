//! hyper-util's client: it keeps connections, closes idle ones, and ends with its limits.

use std::{
    io::{Read, Write},
    net::TcpListener,
    thread,
    time::Duration,
};

use axum::{Router, extract::Request, response::Response, routing::any};
use http_body_util::BodyExt;
use hyper::{Request as Outgoing, Version, body::Bytes};
use tourbillon::{
    net::UnixListener,
    time::{sleep, timeout},
};
use tourbillon_axum::serve;
use tourbillon_hyper::{HttpConnector, HttpInfo, UnixConnector};

use crate::{
    Body, builder, client,
    common::{
        PATIENCE, alarm,
        net::{ANY_PORT, pattern},
        runtime,
        unix::Dir,
    },
    web::{
        SHORT, Site,
        frames::{SETTINGS, frame},
        hello,
    },
};

#[test]
fn a_later_request_uses_the_connection_again() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, hello());
    runtime.block_on(async {
        let client = client();
        let ask = async || {
            let uri = site.url("/").parse().unwrap();
            let response = timeout(PATIENCE, client.get(uri)).await.unwrap().unwrap();
            let info = response.extensions().get::<HttpInfo>().unwrap().clone();
            assert_eq!(info.remote_addr(), site.addr);
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), "hello");
            info.local_addr()
        };
        let asking = async {
            let mut last = ask().await;
            // A task brings the connection back, perhaps after the next request has begun.
            loop {
                let this = ask().await;
                if this == last {
                    break;
                }
                last = this;
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(PATIENCE, asking).await.unwrap();
    });
    // The client is dropped, and its connection with it, so the shutdown has nothing to wait for.
    let served = runtime.block_on(async { timeout(PATIENCE, site.stop()).await });
    served.unwrap().unwrap().unwrap();
}

/// Sends the body back.
fn echo() -> Router {
    let handler = |request: Request| async { Response::new(request.into_body()) };
    Router::new().route("/", any(handler))
}

#[test]
fn megabytes_pass_both_ways_by_either_version() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, echo());
    let body = Bytes::from(pattern(3_000_000, 5));
    for version in [Version::HTTP_11, Version::HTTP_2] {
        let mut builder = builder();
        builder.http2_only(version == Version::HTTP_2);
        let client = builder.build(HttpConnector::new());
        let requests = (0..8).map(|_| {
            let request = Outgoing::post(site.url("/"));
            let response = client.request(request.body(Body::new(body.clone())).unwrap());
            let body = body.clone();
            runtime.spawn(async move {
                let response = response.await.unwrap();
                assert_eq!(response.version(), version);
                let echoed = response.into_body().collect().await.unwrap();
                assert!(echoed.to_bytes() == body);
            })
        });
        for request in requests.collect::<Vec<_>>() {
            let done = runtime.block_on(async { timeout(PATIENCE, request).await });
            done.unwrap().unwrap();
        }
    }
}

#[test]
fn an_idle_connection_is_closed_by_our_timer() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            assert_eq!(stream.read(&mut byte).unwrap(), 1);
            request.extend(byte);
        }
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi")
            .unwrap();
        // The client keeps the connection for its next request, and closes it then.
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
    });
    let client = builder()
        .pool_idle_timeout(SHORT)
        .build::<_, Body>(HttpConnector::new());
    runtime.block_on(async {
        let uri = format!("http://{addr}/").parse().unwrap();
        let response = client.get(uri).await.unwrap();
        let body = response.into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hi");
    });
    // The client still exists.
    server.join().unwrap();
    drop(client);
}

#[test]
fn a_silent_http2_server_is_noticed_by_our_timer() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        // It answers neither the request nor a ping, and reads until the client gives up.
        let mut buf = [0; 4096];
        while stream.read(&mut buf).unwrap() > 0 {}
    });
    let client = builder()
        .http2_only(true)
        // Otherwise hyper may look for open requests before it has counted the first one. It would
        // then not ping until the next event, and a silent server causes none.
        .http2_keep_alive_while_idle(true)
        .http2_keep_alive_interval(SHORT)
        .http2_keep_alive_timeout(SHORT)
        .build::<_, Body>(HttpConnector::new());
    let error = runtime.block_on(async {
        let uri = format!("http://{addr}/").parse().unwrap();
        timeout(PATIENCE, client.get(uri)).await.unwrap()
    });
    let error = format!("{:?}", error.unwrap_err());
    assert!(error.contains("KeepAliveTimedOut"), "{error}");
    server.join().unwrap();
}

#[test]
fn a_unix_socket_is_a_server_like_any_other() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let dir = Dir::new();
    let path = dir.path("http");
    runtime.block_on(async {
        let client = builder().build::<_, Body>(UnixConnector::new(&path));
        let get = || client.get("http://localhost/".parse().unwrap());
        let error = get().await.unwrap_err();
        assert!(error.is_connect());
        let error = std::error::Error::source(&error).unwrap().to_string();
        assert!(
            error.contains("http\" was not reached: No such file"),
            "{error}"
        );

        let listener = UnixListener::bind(&path).unwrap();
        tourbillon::spawn(serve(listener, hello()).into_future());
        for _ in 0..2 {
            let response = timeout(PATIENCE, get()).await.unwrap().unwrap();
            let body = response.into_body().collect().await.unwrap();
            assert_eq!(body.to_bytes(), "hello");
        }
    });
}
