//! A TCP connection.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        addr::try_each,
        connection::{connection, took_all},
        readiness::{readiness, socket},
    },
    split::{OwnedReadHalf, OwnedWriteHalf},
};
use crate::{
    io::{Interest, Ready},
    reactor::{Direction, Registration},
    sys::socket,
    time::timeout,
};

/// A TCP connection.
///
/// Dropping it closes it, both ways. It is read and written through futures-io's traits, or by hand with
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
/// client.close().await?; // the end of this direction
///
/// let mut first = [0];
/// assert_eq!(server.peek(&mut first).await?, 1); // it stays there
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
    /// Waits until a connection that is on its way is there, or refused.
    pub(super) async fn connecting(stream: std::net::TcpStream) -> io::Result<Self> {
        let stream = Self::new(stream)?;
        stream.0.ready(Direction::Write).await?;
        match stream.take_error()? {
            Some(error) => Err(error),
            None => Ok(stream),
        }
    }

    /// Connects to an address.
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not. To wait
    /// no longer than you like, see [`connect_timeout`](TcpStream::connect_timeout).
    ///
    /// # Errors
    ///
    /// What the system says, the last if there were several addresses.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, async |addr| {
            Self::connecting(socket::connect(addr)?).await
        })
        .await
    }

    /// As [`connect`](TcpStream::connect), for so long at most, for all addresses together.
    ///
    /// # Errors
    ///
    /// `TimedOut` after so long, and what `connect` answers before.
    ///
    /// ```
    /// use std::{io::ErrorKind, time::Duration};
    /// use tourbillon::net::TcpStream;
    ///
    /// # async fn example() {
    /// // An address of a network that is not there: packets to it get no answer.
    /// let connecting = TcpStream::connect_timeout("192.0.2.1:80", Duration::from_secs(1));
    /// assert_eq!(connecting.await.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # }
    /// ```
    pub async fn connect_timeout(addr: impl ToSocketAddrs, duration: Duration) -> io::Result<Self> {
        match timeout(duration, Self::connect(addr)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("not connected within {duration:?}"),
            )),
        }
    }

    /// Receives what is there, and leaves it there for the next read. Waits if there is nothing; no
    /// bytes are the end. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, |stream| stream.peek(buf)).await
    }

    /// As [`peek`](TcpStream::peek), for those who write futures by hand. One task at a time, with
    /// those that read.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn poll_peek(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        let peek = |stream: &std::net::TcpStream| stream.peek(buf);
        self.0.poll_io(cx, Direction::Read, peek, |_| false)
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Sends small writes at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// How long dropping the connection waits for what was not sent yet (`SO_LINGER`): `None`, which is
    /// the default, leaves that to the system.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        socket::linger(self)
    }

    /// Sets [`linger`](TcpStream::linger), to whole seconds. Zero makes a close a reset, which throws
    /// away what was not sent. Anything longer blocks the worker that drops the connection for so long:
    /// what tokio deprecates it for.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        socket::set_linger(self, linger)
    }

    /// Makes a close a reset, which throws away what was not sent.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }

    /// How many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets [`ttl`](TcpStream::ttl).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }
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
