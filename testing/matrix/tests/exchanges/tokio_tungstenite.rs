use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    WebSocketStream, accept_async, client_async, connect_async, tungstenite::Message,
};
use tourbillon_matrix::Case;

use crate::common::listen;

pub fn cases() -> Vec<Case> {
    vec![
        Case::new("tokio-tungstenite", "`connect_async`: an echo", |_| async {
            let (socket, _) = connect_async(format!("ws://{}/", echo().await))
                .await
                .unwrap();
            exchange(socket).await;
        }),
        Case::new(
            "tokio-tungstenite",
            "`accept_async` and `client_async` on a `TcpStream`: an echo",
            |_| async {
                let addr = echo().await;
                let stream = TcpStream::connect(addr).await.unwrap();
                let client = client_async(format!("ws://{addr}/"), stream);
                exchange(client.await.unwrap().0).await;
            },
        ),
    ]
}

/// Serves one connection.
async fn echo() -> SocketAddr {
    let (listener, addr) = listen().await;
    tokio::spawn(async move {
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

/// Sends a message, and receives it.
async fn exchange(mut socket: WebSocketStream<impl AsyncRead + AsyncWrite + Unpin>) {
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("hello")
    );
    socket.close(None).await.unwrap();
}
