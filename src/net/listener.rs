//! A TCP socket that waits for connections.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll},
};

use super::{TcpStream, addr::try_each};
use crate::{
    reactor::{Direction, Registration},
    sys::socket,
};

/// Listens for TCP connections.
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
/// use tourbillon::net::{TcpListener, TcpStream};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let listener = TcpListener::bind("127.0.0.1:0").await?;
/// let addr = listener.local_addr()?;
/// tourbillon::spawn(async move {
///     let (mut stream, _peer) = listener.accept().await?;
///     stream.write_all(b"hello").await
/// });
/// let mut greeting = String::new();
/// TcpStream::connect(addr).await?.read_to_string(&mut greeting).await?;
/// assert_eq!(greeting, "hello");
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
pub struct TcpListener(Registration<std::net::TcpListener>);

impl TcpListener {
    /// Listens at an address; port 0 is one that the system chooses. An address that was in use a
    /// moment ago may be used again (`SO_REUSEADDR`).
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not.
    ///
    /// # Errors
    ///
    /// What the system says, the last if there were several addresses.
    ///
    /// # Panics
    ///
    /// Never: outside of a runtime it is an error.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, async |addr| {
            Ok(Self(Registration::new(socket::listen(addr)?)?))
        })
        .await
    }

    /// Takes over a socket that listens. It is made non-blocking.
    ///
    /// # Errors
    ///
    /// If there is no runtime, or the system will not watch it.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self(Registration::new(listener)?))
    }

    /// Waits for a connection. It belongs to the worker that accepts it. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// What the system says. Those that concern one connection (`ECONNABORTED`) pass, and when the
    /// process has no descriptors left (`EMFILE`) the connection still waits: try again, later.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.io(Direction::Read, socket::accept).await?;
        Ok((TcpStream::new(stream)?, peer))
    }

    /// As [`accept`](TcpListener::accept), for those who write futures by hand. One task at a time.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0
            .poll_io(cx, Direction::Read, socket::accept, |_| false)
            .map(|accepted| {
                let (stream, peer) = accepted?;
                Ok((TcpStream::new(stream)?, peer))
            })
    }

    /// The address that this listens at.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Gives the socket back, still non-blocking.
    pub fn into_std(self) -> std::net::TcpListener {
        self.0.into_inner()
    }
}

impl AsFd for TcpListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get().as_fd()
    }
}

impl AsRawFd for TcpListener {
    fn as_raw_fd(&self) -> RawFd {
        self.0.get().as_raw_fd()
    }
}
