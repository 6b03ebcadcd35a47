use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async, connect_async, tungstenite::Message,
};
use tourbillon::net::TcpStream;
use tourbillon_matrix::Case;

use crate::{NO_REACTOR, common::listen};

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-tungstenite", "`connect_async`: an echo", |_| async {
            connect(echo().await).await;
        })
        .panics(NO_REACTOR)
        .because("it connects by tokio"),
        Case::new(
            "tokio-tungstenite",
            "`accept_async` and `client_async` on our `TcpStream`: an echo",
            |_| on_our_sockets(),
        )
        .because("with the feature `tokio-io`"),
    ]
}

/// Serves one connection on a Tourbillon socket.
async fn echo() -> SocketAddr {
    let (listener, addr) = listen().await;
    tourbillon::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    addr
}

/// Connects by tokio, and sends a message.
async fn connect(addr: SocketAddr) {
    let (socket, _) = connect_async(format!("ws://{addr}/")).await.unwrap();
    exchange(socket).await;
}

async fn on_our_sockets() {
    let addr = echo().await;
    let stream = TcpStream::connect(addr).await.unwrap();
    let (socket, _) = client_async(format!("ws://{addr}/"), stream).await.unwrap();
    exchange(socket).await;
}

async fn exchange(mut socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) {
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("hello")
    );
    socket.close(None).await.unwrap();
}
