//! TCP sockets that are neither connected nor listening.

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, RawFd},
    sync::Arc,
    time::Duration,
};

use socket2::{Domain, Socket};

use crate::{
    engine::core::WorkerShard,
    net::{
        options::{ip_options, options},
        readiness::unconnected,
        tcp::{listener::TcpListener, stream::TcpStream},
    },
    sys::socket,
};

/// A TCP socket that is neither connected nor listening. Use it to set options that must be set
/// before.
///
/// Setting options needs no runtime; [`connect`](TcpSocket::connect) and
/// [`listen`](TcpSocket::listen) do. Each method returns the operating system's error.
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
    /// Creates an IPv4 socket.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_v4() -> io::Result<Self> {
        socket::tcp(Domain::IPV4).map(Self)
    }

    /// Creates an IPv6 socket.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_v6() -> io::Result<Self> {
        socket::tcp(Domain::IPV6).map(Self)
    }

    /// Converts a socket that is not connected yet. It becomes non-blocking when it connects or
    /// listens.
    pub fn from_std_stream(stream: std::net::TcpStream) -> Self {
        Self(stream.into())
    }

    /// Binds the socket to a local address. With port 0 the system chooses the port.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.0.bind(&addr.into())
    }

    /// Connects to an address.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        // The kernel then connects in the background, and epoll reports the end.
        self.0.set_nonblocking(true)?;
        TcpStream::connecting(socket::start_connect(self.0, addr)?).await
    }

    /// Starts to listen. `backlog` is the number of connections that may wait to be accepted; the
    /// system limits it to `net.core.somaxconn`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error, or an error if there is no runtime.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        TcpListener::from_std(self.start_listening(backlog)?)
    }

    /// Starts to listen, watched by the worker of `home`.
    pub(super) fn listen_on(self, home: Arc<WorkerShard>, backlog: u32) -> io::Result<TcpListener> {
        let listener = self.start_listening(backlog)?;
        listener.set_nonblocking(true)?;
        TcpListener::on(home, listener)
    }

    fn start_listening(self, backlog: u32) -> io::Result<std::net::TcpListener> {
        self.0.listen(backlog.try_into().unwrap_or(i32::MAX))?;
        Ok(self.0.into())
    }

    /// Returns the address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.0.local_addr()?.as_socket();
        Ok(addr.ok_or(io::ErrorKind::InvalidData)?)
    }

    /// Returns the pending error of the socket (`SO_ERROR`) and clears it.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }

    /// Turns a close into a reset. See [`TcpStream::set_zero_linger`].
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn set_zero_linger(&self) -> io::Result<()> {
        self.set_linger(Some(Duration::ZERO))
    }
}

options! {
    TcpSocket, |it|

    /// Returns whether an address that was in use a moment ago may be bound (`SO_REUSEADDR`).
    reuseaddr() = it.0.reuse_address();
    set_reuseaddr(reuseaddr: bool) = it.0.set_reuse_address(reuseaddr);

    /// Returns whether several sockets may listen at one address and share its connections
    /// (`SO_REUSEPORT`).
    reuseport() = it.0.reuse_port();
    set_reuseport(reuseport: bool) = it.0.set_reuse_port(reuseport);

    /// Returns whether the system probes idle connections (`SO_KEEPALIVE`).
    keepalive() = it.0.keepalive();
    set_keepalive(keepalive: bool) = it.0.set_keepalive(keepalive);

    /// Returns whether small writes are sent at once (`TCP_NODELAY`).
    nodelay() = it.0.tcp_nodelay();
    set_nodelay(nodelay: bool) = it.0.set_tcp_nodelay(nodelay);

    /// Returns the size of the send buffer (`SO_SNDBUF`). The system doubles the value that it is
    /// set to.
    send_buffer_size() = Ok(it.0.send_buffer_size()?.try_into().unwrap_or(u32::MAX));
    set_send_buffer_size(size: u32) = it.0.set_send_buffer_size(size as usize);

    /// Returns the size of the receive buffer (`SO_RCVBUF`). The system doubles the value that it
    /// is set to.
    recv_buffer_size() = Ok(it.0.recv_buffer_size()?.try_into().unwrap_or(u32::MAX));
    set_recv_buffer_size(size: u32) = it.0.set_recv_buffer_size(size as usize);

    /// Returns how long closing the connection waits for unsent data (`SO_LINGER`), in whole
    /// seconds. See [`TcpStream::set_linger`].
    linger() = it.0.linger();
    set_linger(linger: Option<Duration>) = it.0.set_linger(linger);
}

ip_options!(TcpSocket);
unconnected!(TcpSocket);
