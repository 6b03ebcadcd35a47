//! Unix datagram sockets.

use std::{
    io,
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::net::SocketAddr,
    },
    path::Path,
    task::{Context, Poll},
};

use super::super::{
    buf::PollBuf,
    datagram::datagrams,
    readiness::{readiness, socket},
};
use crate::{
    engine::registration::Registration,
    io::{Interest, Ready},
    reactor::Direction,
    sys::socket::unix_addr,
};

type Std = std::os::unix::net::UnixDatagram;

/// A Unix datagram socket. Datagrams arrive whole and in order.
///
/// A path that begins with a NUL byte is an abstract name. Dropping the socket does not remove the
/// file of a path: the program that bound it must remove it.
///
/// ```
/// use tourbillon::net::UnixDatagram;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let (one, other) = UnixDatagram::pair()?;
/// one.send(b"hello").await?;
/// let mut buf = [0; 100];
/// let n = other.recv(&mut buf).await?;
/// assert_eq!(&buf[..n], b"hello");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UnixDatagram(Registration<Std>);

impl UnixDatagram {
    /// Binds a socket to a path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error (`AddrInUse` if the file exists), or an error if the
    /// path is too long or there is no runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_addr(&unix_addr(path.as_ref())?)
    }

    /// Binds a socket to an address, for example an abstract name.
    ///
    /// # Errors
    ///
    /// See [`bind`](UnixDatagram::bind).
    ///
    /// ```
    /// use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
    /// use tourbillon::net::UnixDatagram;
    ///
    /// # tourbillon::Runtime::new()?.block_on(async {
    /// let name = format!("tourbillon-log-{}", std::process::id());
    /// let addr = SocketAddr::from_abstract_name(name)?;
    /// let log = UnixDatagram::bind_addr(&addr)?;
    /// UnixDatagram::unbound()?.send_to_addr(b"a line", &addr).await?;
    /// let (n, from) = log.recv_from(&mut [0; 1000]).await?;
    /// assert!(n == 6 && from.is_unnamed());
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::from_std(Std::bind_addr(addr)?)
    }

    /// Creates a socket without an address. Receivers cannot answer it.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(Std::unbound()?)
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Std::pair()?;
        let writable = |end: Self| Self(end.0.assuming(Direction::Write));
        let (one, other) = (Self::from_std(one)?, Self::from_std(other)?);
        Ok((writable(one), writable(other)))
    }

    /// Connects the socket to a path. [`send`](UnixDatagram::send) then sends there, and datagrams
    /// of other senders are refused.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_addr(&unix_addr(path.as_ref())?)
    }

    /// Connects the socket to an address, for example an abstract name. See
    /// [`connect`](UnixDatagram::connect).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.0.get().connect_addr(addr)
    }

    /// Sends a datagram to a path, and returns the number of bytes sent. Any number of tasks may
    /// wait.
    ///
    /// If the receiver's queue is full, the system wakes an unconnected sender only when the
    /// receiver takes a datagram of that sender. If several sockets send to one receiver, connect
    /// them and use [`send`](UnixDatagram::send), which is always woken.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error: `NotFound` if the path does not exist,
    /// `ConnectionRefused` if no socket is bound to it.
    pub async fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(buf, &unix_addr(path.as_ref())?).await
    }

    /// Sends a datagram to an address, for example an abstract name. See
    /// [`send_to`](UnixDatagram::send_to).
    ///
    /// # Errors
    ///
    /// See [`send_to`](UnixDatagram::send_to).
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.0
            .io(Direction::Write, |socket| socket.send_to_addr(buf, addr))
            .await
    }

    /// Attempts [`send_to`](UnixDatagram::send_to) once, without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, otherwise see [`send_to`](UnixDatagram::send_to).
    pub fn try_send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let addr = unix_addr(path.as_ref())?;
        self.0
            .try_once(Direction::Write, |socket| socket.send_to_addr(buf, &addr))
    }

    /// Attempts [`send_to`](UnixDatagram::send_to) from a `poll` function. Only the last task to
    /// poll is woken.
    ///
    /// # Errors
    ///
    /// See [`send_to`](UnixDatagram::send_to).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        path: impl AsRef<Path>,
    ) -> Poll<io::Result<usize>> {
        let addr = unix_addr(path.as_ref())?;
        let send = |socket: &Std| socket.send_to_addr(buf, &addr);
        self.0.poll_io(cx, Direction::Write, send, |_| false)
    }

    /// Shuts down one or both directions at once.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }
}

socket!(UnixDatagram, std::os::unix::net::UnixDatagram);
readiness!(
    UnixDatagram,
    poll_recv_ready,
    poll_send_ready,
    try_recv,
    try_send
);
datagrams!(
    UnixDatagram,
    Std,
    SocketAddr,
    crate::sys::socket::unix_addr_of
);
