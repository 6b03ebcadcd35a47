//! Servers beside clients that do not read their responses, on a paused clock.

use std::{convert::Infallible, time::Duration};

use axum::{Router, body::Body, routing::get};
use futures::stream;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use hyper::body::Bytes;
use tourbillon::{net::UnixStream, time::sleep};
use tourbillon_axum::serve;

use crate::{
    common::{HOUR, alarm, paused::paused, unix::listen},
    web::without_tokio,
};

/// The number of pieces of a response that is too large for any socket's buffers.
const PIECES: usize = 64;
const PIECE: usize = 64 << 10;
/// A short limit, for tests that wait until it is over.
const SHORT: Duration = Duration::from_secs(1);

async fn long() -> Body {
    let piece = Bytes::from(vec![7; PIECE]);
    let pieces = std::iter::repeat_n(Ok::<_, Infallible>(piece), PIECES);
    Body::from_stream(stream::iter(pieces))
}

/// The behaviour of a server with given limits for idle connections and unread responses.
struct Outcome {
    /// Whether a client got all of a response after it had read nothing for half an hour.
    has_all: bool,
    /// Whether a connection still gave an answer after half an hour without a request.
    is_kept: bool,
}

fn outcome(kept: Duration, stuck: Option<Duration>) -> Outcome {
    paused(2).block_on(async {
        let (listener, addr) = listen();
        let router = Router::new()
            .route("/", get(long))
            .route("/hello", get(|| async { "hello" }));
        let mut server = serve(listener, without_tokio(router))
            .header_read_timeout(None)
            .keep_alive_timeout(kept);
        if let Some(stuck) = stuck {
            server = server.write_timeout(stuck);
        }
        let server = tourbillon::spawn(server.into_future());

        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let last = b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
        client.write_all(last).await.unwrap();
        sleep(HOUR / 2).await;
        let mut taken = Vec::new();
        let _ = client.read_to_end(&mut taken).await;
        let has_all = taken.len() > PIECES * PIECE;

        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let request = b"GET /hello HTTP/1.1\r\nHost: test\r\n\r\n";
        let mut is_kept = true;
        for _ in 0..2 {
            let mut reply = [0; 1024];
            is_kept = client.write_all(request).await.is_ok();
            is_kept &= matches!(client.read(&mut reply).await, Ok(1..));
            sleep(HOUR / 2).await;
        }
        server.abort();
        Outcome { has_all, is_kept }
    })
}

#[test]
fn by_default_a_client_that_reads_nothing_is_closed_before_idle_ones() {
    let _alarm = alarm();
    let short = outcome(SHORT, None);
    assert!(!short.has_all && !short.is_kept);
    let long = outcome(HOUR, None);
    assert!(!long.has_all && long.is_kept);
    let long = outcome(HOUR, Some(HOUR));
    assert!(long.has_all && long.is_kept);
}

#[test]
fn unread_responses_may_have_their_own_limit() {
    let _alarm = alarm();
    let patient = outcome(SHORT, Some(HOUR));
    assert!(patient.has_all && !patient.is_kept);
    let strict = outcome(HOUR, Some(SHORT));
    assert!(!strict.has_all && strict.is_kept);
}
