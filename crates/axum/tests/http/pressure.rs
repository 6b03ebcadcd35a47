//! Idle connections of a server that has too much to do, on a paused clock.

use axum::{Router, routing::get};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use tourbillon::{net::UnixStream, time::sleep};
use tourbillon_axum::serve;

use crate::{
    common::{HOUR, alarm, paused::paused, unix::listen},
    web::without_tokio,
};

/// Returns whether a connection still gives an answer half an hour after its last request, on a
/// server with a limit of one hour.
fn is_kept(pressure: f64) -> bool {
    paused(2).block_on(async {
        let (listener, addr) = listen();
        let router = Router::new().route("/", get(|| async { "hello" }));
        let server = serve(listener, without_tokio(router))
            .header_read_timeout(None)
            .keep_alive_timeout(HOUR)
            .write_timeout(None)
            .pressure(move || pressure);
        let server = tourbillon::spawn(server.into_future());

        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let mut is_answered = true;
        for _ in 0..2 {
            let mut reply = [0; 1024];
            let request = b"GET / HTTP/1.1\r\nHost: test\r\n\r\n";
            is_answered = client.write_all(request).await.is_ok();
            is_answered &= matches!(client.read(&mut reply).await, Ok(1..));
            sleep(HOUR / 2).await;
        }
        server.abort();
        is_answered
    })
}

#[test]
fn idle_connections_are_closed_earlier_while_requests_are_refused() {
    let _alarm = alarm();
    assert!(is_kept(0.0));
    assert!(is_kept(0.2));
    assert!(!is_kept(0.8));
    assert!(!is_kept(1.0));
    // What is no part of one is no pressure.
    assert!(is_kept(f64::NAN));
    assert!(is_kept(-1.0));
}
