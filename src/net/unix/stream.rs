//! A connection through a Unix socket.

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
        connection::{connection, took_all},
        readiness::{readiness, socket},
    },
    UCred,
    split::{OwnedReadHalf, OwnedWriteHalf},
};
use crate::{
    io::{Interest, Ready},
    reactor::{Direction, Registration},
    sys::socket,
};

/// A connection through a Unix socket.
///
/// Dropping it closes it, both ways. A path that begins with a NUL byte is an abstract name.
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::UnixStream;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let (mut one, mut other) = UnixStream::pair()?;
/// one.write_all(b"ping").await?;
/// one.close().await?; // the end of this direction
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
    /// Connects to who listens at a path.
    ///
    /// # Errors
    ///
    /// What the system says: `NotFound`, `ConnectionRefused` if nobody listens there any more, and
    /// `WouldBlock` if the listener has no room for one more that waits to be accepted. (The system
    /// does not tell when there is: try again, later.) And if there is no runtime.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::connect_addr(&socket::unix_addr(path.as_ref())?).await
    }

    /// As [`connect`](UnixStream::connect), to an address such as an abstract name.
    ///
    /// # Errors
    ///
    /// As for [`connect`](UnixStream::connect).
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::new(socket::unix_connect(addr)?)
    }

    /// Two ends of a connection.
    ///
    /// # Errors
    ///
    /// What the system says, and if there is no runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = std::os::unix::net::UnixStream::pair()?;
        Ok((Self::from_std(one)?, Self::from_std(other)?))
    }

    /// The other end's address, which mostly has no name.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Who connected, or listened, at the other end.
    ///
    /// # Errors
    ///
    /// What the system says.
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
// A read stops at a descriptor that was sent along, and where the sender changes, whatever comes behind.
connection!(UnixStream, std::os::unix::net::UnixStream, |_, _| false);
