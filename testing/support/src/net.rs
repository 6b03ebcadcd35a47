//! Shared set-up of the tests of sockets.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use futures_lite::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, future::zip};
use tourbillon::{
    Runtime,
    net::{TcpListener, TcpStream},
};

use super::PATIENCE;

pub const ANY_PORT: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

pub async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(ANY_PORT).await.unwrap();
    let addr = listener.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    (listener, addr)
}

/// Returns the two ends of a connection.
pub async fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen().await;
    let (client, server) = zip(TcpStream::connect(addr), listener.accept()).await;
    let (client, (server, peer)) = (client.unwrap(), server.unwrap());
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(server.peer_addr().unwrap(), peer);
    assert_eq!(client.peer_addr().unwrap(), addr);
    (client, server)
}

/// Returns a connection between a socket of ours and a blocking one of the standard library.
pub async fn pair_with_std() -> (TcpStream, std::net::TcpStream) {
    let (listener, addr) = listen().await;
    let client = std::net::TcpStream::connect(addr).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.set_write_timeout(Some(PATIENCE)).unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Returns connections between blocking sockets of the standard library.
pub fn connections(count: usize) -> (Vec<std::net::TcpStream>, Vec<std::net::TcpStream>) {
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let addr = listener.local_addr().unwrap();
    let connect = |_| {
        let theirs = std::net::TcpStream::connect(addr).unwrap();
        theirs.set_nodelay(true).unwrap();
        (listener.accept().unwrap().0, theirs)
    };
    (0..count).map(connect).unzip()
}

/// Echoes all data until the end.
pub async fn echo(stream: TcpStream) -> io::Result<u64> {
    // Otherwise, replies in parts wait for the peer's delayed acknowledgement, 40 ms each time.
    stream.set_nodelay(true)?;
    echo_all(stream).await
}

/// Echoes all data until the end, and returns the number of bytes.
pub async fn echo_all(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<u64> {
    let mut buffer = [0; 1024];
    let mut count = 0;
    loop {
        let n = stream.read(&mut buffer).await?;
        if n == 0 {
            return Ok(count);
        }
        stream.write_all(&buffer[..n]).await?;
        count += n as u64;
    }
}

/// Starts an echo server that runs as long as its runtime.
pub fn serve_echo(runtime: &Runtime) -> SocketAddr {
    let (listener, addr) = runtime.block_on(listen());
    runtime.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tourbillon::spawn(echo(stream));
        }
    });
    addr
}

/// Returns bytes that differ by position and by seed.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed)
        .collect()
}

/// Sends a request from the client, whose direction `end` then closes. The server reads all of it.
pub async fn half_close<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut S,
    server: &mut S,
    end: impl AsyncFnOnce(&mut S) -> io::Result<()>,
) {
    client.write_all(b"request").await.unwrap();
    end(client).await.unwrap();
    let mut request = String::new();
    server.read_to_string(&mut request).await.unwrap();
    assert_eq!(request, "request");
    let read = server.read(&mut [0]).await.unwrap();
    assert_eq!(read, 0, "the end stays the end");
}

/// Sends a reply from the server after a [half close](half_close). The client reads it, and cannot
/// write any more.
pub async fn reply_after_half_close<S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut S,
    mut server: S,
) {
    server.write_all(b"reply").await.unwrap();
    drop(server);
    let mut reply = String::new();
    client.read_to_string(&mut reply).await.unwrap();
    assert_eq!(reply, "reply");
    let error = client.write(b"more").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
}
