//! TCP.

use std::{net::SocketAddr, time::Duration};

use crate::{
    context::{bound, need_io},
    forward::{forward, forward_addrs},
    net::ToSocketAddrs,
};

super::stream::stream!(
    TcpStream,
    std::net::TcpStream,
    SocketAddr,
    tourbillon::net::tcp
);

impl TcpStream {
    /// Connects to the first address that accepts.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        need_io();
        Inner::TcpStream::connect(addr).await.map(Self)
    }
}

forward! {
    [] TcpStream:
    fn linger() -> io::Result<Option<Duration>>;
    fn nodelay() -> io::Result<bool>;
    fn quickack() -> io::Result<bool>;
    fn set_linger(duration: Option<Duration>) -> io::Result<()>;
    fn set_nodelay(nodelay: bool) -> io::Result<()>;
    fn set_quickack(quickack: bool) -> io::Result<()>;
    fn set_ttl(ttl: u32) -> io::Result<()>;
    fn set_zero_linger() -> io::Result<()>;
    fn ttl() -> io::Result<u32>;
}

/// Defines the methods that look at data.
macro_rules! peeks {
    ($([$($params:tt)*] $Outer:ty;)*) => {$(
        forward! {
            [$($params)*] $Outer:
            async {
                fn peek(buf: &mut [u8]) -> io::Result<usize>;
            }
        }

        impl<$($params)*> $Outer {
            /// Reads data without removing it, and returns the number of bytes.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn poll_peek(
                &self,
                cx: &mut Context<'_>,
                buf: &mut real::io::ReadBuf<'_>,
            ) -> Poll<io::Result<usize>> {
                let n = ready!(self.0.poll_peek(cx, buf.initialize_unfilled()))?;
                buf.advance(n);
                Poll::Ready(Ok(n))
            }
        }
    )*};
}

peeks! {
    [] TcpStream;
    [] OwnedReadHalf;
    ['a] ReadHalf<'a>;
}

/// A TCP socket that accepts connections.
#[derive(Debug)]
pub struct TcpListener(Inner::TcpListener);

super::stream::socket!(TcpListener, std::net::TcpListener);
forward_addrs! { [] TcpListener, SocketAddr: local_addr }
forward! {
    [] TcpListener:
    fn set_ttl(ttl: u32) -> io::Result<()>;
    fn ttl() -> io::Result<u32>;
}

impl TcpListener {
    /// Binds to the first address that is free.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        bound(Inner::TcpListener::bind(addr).await).map(Self)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, addr) = self.0.accept().await?;
        Ok((TcpStream(stream), addr))
    }

    /// Polls for the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let (stream, addr) = ready!(self.0.poll_accept(cx))?;
        Poll::Ready(Ok((TcpStream(stream), addr)))
    }
}

/// For Tourbillon's own crates, such as its server for axum.
impl From<TcpListener> for Inner::TcpListener {
    fn from(listener: TcpListener) -> Self {
        listener.0
    }
}

/// A TCP socket that is not connected and does not listen.
#[derive(Debug)]
pub struct TcpSocket(Inner::TcpSocket);

super::stream::derefs! {
    [] TcpListener => Inner::TcpListener;
    [] TcpSocket => Inner::TcpSocket;
}

super::stream::descriptor!(TcpSocket);
super::stream::raw!(TcpSocket);
forward_addrs! { [] TcpSocket, SocketAddr: local_addr }
forward! {
    [] TcpSocket:
    fn bind(addr: SocketAddr) -> io::Result<()>;
    fn bind_device(interface: Option<&[u8]>) -> io::Result<()>;
    fn device() -> io::Result<Option<Vec<u8>>>;
    fn keepalive() -> io::Result<bool>;
    fn linger() -> io::Result<Option<Duration>>;
    fn nodelay() -> io::Result<bool>;
    fn recv_buffer_size() -> io::Result<u32>;
    fn reuseaddr() -> io::Result<bool>;
    fn reuseport() -> io::Result<bool>;
    fn send_buffer_size() -> io::Result<u32>;
    fn set_keepalive(keepalive: bool) -> io::Result<()>;
    fn set_linger(duration: Option<Duration>) -> io::Result<()>;
    fn set_nodelay(nodelay: bool) -> io::Result<()>;
    fn set_recv_buffer_size(size: u32) -> io::Result<()>;
    fn set_reuseaddr(reuseaddr: bool) -> io::Result<()>;
    fn set_reuseport(reuseport: bool) -> io::Result<()>;
    fn set_send_buffer_size(size: u32) -> io::Result<()>;
    fn set_tclass_v6(tclass: u32) -> io::Result<()>;
    fn set_tos_v4(tos: u32) -> io::Result<()>;
    fn set_zero_linger() -> io::Result<()>;
    fn take_error() -> io::Result<Option<io::Error>>;
    fn tclass_v6() -> io::Result<u32>;
    fn tos_v4() -> io::Result<u32>;
}
super::stream::tos!(TcpSocket);

impl TcpSocket {
    /// Creates a socket for IPv4.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_v4() -> io::Result<Self> {
        Inner::TcpSocket::new_v4().map(Self)
    }

    /// Creates a socket for IPv6.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn new_v6() -> io::Result<Self> {
        Inner::TcpSocket::new_v6().map(Self)
    }

    /// Wraps a socket of the standard library that is not yet connected. It must be nonblocking.
    pub fn from_std_stream(stream: std::net::TcpStream) -> Self {
        Self(Inner::TcpSocket::from_std_stream(stream))
    }

    /// Connects.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        need_io();
        self.0.connect(addr).await.map(TcpStream)
    }

    /// Listens for connections.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    #[track_caller]
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        bound(self.0.listen(backlog)).map(TcpListener)
    }
}
