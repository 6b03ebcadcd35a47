//! WebSockets over HTTP/1 and HTTP/2, with and without TLS, by hand: axum's extractor needs tokio.

use std::{
    error::Error,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Message, protocol::Role},
};
use axum::{
    Router,
    extract::Request,
    handler::HandlerWithoutStateExt,
    http::{Method, StatusCode, header},
    response::{IntoResponse, Response},
    routing::{any, get},
};
use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, StreamExt};
use http_body_util::Empty;
use hyper::{
    body::Bytes,
    ext::Protocol,
    rt::{Read, Write},
    upgrade::{OnUpgrade, on},
};
use tourbillon::{
    Runtime,
    net::{TcpStream, UnixStream},
    time::{Instant, timeout},
};
use tourbillon_axum::serve;
use tourbillon_hyper::{FuturesIo, TourbillonExecutor, TourbillonIo};

use crate::{
    common::{HOUR, PATIENCE, alarm, net::pattern, paused::paused, runtime, unix::listen},
    tls,
    web::{
        Site,
        frames::{INITIAL_WINDOW_SIZE, WINDOW_UPDATE, beginning, frame, http2_connect},
        handshake::accept,
        without_tokio,
    },
};

/// A length that is more than a window and a frame of HTTP/2.
const LONG: usize = 200_000;
/// A window of HTTP/2 that is larger than a socket's buffers.
const WINDOW: u32 = 1 << 30;
/// A limit for tests that wait until it is over, on a paused clock.
const LIMIT: Duration = Duration::from_secs(60);

/// The key of RFC 6455, section 1.3, and the answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

// Below, `echo` and `handler` are those of `crates/axum/GUIDE.md`.

/// Sends each message back.
async fn echo(upgrade: OnUpgrade) -> Result<(), Box<dyn Error + Send + Sync>> {
    let stream = FuturesIo::new(upgrade.await?);
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    while let Some(message) = socket.try_next().await? {
        if message.is_text() || message.is_binary() {
            socket.send(message).await?;
        }
    }
    Ok(())
}

async fn handler(mut request: Request) -> Response {
    let Some(response) = accept(&request) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    // The stream exists only after the answer, so a task of its own waits for it.
    tourbillon::spawn(echo(on(&mut request)));
    response
}

fn by_hand() -> Router {
    let router = Router::new()
        .route("/", get(|| async {}))
        .route("/ws", any(handler));
    without_tokio(router)
}

/// Sends messages of both kinds, gets the same back, and closes.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(mut socket: WebSocketStream<S>) {
    let long = Bytes::from(pattern(LONG, 7));
    for message in [Message::text("hello"), Message::binary(long)] {
        socket.send(message.clone()).await.unwrap();
        assert!(socket.next().await.unwrap().unwrap() == message);
    }
    // The server ends the stream once it has the close frame. With HTTP/2 it resets the stream's
    // other direction, so that the client's next flush may fail.
    let _ = socket.close(None).await;
    while let Some(Ok(message)) = socket.next().await {
        assert!(message.is_close(), "{message:?}");
    }
}

/// Exchanges messages over HTTP/1.
async fn over_http1<S: AsyncRead + AsyncWrite + Unpin>(stream: S) {
    let (socket, response) = client_async("ws://localhost/ws", stream).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    exchange(socket).await;
}

/// Exchanges messages over a stream of HTTP/2.
async fn over_http2<S: Read + Write + Unpin + Send + 'static>(stream: S) {
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TourbillonExecutor::new(), stream)
            .await
            .unwrap();
    tourbillon::spawn(connection);
    let request = |method, path| {
        Request::builder()
            .method(method)
            .uri(format!("https://localhost{path}"))
            .body(Empty::<Bytes>::new())
            .unwrap()
    };
    // The server's settings, which allow the extension, come before its first answer.
    let response = sender.send_request(request(Method::GET, "/")).await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    for _ in 0..2 {
        let mut request = request(Method::CONNECT, "/ws");
        request
            .extensions_mut()
            .insert(Protocol::from_static("websocket"));
        request
            .headers_mut()
            .insert(header::SEC_WEBSOCKET_VERSION, "13".parse().unwrap());
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let stream = FuturesIo::new(on(response).await.unwrap());
        exchange(WebSocketStream::from_raw_socket(stream, Role::Client, None).await).await;
    }
}

