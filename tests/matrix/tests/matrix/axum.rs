use std::net::SocketAddr;

use axum::{
    Router,
    extract::ws::{Message, WebSocketUpgrade},
    routing::{any, get},
};
use futures::{SinkExt, StreamExt};
use http_body_util::BodyExt;
use hyper::client::conn::http1;
use tokio_tungstenite::{client_async, tungstenite};
use tourbillon::{net::TcpStream, time::sleep};
use tourbillon_matrix::Case;

use crate::{NO_REACTOR, common};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("axum", "`axum::serve`: HTTP/1.1 and a WebSocket", |_| {
            own_server()
        })
        .panics(NO_REACTOR)
        .because("use `tourbillon::axum::serve`"),
        Case::new("axum", "`tourbillon::axum::serve`: HTTP/1.1", |_| async {
            ask(common::serve(router()).await).await;
        }),
        Case::new(
            "axum",
            "`tourbillon::axum::serve`: a WebSocket by `WebSocketUpgrade`",
            |_| async { echo(common::serve(router()).await).await },
        )
        .panics(NO_REACTOR)
        .because("`on_upgrade` calls `tokio::spawn`"),
    ]
}

/// Answers GET after a sleep, and echoes on WebSockets.
fn router() -> Router {
    let hello = || async {
        // On a thread of the companion, this needs the context of Tourbillon.
        sleep(common::BRIEF).await;
        "hello"
    };
    let upgrade = |upgrade: WebSocketUpgrade| async {
        upgrade.on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if matches!(message, Message::Close(_)) || socket.send(message).await.is_err() {
                    break;
                }
            }
        })
    };
    Router::new()
        .route("/", get(hello))
        .route("/ws", any(upgrade))
}

async fn own_server() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tourbillon::spawn(axum::serve(listener, router()).into_future());
    ask(addr).await;
    echo(addr).await;
}

/// Sends a request from a Tourbillon socket.
async fn ask(addr: SocketAddr) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut sender, connection) = http1::handshake(stream).await.unwrap();
    tourbillon::spawn(connection);
    let request = hyper::Request::get("/").header("host", "localhost");
    let request = request.body(String::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "hello");
}

/// Sends a message from a Tourbillon socket.
async fn echo(addr: SocketAddr) {
    let stream = TcpStream::connect(addr).await.unwrap();
    let (mut socket, _) = client_async(format!("ws://{addr}/ws"), stream)
        .await
        .unwrap();
    let text = tungstenite::Message::text("hello");
    socket.send(text.clone()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), text);
    socket.close(None).await.unwrap();
}
