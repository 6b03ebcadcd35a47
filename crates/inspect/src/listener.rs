//! Connections that record whether their clients read.

use std::{
    future::{Ready, ready},
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use axum::extract::connect_info::Connected;
use hyper::rt::{Read, ReadBufCursor, Write};
use tourbillon::net::{TcpListener, TcpSocket, TcpStream};
use tourbillon_axum::{AckCounter, IncomingStream, Listener};
use tourbillon_hyper::TourbillonIo;

/// The size of the system's send buffer for a client, in bytes (the system doubles it). By default
/// it could grow to megabytes per client.
const SEND_BUFFER: u32 = 64 * 1024;
/// The number of clients that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// The listener of the inspector's clients.
#[derive(Debug)]
pub(crate) struct Clients(TcpListener);

impl Clients {
    /// Listens at the first of the addresses that can be bound.
    pub(crate) fn bind(addrs: &[SocketAddr]) -> io::Result<Self> {
        let mut last = io::Error::new(io::ErrorKind::InvalidInput, "there is no address");
        for &addr in addrs {
            match listen(addr) {
                Ok(listener) => return Ok(Self(listener)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    }?;
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit this size.
    socket.set_send_buffer_size(SEND_BUFFER)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

impl Listener for Clients {
    type Io = Connection;
    type Addr = SocketAddr;
    type Handshake = Ready<io::Result<Connection>>;

    async fn accept(&mut self) -> io::Result<(Self::Handshake, SocketAddr)> {
        let (handshake, peer, _) = self.accept_watched().await?;
        Ok((handshake, peer))
    }

    async fn accept_watched(&mut self) -> io::Result<(Self::Handshake, SocketAddr, AckCounter)> {
        let (stream, peer) = self.0.accept().await?;
        let _ = stream.set_nodelay(true);
        let acks = AckCounter::of(&stream);
        let connection = Connection {
            stream: TourbillonIo::new(stream),
            flow: Flow::default(),
        };
        Ok((ready(Ok(connection)), peer, acks))
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

/// Tells whether a client reads what is written to it. Clones refer to one client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow(Arc<AtomicBool>);

impl Flow {
    /// Returns whether pending data waits for the client.
    pub(crate) fn is_stuck(&self) -> bool {
        self.0.load(Relaxed)
    }

    fn record(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        // A client that does not read fills the socket's buffer.
        self.set_stuck(written.is_pending());
        written
    }

    pub(crate) fn set_stuck(&self, is_stuck: bool) {
        self.0.store(is_stuck, Relaxed);
    }
}

impl Connected<IncomingStream<'_, Clients>> for Flow {
    fn connect_info(stream: IncomingStream<'_, Clients>) -> Self {
        stream.io().flow.clone()
    }
}

/// The connection of a client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TourbillonIo<TcpStream>,
    flow: Flow,
}

impl Read for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl Write for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Write::poll_write(Pin::new(&mut self.stream), cx, buf);
        self.flow.record(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.stream), cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Write::poll_write_vectored(Pin::new(&mut self.stream), cx, bufs);
        self.flow.record(written)
    }
}
