//! Unix stream sockets.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::net::SocketAddr,
    },
    path::Path,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};

use super::{
    super::{
        connection::{connection, took_all, write_gathered},
        readiness::{readiness, socket},
    },
    UCred,
    split::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf},
};
use crate::{
    engine::registration::Registration,
    io::{Interest, Ready},
    reactor::{Direction, Directions},
    sys::socket,
};

/// A connected Unix stream socket.
///
/// Dropping it closes both directions. A path that begins with a NUL byte is an abstract name.
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::UnixStream;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let (mut one, mut other) = UnixStream::pair()?;
/// one.write_all(b"ping").await?;
/// one.close().await?; // ends this direction
/// let mut request = String::new();
/// other.read_to_string(&mut request).await?;
/// assert_eq!(request, "ping");
/// assert_eq!(other.peer_cred()?.pid(), Some(std::process::id() as i32));
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UnixStream(Registration<std::os::unix::net::UnixStream>);

impl UnixStream {
    /// Registers an accepted connection. The first request has often come with it.
    pub(super) fn accepted(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Ok(Self(Registration::new(stream)?.assuming(Directions::BOTH)))
    }

    /// Connects to the listener at a path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error: `NotFound` if the path does not exist,
    /// `ConnectionRefused` if no socket listens there, `WouldBlock` if the listener's queue is
    /// full. (The system does not tell when there is room again: try again later.) Also fails if
    /// there is no runtime.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_addr(&socket::unix_addr(path.as_ref())?).await
    }

    /// Connects to the listener at an address, for example an abstract name.
    ///
    /// # Errors
    ///
    /// See [`connect`](UnixStream::connect).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        let stream = Self::new(socket::unix_connect(addr)?)?;
        Ok(Self(stream.0.assuming(Direction::Write)))
    }

    /// Creates two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        let writable = |end: Self| Self(end.0.assuming(Direction::Write));
        let (one, other) = (Self::from_std(one)?, Self::from_std(other)?);
        Ok((writable(one), writable(other)))
    }

    /// Returns the peer's address, which usually has no name.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the credentials of the process that connected or listened at the other end.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        socket::peer_cred(self).map(UCred::new)
    }
}

socket!(UnixStream, std::os::unix::net::UnixStream);
readiness!(
    UnixStream,
    poll_read_ready,
    poll_write_ready,
    try_read,
    try_write
);
// A partial read says nothing about what follows: it stops at a passed descriptor and wherever the
// sender changes.
connection!(UnixStream, std::os::unix::net::UnixStream, |_, _| false);
