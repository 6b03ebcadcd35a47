//! A TCP socket before it is connected or listens.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Socket};

use crate::{
    engine::core::WorkerShard,
    net::tcp::{listener::TcpListener, stream::TcpStream},
    sys::socket,
};

/// A TCP socket that is not connected and does not listen yet, to set options that have to be set
/// before.
///
/// Setting them needs no runtime; [`connect`](TcpSocket::connect) and [`listen`](TcpSocket::listen) do.
/// Each method's errors are what the system says.
///
/// ```
/// use tourbillon::net::TcpSocket;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let socket = TcpSocket::new_v4()?;
/// socket.set_reuseaddr(true)?;
/// socket.set_reuseport(true)?;
/// socket.bind("127.0.0.1:0".parse().unwrap())?;
/// let listener = socket.listen(1024)?;
///
/// let socket = TcpSocket::new_v4()?;
/// socket.set_nodelay(true)?;
/// let stream = socket.connect(listener.local_addr()?).await?;
/// # drop(stream);
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct TcpSocket(Socket);

impl TcpSocket {
    /// A socket for IPv4.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new_v4() -> io::Result<Self> {
        socket::tcp(Domain::IPV4).map(Self)
    }

    /// A socket for IPv6.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn new_v6() -> io::Result<Self> {
        socket::tcp(Domain::IPV6).map(Self)
    }

    /// Takes over a socket that was made elsewhere, and is not connected. It is made non-blocking when it
    /// is connected or listens.
    pub fn from_std_stream(stream: std::net::TcpStream) -> Self {
        Self(stream.into())
    }

    /// Binds the socket to an address of this end; port 0 is one that the system chooses.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.0.bind(&addr.into())
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// What the system says, and if there is no runtime.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        self.0.set_nonblocking(true)?;
        TcpStream::connecting(socket::start_connect(self.0, addr)?).await
    }

    /// Listens, with room for so many connections that nobody has accepted yet (and for no more than
    /// `net.core.somaxconn`).
    ///
    /// # Errors
    ///
    /// What the system says, and if there is no runtime.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        TcpListener::from_std(self.start_listening(backlog)?)
    }

    /// As [`listen`](TcpSocket::listen), watched by a certain worker.
    pub(super) fn listen_on(self, home: Arc<WorkerShard>, backlog: u32) -> io::Result<TcpListener> {
        let listener = self.start_listening(backlog)?;
        listener.set_nonblocking(true)?;
        TcpListener::on(home, listener)
    }

    fn start_listening(self, backlog: u32) -> io::Result<std::net::TcpListener> {
        self.0.listen(backlog.try_into().unwrap_or(i32::MAX))?;
        Ok(self.0.into())
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.0.local_addr()?.as_socket();
        Ok(addr.ok_or(io::ErrorKind::InvalidData)?)
    }

    /// The error that the socket has met and that nobody was told, if there is one; it is told once.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// Whether an address may be bound that was in use a moment ago (`SO_REUSEADDR`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.0.reuse_address()
    }

    /// Sets [`reuseaddr`](TcpSocket::reuseaddr).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_reuseaddr(&self, reuseaddr: bool) -> io::Result<()> {
        self.0.set_reuse_address(reuseaddr)
    }

    /// Whether several sockets may listen at one address, which share what comes (`SO_REUSEPORT`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.0.reuse_port()
    }

    /// Sets [`reuseport`](TcpSocket::reuseport).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_reuseport(&self, reuseport: bool) -> io::Result<()> {
        self.0.set_reuse_port(reuseport)
    }

    /// Whether a connection on which nothing happens is probed (`SO_KEEPALIVE`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn keepalive(&self) -> io::Result<bool> {
        self.0.keepalive()
    }

    /// Sets [`keepalive`](TcpSocket::keepalive).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_keepalive(&self, keepalive: bool) -> io::Result<()> {
        self.0.set_keepalive(keepalive)
    }

    /// Whether small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.tcp_nodelay()
    }

    /// Sets [`nodelay`](TcpSocket::nodelay).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.set_tcp_nodelay(nodelay)
    }

    /// The size of the buffer of what is to be sent (`SO_SNDBUF`); the system doubles what it is set to.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn send_buffer_size(&self) -> io::Result<u32> {
        Ok(self.0.send_buffer_size()?.try_into().unwrap_or(u32::MAX))
    }

    /// Sets [`send_buffer_size`](TcpSocket::send_buffer_size).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_send_buffer_size(&self, size: u32) -> io::Result<()> {
        self.0.set_send_buffer_size(size as usize)
    }

    /// The size of the buffer of what was received (`SO_RCVBUF`); the system doubles what it is set to.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn recv_buffer_size(&self) -> io::Result<u32> {
        Ok(self.0.recv_buffer_size()?.try_into().unwrap_or(u32::MAX))
    }

    /// Sets [`recv_buffer_size`](TcpSocket::recv_buffer_size).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_recv_buffer_size(&self, size: u32) -> io::Result<()> {
        self.0.set_recv_buffer_size(size as usize)
    }

    /// How long dropping the connection waits for what was not sent yet (`SO_LINGER`), in whole seconds: see
    /// [`TcpStream::set_linger`].
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.linger()
    }

    /// Sets [`linger`](TcpSocket::linger).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.0.set_linger(linger)
    }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
