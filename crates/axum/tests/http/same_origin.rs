//! The layer that refuses requests of pages of other sites, over HTTP/1 and HTTP/2.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering::Relaxed},
};

use axum::{Router, routing::post};
use http_body_util::Empty;
use hyper::{
    Method, Request, StatusCode,
    body::Bytes,
    header::{HOST, ORIGIN},
};
use tourbillon_axum::SameOrigin;

use crate::{
    common::{alarm, runtime},
    web::{Site, http2},
};

/// Returns a router behind the layer, and the number of requests that have reached it.
fn guarded() -> (Router, Arc<AtomicU32>) {
    let reached = Arc::new(AtomicU32::new(0));
    let counted = reached.clone();
    let count = || async move {
        counted.fetch_add(1, Relaxed);
    };
    let router = Router::new()
        .route("/count", post(count))
        .layer(SameOrigin::new().allow_host("box.example").unwrap());
    (router, reached)
}

#[test]
fn http_1_answers_only_to_its_names_and_its_own_pages() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (router, reached) = guarded();
    let site = Site::start(&runtime, router);
    let own = site.addr;
    for (head, status) in [
        (format!("Host: {own}"), "200"),
        (format!("Host: {own}\r\nOrigin: http://{own}"), "200"),
        (
            "Host: box.example\r\nOrigin: https://box.example".into(),
            "200",
        ),
        (format!("Host: {own}\r\nSec-Fetch-Site: same-origin"), "200"),
        (
            "Host: evil.example\r\nOrigin: http://evil.example".into(),
            "421",
        ),
        ("X: no host".into(), "421"),
        (format!("Host: {own}\r\nHost: {own}"), "421"),
        (format!("Host: {own}\r\nOrigin: http://evil.example"), "403"),
        (
            format!("Host: {own}\r\nOrigin: http://{own}\r\nOrigin: http://{own}"),
            "403",
        ),
        (format!("Host: {own}\r\nSec-Fetch-Site: cross-site"), "403"),
    ] {
        let mut client = site.connect();
        // The body of a refused request is not read, and the connection ends.
        let length = if status == "200" { 0 } else { 1_000_000 };
        let close = if status == "200" {
            "Connection: close\r\n"
        } else {
            ""
        };
        client.send(&format!(
            "POST /count HTTP/1.1\r\n{head}\r\n{close}Content-Length: {length}\r\n\r\n"
        ));
        let reply = client.end();
        let start = format!("HTTP/1.1 {status} ");
        assert!(reply.starts_with(&start), "{head}: {reply}");
    }
    assert_eq!(reached.load(Relaxed), 4);
}

#[test]
fn http_2_has_the_host_in_the_target() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (router, reached) = guarded();
    let site = Site::start(&runtime, router);
    let own = site.addr.to_string();
    runtime.block_on(async {
        let mut sender = http2::<Empty<Bytes>>(site.addr).await;
        for (authority, headers, status) in [
            (&*own, vec![], StatusCode::OK),
            (
                "box.example",
                vec![(ORIGIN, "https://box.example")],
                StatusCode::OK,
            ),
            (&*own, vec![(HOST, &*own)], StatusCode::OK),
            ("evil.example", vec![], StatusCode::MISDIRECTED_REQUEST),
            (
                "evil.example",
                vec![(HOST, &*own)],
                StatusCode::MISDIRECTED_REQUEST,
            ),
            (
                &*own,
                vec![(ORIGIN, "http://evil.example")],
                StatusCode::FORBIDDEN,
            ),
        ] {
            let mut request = Request::builder()
                .method(Method::POST)
                .uri(format!("http://{authority}/count"));
            for (name, value) in &headers {
                request = request.header(name, *value);
            }
            // The connection goes on after a refusal.
            let request = request.body(Empty::new()).unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), status, "{authority} {headers:?}");
        }
    });
    assert_eq!(reached.load(Relaxed), 3);
}
