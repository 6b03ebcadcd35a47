//! TCP listeners.

use std::{
    future::ready,
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
    task::{Context, Poll},
};

use crate::{
    engine::{core::WorkerShard, registration::Registration},
    net::{
        addr::{ToSocketAddrs, try_each},
        options::options,
        readiness::socket,
        tcp::{per_core::PerCoreListeners, stream::TcpStream},
    },
    reactor::{Direction, Directions},
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
    /// Listens at an address. With port 0 the system chooses the port. An address that was in use a
    /// moment ago may be used again (`SO_REUSEADDR`).
    ///
    /// A host name is resolved as by [`lookup_host`](crate::net::lookup_host).
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime. If every address
    /// fails, this is the last error.
    pub async fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let listen = |addr| Self::new(socket::listen(addr)?);
        try_each(addr, |addr| ready(listen(addr))).await
    }

    /// Listens at an address with one socket for each worker, watched by that worker. See
    /// [`PerCoreListeners`].
    ///
    /// # Errors
    ///
    /// See [`PerCoreListeners::bind_with`].
    pub async fn bind_per_core(addr: impl ToSocketAddrs) -> io::Result<PerCoreListeners> {
        PerCoreListeners::bind_with(addr, u32::MAX, |_| Ok(())).await
    }

    /// Registers a listening socket with a given worker.
    pub(super) fn on(home: Arc<WorkerShard>, socket: std::net::TcpListener) -> io::Result<Self> {
        Registration::on(home, socket, Directions::BOTH)
            .map(Self)
            .map_err(|(_, error)| error)
    }

    /// Waits for a connection. The worker that accepts it owns it. Any number of tasks may wait.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error. An error of one connection (`ECONNABORTED`) does not
    /// affect the next ones. If the process has no descriptors left (`EMFILE`), the connection
    /// stays in the queue: try again later.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = self.0.io(Direction::Read, socket::accept).await?;
        Ok((TcpStream::accepted(stream)?, peer))
    }

    /// Attempts [`accept`](TcpListener::accept) from a `poll` function. Only the last task to poll
    /// is woken.
    ///
    /// # Errors
    ///
    /// See [`accept`](TcpListener::accept).
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        self.0
            .poll_io(cx, Direction::Read, socket::accept, |_| false)
            .map(|accepted| {
                let (stream, peer) = accepted?;
                Ok((TcpStream::accepted(stream)?, peer))
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

options! {
    TcpListener, |it|

    /// Returns the number of routers a packet may pass (`IP_TTL`).
    ttl() = it.0.get().ttl();
    /// It also holds for connections that are accepted later.
    set_ttl(ttl: u32) = it.0.get().set_ttl(ttl);
}

socket!(TcpListener, std::net::TcpListener);
