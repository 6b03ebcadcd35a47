//! Unix sockets that are neither connected nor listening.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd},
    path::Path,
};

use socket2::{Socket, Type};

use super::super::{UnixDatagram, UnixListener, UnixStream, readiness::unconnected};
use crate::sys::socket;

/// A Unix socket that is neither connected nor listening. Use it to choose the backlog of a
/// listener, to bind a stream before it connects, or to set options before.
///
/// Creating and binding it needs no runtime; [`listen`](UnixSocket::listen),
/// [`connect`](UnixSocket::connect) and [`datagram`](UnixSocket::datagram) do. A path that begins
/// with a NUL byte is an abstract name.
///
/// ```
/// use tourbillon::net::UnixSocket;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let name = format!("\0tourbillon-socket-{}", std::process::id());
/// let socket = UnixSocket::new_stream()?;
/// socket.bind(&name)?;
/// let listener = socket.listen(16)?;
///
/// let stream = UnixSocket::new_stream()?.connect(&name).await?;
/// let (_server, peer) = listener.accept().await?;
/// assert!(peer.is_unnamed()); // the client was not bound
/// # drop(stream);
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UnixSocket(Socket);

impl UnixSocket {
    /// Creates a stream socket.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_stream() -> io::Result<Self> {
        socket::unix(Type::STREAM).map(Self)
    }

    /// Creates a datagram socket.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_datagram() -> io::Result<Self> {
        socket::unix(Type::DGRAM).map(Self)
    }

    /// Binds the socket to a path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error (`AddrInUse` if the file exists), or an error if the
    /// path is too long.
    pub fn bind(&self, path: impl AsRef<Path>) -> io::Result<()> {
        socket::unix_bind(&self.0, &socket::unix_addr(path.as_ref())?)
    }

    /// Starts to listen. `backlog` is the number of connections that may wait to be accepted; the
    /// system limits it to `net.core.somaxconn`.
    ///
    /// # Errors
    ///
    /// Fails for a datagram socket, and if there is no runtime. Otherwise returns the operating
    /// system's error.
    pub fn listen(self, backlog: u32) -> io::Result<UnixListener> {
        self.require(Type::STREAM)?;
        self.0.listen(backlog.try_into().unwrap_or(i32::MAX))?;
        UnixListener::from_std(self.0.into())
    }

    /// Connects to the listener at a path.
    ///
    /// # Errors
    ///
    /// Fails for a datagram socket. Otherwise see [`UnixStream::connect`].
    pub async fn connect(self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        self.require(Type::STREAM)?;
        // A socket of the caller may be blocking, and would wait for room in the listener's queue.
        self.0.set_nonblocking(true)?;
        socket::unix_set_peer(&self.0, &socket::unix_addr(path.as_ref())?)?;
        UnixStream::from_std(self.0.into())
    }

    /// Converts the socket to a datagram socket.
    ///
    /// # Errors
    ///
    /// Fails for a stream socket, and if there is no runtime.
    pub fn datagram(self) -> io::Result<UnixDatagram> {
        self.require(Type::DGRAM)?;
        UnixDatagram::from_std(self.0.into())
    }

    fn require(&self, kind: Type) -> io::Result<()> {
        if self.0.r#type()? == kind {
            return Ok(());
        }
        Err(io::Error::other(if kind == Type::STREAM {
            "a datagram socket can neither listen nor connect as a stream"
        } else {
            "a stream socket cannot become a datagram socket"
        }))
    }
}

unconnected!(UnixSocket);
