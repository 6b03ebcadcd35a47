//! Unix sockets and pipes.

mod addr;
pub mod pipe;

use std::{net::Shutdown, path::Path};

pub use tourbillon::net::unix::{UCred, gid_t, pid_t, uid_t};

pub use self::addr::SocketAddr;
use crate::{
    context::{bound, need_io},
    forward::{forward, forward_addrs},
};

super::stream::stream!(
    UnixStream,
    std::os::unix::net::UnixStream,
    SocketAddr,
    tourbillon::net::unix
);
forward! { [] UnixStream: fn peer_cred() -> io::Result<UCred>; }

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        need_io();
        Inner::UnixStream::connect(path).await.map(Self)
    }

    /// Connects to the socket at an address, which may have no path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        need_io();
        Inner::UnixStream::connect_addr(addr.as_std())
            .await
            .map(Self)
    }

    /// Creates two connected streams.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn pair() -> io::Result<(Self, Self)> {
        need_io();
        let (one, other) = Inner::UnixStream::pair()?;
        Ok((Self(one), Self(other)))
    }
}

/// A Unix socket that accepts connections.
#[derive(Debug)]
pub struct UnixListener(Inner::UnixListener);

super::stream::socket!(UnixListener, std::os::unix::net::UnixListener);
super::stream::derefs! { [] UnixListener => Inner::UnixListener; }
forward_addrs! { [] UnixListener, SocketAddr: local_addr }
forward! { [] UnixListener: fn take_error() -> io::Result<Option<io::Error>>; }

/// For Tourbillon's own crates, such as its server for axum.
impl From<UnixListener> for Inner::UnixListener {
    fn from(listener: UnixListener) -> Self {
        listener.0
    }
}

impl UnixListener {
    /// Binds to `path`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        bound(Inner::UnixListener::bind(path)).map(Self)
    }

    /// Binds to an address, which may have no path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        bound(Inner::UnixListener::bind_addr(addr.as_std())).map(Self)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, addr) = self.0.accept().await?;
        Ok((UnixStream(stream), addr.into()))
    }

    /// Polls for the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (stream, addr) = ready!(self.0.poll_accept(cx))?;
        Poll::Ready(Ok((UnixStream(stream), addr.into())))
    }
}

/// A Unix socket for datagrams.
#[derive(Debug)]
pub struct UnixDatagram(Inner::UnixDatagram);

super::stream::socket!(UnixDatagram, std::os::unix::net::UnixDatagram);
super::stream::derefs! { [] UnixDatagram => Inner::UnixDatagram; }
super::datagram::receives! { UnixDatagram, SocketAddr: poll_recv, poll_recv_from }
super::datagram::datagrams! { UnixDatagram, SocketAddr }
forward! {
    [] UnixDatagram:
    fn connect<P: AsRef<Path>>(path: P) -> io::Result<()>;
    fn poll_send_to<P: AsRef<Path>>(
        cx: &mut Context<'_>,
        buf: &[u8],
        path: P,
    ) -> Poll<io::Result<usize>>;
    fn shutdown(how: Shutdown) -> io::Result<()>;
    fn try_send_to<P: AsRef<Path>>(buf: &[u8], path: P) -> io::Result<usize>;
    async {
        fn send_to<P: AsRef<Path>>(buf: &[u8], path: P) -> io::Result<usize>;
    }
}

impl UnixDatagram {
    /// Binds to `path`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        bound(Inner::UnixDatagram::bind(path)).map(Self)
    }

    /// Binds to an address, which may have no path.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        bound(Inner::UnixDatagram::bind_addr(addr.as_std())).map(Self)
    }

    /// Creates a socket that is not bound.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn unbound() -> io::Result<Self> {
        need_io();
        Inner::UnixDatagram::unbound().map(Self)
    }

    /// Creates two connected sockets.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn pair() -> io::Result<(Self, Self)> {
        need_io();
        let (one, other) = Inner::UnixDatagram::pair()?;
        Ok((Self(one), Self(other)))
    }
}

/// A Unix socket that is not connected and does not listen.
#[derive(Debug)]
pub struct UnixSocket(Inner::UnixSocket);

super::stream::derefs! { [] UnixSocket => Inner::UnixSocket; }
super::stream::descriptor!(UnixSocket);
super::stream::raw!(UnixSocket);
forward! { [] UnixSocket: fn bind<P: AsRef<Path>>(path: P) -> io::Result<()>; }

impl UnixSocket {
    /// Creates a socket for streams.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_stream() -> io::Result<Self> {
        Inner::UnixSocket::new_stream().map(Self)
    }

    /// Creates a socket for datagrams.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_datagram() -> io::Result<Self> {
        Inner::UnixSocket::new_datagram().map(Self)
    }

    /// Listens for connections.
    ///
    /// # Errors
    ///
    /// Fails for a socket for datagrams, or with the operating system's error.
    #[track_caller]
    pub fn listen(self, backlog: u32) -> io::Result<UnixListener> {
        bound(self.0.listen(backlog)).map(UnixListener)
    }

    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Fails for a socket for datagrams, or with the operating system's error.
    pub async fn connect(self, path: impl AsRef<Path>) -> io::Result<UnixStream> {
        need_io();
        self.0.connect(path).await.map(UnixStream)
    }

    /// Makes it a [`UnixDatagram`].
    ///
    /// # Errors
    ///
    /// Fails for a socket for streams, or with the operating system's error.
    #[track_caller]
    pub fn datagram(self) -> io::Result<UnixDatagram> {
        need_io();
        self.0.datagram().map(UnixDatagram)
    }
}