/// Opens WebSockets over each version, with TLS and without.
fn all_ways(runtime: &Runtime, router: &Router) {
    let plain = Site::with(runtime, |listener, stop| {
        serve(listener, router.clone()).with_graceful_shutdown(stop)
    });
    let (secure, _, cert) = tls::site(runtime, router.clone(), false);
    let exchanges = async {
        over_http1(TcpStream::connect(plain.addr).await.unwrap()).await;
        over_http2(TourbillonIo::new(
            TcpStream::connect(plain.addr).await.unwrap(),
        ))
        .await;
        let secured = |protocol| tls::connect(secure.addr, Some(cert.clone()), protocol);
        over_http1(secured(&[b"http/1.1"]).await.unwrap()).await;
        over_http2(FuturesIo::new(secured(&[b"h2"]).await.unwrap())).await;
    };
    runtime.block_on(async { timeout(PATIENCE, exchanges).await.unwrap() });
    for site in [plain, secure] {
        runtime.block_on(site.stop()).unwrap().unwrap();
    }
}

#[test]
fn by_hand_a_websocket_needs_no_tokio() {
    let _alarm = alarm();
    all_ways(&runtime(2), &by_hand());
}

#[test]
fn the_accept_key_is_that_of_the_standard() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let site = Site::start(&runtime, by_hand());
    let ask = |headers: &str| {
        let mut client = site.connect();
        client.send(&format!("GET /ws HTTP/1.1\r\nHost: test\r\n{headers}\r\n"));
        client.reply()
    };
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    let complete = format!("{upgrade}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n");
    let reply = ask(&complete);
    assert_eq!(reply.status, 101);
    assert_eq!(reply.header("sec-websocket-accept"), Some(ACCEPT));
    // Each of these lacks something.
    assert_eq!(ask("").status, 400);
    assert_eq!(ask(upgrade).status, 400);
    let old = complete.replace("Version: 13", "Version: 8");
    assert_eq!(ask(&old).status, 400);
}

/// Returns how long a handler can write on an upgraded stream to a client that reads nothing, on
/// a paused clock. Returns `None` if it can write for an hour.
fn time_unread(over_http2: bool) -> Option<Duration> {
    paused(2).block_on(async {
        let (listener, addr) = listen();
        let (ended, end) = futures::channel::oneshot::channel::<()>();
        let ended = Arc::new(Mutex::new(Some(ended)));
        let handler = move |mut request: Request| {
            let ended = ended.lock().unwrap().take();
            let upgrade = on(&mut request);
            tourbillon::spawn(async move {
                let mut stream = FuturesIo::new(upgrade.await.unwrap());
                while stream.write_all(&[7; 1 << 16]).await.is_ok() {}
                drop(ended);
            });
            let response = match over_http2 {
                true => StatusCode::OK.into_response(),
                false => {
                    let headers = [(header::CONNECTION, "upgrade"), (header::UPGRADE, "test")];
                    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
                }
            };
            std::future::ready(response)
        };
        let server = serve(listener, handler.into_make_service()).write_timeout(LIMIT);
        let server = tourbillon::spawn(server.into_future());

        let mut client = UnixStream::connect_addr(&addr).await.unwrap();
        let start = Instant::now();
        // Only a client that opens its windows lets the server fill the socket.
        let hello = match over_http2 {
            true => {
                let mut hello = beginning(&[(INITIAL_WINDOW_SIZE, WINDOW)]);
                hello.extend(frame(WINDOW_UPDATE, 0, 0, &(WINDOW / 2).to_be_bytes()));
                hello.extend(http2_connect(1));
                hello
            }
            false => {
                let head = "GET / HTTP/1.1\r\nHost: test\r\nConnection: upgrade\r\nUpgrade: test";
                format!("{head}\r\n\r\n").into_bytes()
            }
        };
        client.write_all(&hello).await.unwrap();
        let time = match timeout(HOUR, end).await {
            Ok(_) => Some(start.elapsed()),
            Err(_) => {
                // The handler still writes, and more than the socket held comes.
                client.read_exact(&mut vec![0; 16 << 20]).await.unwrap();
                None
            }
        };
        server.abort();
        drop(client);
        time
    })
}

#[test]
fn a_full_socket_ends_upgraded_streams_of_http2_alone() {
    let _alarm = alarm();
    let time = time_unread(true).unwrap();
    // Up to two periods, and a second for the goodbye.
    assert!(time >= LIMIT && time <= 3 * LIMIT, "{time:?}");
    assert_eq!(time_unread(false), None);
}
