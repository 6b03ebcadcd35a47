//! Datagrams through Unix sockets.

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
    datagram::datagrams,
    readiness::{readiness, socket},
};
use crate::{
    io::{Interest, Ready},
    reactor::{Direction, Registration},
    sys::socket::unix_addr,
};

type Std = std::os::unix::net::UnixDatagram;

/// A Unix socket for datagrams, which arrive whole and in order.
///
/// A path that begins with a NUL byte is an abstract name. The file of a path stays when the socket is
/// dropped: who bound it removes it.
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
    /// What the system says (`AddrInUse`, if the file is there already), if the path is too long, and
    /// if there is no runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_addr(&unix_addr(path.as_ref())?)
    }

    /// Binds a socket to an address, such as an abstract name.
    ///
    /// # Errors
    ///
    /// As for [`bind`](UnixDatagram::bind).
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

    /// A socket that has no address, which nobody can answer.
    ///
    /// # Errors
    ///
    /// What the system says, and if there is no runtime.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(Std::unbound()?)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// What the system says, and if there is no runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Std::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// Connects the socket to a path: [`send`](UnixDatagram::send) goes there, and datagrams of others
    /// are not received any more.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.connect_addr(&unix_addr(path.as_ref())?)
    }

    /// As [`connect`](UnixDatagram::connect), to an address such as an abstract name.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.0.get().connect_addr(addr)
    }

    /// Sends a datagram to a path, and answers how long it was. Any number of tasks may wait.
    ///
    /// When the receiver's queue is full, the system tells a sender that is not connected only of
    /// datagrams of its own that were taken from it. Where several send to one, connect them and
    /// [`send`](UnixDatagram::send): those are told of room in any case.
    ///
    /// # Errors
    ///
    /// What the system says: `NotFound`, or `ConnectionRefused` if nobody is bound to the path any
    /// more.
    pub async fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(buf, &unix_addr(path.as_ref())?).await
    }

    /// As [`send_to`](UnixDatagram::send_to), to an address such as an abstract name.
    ///
    /// # Errors
    ///
    /// As for [`send_to`](UnixDatagram::send_to).
    pub async fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.0
            .io(Direction::Write, |socket| socket.send_to_addr(buf, addr))
            .await
    }

    /// As [`send_to`](UnixDatagram::send_to), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, and else as for [`send_to`](UnixDatagram::send_to).
    pub fn try_send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let addr = unix_addr(path.as_ref())?;
        self.0
            .try_once(Direction::Write, |socket| socket.send_to_addr(buf, &addr))
    }

    /// As [`send_to`](UnixDatagram::send_to), for those who write futures by hand. One task at a time.
    ///
    /// # Errors
    ///
    /// As for [`send_to`](UnixDatagram::send_to).
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

    /// Ends one direction, or both, at once.
    ///
    /// # Errors
    ///
    /// What the system says.
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
datagrams!(UnixDatagram, Std, SocketAddr);
