//! Unix listeners.

use std::{
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
        unix::net::SocketAddr,
    },
    path::Path,
    task::{Context, Poll},
};

use super::super::{UnixStream, readiness::socket};
use crate::{engine::registration::Registration, reactor::Direction, sys::socket};

/// Listens for connections through a Unix socket.
///
/// A path that begins with a NUL byte is an abstract name. Dropping the listener does not remove
/// the file of a path: the program that bound it must remove it.
///
/// ```
/// use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::{UnixListener, UnixStream};
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let name = format!("tourbillon-example-{}", std::process::id());
/// let addr = SocketAddr::from_abstract_name(name)?;
/// let listener = UnixListener::bind_addr(&addr)?;
/// tourbillon::spawn(async move {
///     let (mut stream, _peer) = listener.accept().await?;
///     stream.write_all(b"hello").await
/// });
/// let mut greeting = String::new();
/// UnixStream::connect_addr(&addr).await?.read_to_string(&mut greeting).await?;
/// assert_eq!(greeting, "hello");
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct UnixListener(Registration<std::os::unix::net::UnixListener>);

impl UnixListener {
    /// Listens at a path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error (`AddrInUse` if the file exists), or an error if the
    /// path is too long or there is no runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::bind_addr(&socket::unix_addr(path.as_ref())?)
    }

    /// Listens at an address, for example an abstract name.
    ///
    /// # Errors
    ///
    /// See [`bind`](UnixListener::bind).
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::new(socket::unix_listen(addr)?)
    }

    /// Waits for a connection. The worker that accepts it owns it. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. If the process has no descriptors left (`EMFILE`), the
    /// connection stays in the queue: try again later.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, peer) = self.0.io(Direction::Read, socket::unix_accept).await?;
        Ok((UnixStream::accepted(stream)?, peer))
    }

    /// Attempts [`accept`](UnixListener::accept) from a `poll` function. Only the last task to poll
    /// is woken.
    ///
    /// # Errors
    ///
    /// See [`accept`](UnixListener::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.0
            .poll_io(cx, Direction::Read, socket::unix_accept, |_| false)
            .map(|accepted| {
                let (stream, peer) = accepted?;
                Ok((UnixStream::accepted(stream)?, peer))
            })
    }

    /// Returns the address that the socket listens at.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }
}

socket!(UnixListener, std::os::unix::net::UnixListener);
