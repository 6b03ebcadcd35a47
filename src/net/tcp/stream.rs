//! TCP connections.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};
use socket2::SockRef;

use super::{
    super::{
        addr::{ToSocketAddrs, try_each},
        buf::PollBuf,
        connection::{connection, took_all, write_gathered},
        options::options,
        readiness::{readiness, socket},
    },
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf},
};
use crate::{
    engine::registration::Registration,
    io::{Interest, Ready},
    reactor::{Direction, Directions},
    sys::socket,
    time::timeout,
};

/// A TCP connection.
///
/// Dropping it closes both directions. Read and write it through the traits of futures-io, or with
/// [`readable`](TcpStream::readable) and [`try_read`](TcpStream::try_read).
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::{TcpListener, TcpStream};
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let mut client = TcpStream::connect(listener.local_addr()?).await?;
/// let (mut server, _) = listener.accept().await?;
/// client.set_nodelay(true)?;
/// client.write_all(b"ping").await?;
/// client.close().await?; // ends this direction
///
/// let mut first = [0];
/// assert_eq!(server.peek(&mut first).await?, 1); // the byte stays in the queue
/// let mut request = String::new();
/// server.read_to_string(&mut request).await?;
/// assert_eq!(request, "ping");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct TcpStream(Registration<std::net::TcpStream>);

impl TcpStream {
    /// Registers an accepted connection. The first request has often come with it.
    pub(super) fn accepted(stream: std::net::TcpStream) -> io::Result<Self> {
        Ok(Self(Registration::new(stream)?.assuming(Directions::BOTH)))
    }

    /// Waits until a connect in progress succeeds or fails.
    pub(super) async fn connecting(stream: std::net::TcpStream) -> io::Result<Self> {
        // The socket becomes writable when the connect ends, whatever its result.
        let stream = Self::new(stream)?;
        stream.0.ready(Direction::Write).await?;
        // `SO_ERROR` has the result.
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// Connects to an address.
    ///
    /// A host name is resolved as by [`lookup_host`](crate::net::lookup_host). To limit the wait,
    /// use [`connect_timeout`](TcpStream::connect_timeout).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. If every address fails, this is the last error.
    pub async fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        try_each(addr, |addr| async move {
            Self::connecting(socket::connect(addr)?).await
        })
        .await
    }

    /// Connects to an address within `duration`, which covers the lookup and all addresses. See
    /// [`connect`](TcpStream::connect).
    ///
    /// # Errors
    ///
    /// Returns `TimedOut` after `duration`, or an earlier error of `connect`.
    ///
    /// ```
    /// use std::{io::ErrorKind, time::Duration};
    /// use tourbillon::net::TcpStream;
    ///
    /// # async fn example() {
    /// // This network does not exist, so nothing answers the packets.
    /// let connecting = TcpStream::connect_timeout("192.0.2.1:80", Duration::from_secs(1));
    /// assert_eq!(connecting.await.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # }
    /// ```
    pub async fn connect_timeout(addr: impl ToSocketAddrs, duration: Duration) -> io::Result<Self> {
        match timeout(duration, Self::connect(addr)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("the connection was not established within {duration:?}"),
            )),
        }
    }

    /// Reads data without removing it from the queue, and waits if there is none. Returns 0 at the
    /// end of the stream. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, |stream| stream.peek(buf)).await
    }

    /// Attempts [`peek`](TcpStream::peek) from a `poll` function. Only the last task to poll or to
    /// read is woken. For any kind of buffer, this returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_peek<B: PollBuf + ?Sized>(
        &self,
        cx: &mut Context<'_>,
        buf: &mut B,
    ) -> Poll<io::Result<usize>> {
        let peek = |stream: &std::net::TcpStream| {
            let n = stream.peek(buf.room())?;
            buf.filled(n);
            Ok(n)
        };
        self.0.poll_io(cx, Direction::Read, peek, |_| false)
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Turns a close into a reset, which discards unsent data.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }
}

options! {
    TcpStream, |it|

    /// Returns whether small writes are sent at once (`TCP_NODELAY`).
    nodelay() = it.0.get().nodelay();
    set_nodelay(nodelay: bool) = it.0.get().set_nodelay(nodelay);

    /// Returns whether received data is acknowledged at once (`TCP_QUICKACK`). The system may reset
    /// this after later operations on the socket.
    quickack() = SockRef::from(it).tcp_quickack();
    set_quickack(quickack: bool) = SockRef::from(it).set_tcp_quickack(quickack);

    /// Returns how long closing the connection waits for unsent data (`SO_LINGER`), in whole
    /// seconds. `None`, the default, leaves this to the system.
    linger() = socket::linger(it);
    /// The time is rounded down. Zero, and so any time of less than a second, turns a close into a
    /// reset, which discards unsent data.
    ///
    /// A longer time blocks the worker that drops the connection for up to that time. tokio
    /// deprecates this option for that reason.
    set_linger(linger: Option<Duration>) = socket::set_linger(it, linger);

    /// Returns the number of routers a packet may pass (`IP_TTL`).
    ttl() = it.0.get().ttl();
    set_ttl(ttl: u32) = it.0.get().set_ttl(ttl);
}

socket!(TcpStream, std::net::TcpStream);
readiness!(
    TcpStream,
    poll_read_ready,
    poll_write_ready,
    try_read,
    try_write
);
connection!(TcpStream, std::net::TcpStream, took_all);
