//! A TCP socket that waits for connections.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    engine::core::WorkerShard,
    net::{
        addr::try_each,
        readiness::socket,
        tcp::{per_core::PerCoreListeners, stream::TcpStream},
    },
    reactor::{
        readiness::{Direction, Directions},
        registration::Registration,
    },
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
        try_each(addr, async |addr| Self::new(socket::listen(addr)?)).await
    }

    /// Listens at an address with one socket for each worker, each watched by its own: see
    /// [`PerCoreListeners`].
    ///
    /// # Errors
    ///
    /// As for [`PerCoreListeners::bind_with`].
    pub async fn bind_per_core(addr: impl ToSocketAddrs) -> io::Result<PerCoreListeners> {
        PerCoreListeners::bind_with(addr, u32::MAX, |_| Ok(())).await
    }

    /// Watches a socket that listens, on a certain worker.
    pub(super) fn on(home: Arc<WorkerShard>, socket: std::net::TcpListener) -> io::Result<Self> {
        Registration::on(home, socket, Directions::BOTH)
            .map(Self)
            .map_err(|(_, error)| error)
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
    ///
    /// # Errors
    ///
    /// As for [`accept`](TcpListener::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0
            .poll_io(cx, Direction::Read, socket::accept, |_| false)
            .map(|accepted| {
                let (stream, peer) = accepted?;
                Ok((TcpStream::new(stream)?, peer))
            })
    }

    /// The address that this listens at.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// How many routers a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets [`ttl`](TcpListener::ttl), also of the connections that are accepted.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }
}

socket!(TcpListener, std::net::TcpListener);
