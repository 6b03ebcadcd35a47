//! TCP.

use std::net::SocketAddr;

use crate::net::ToSocketAddrs;

super::stream::stream!(TcpStream, std::net::TcpStream, tourbillon::net::tcp);

impl TcpStream {
    /// Connects to the first address that accepts.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Inner::TcpStream::connect(addr).await.map(Self)
    }

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

/// A TCP socket that accepts connections.
#[derive(Debug)]
pub struct TcpListener(Inner::TcpListener);

super::stream::socket!(TcpListener, std::net::TcpListener);

impl TcpListener {
    /// Binds to the first address that is free.
    ///
    /// # Errors
    ///
    /// Returns the error of the last address.
    pub async fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        Inner::TcpListener::bind(addr).await.map(Self)
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

/// A TCP socket that is not connected and does not listen.
#[derive(Debug)]
pub struct TcpSocket(Inner::TcpSocket);

super::stream::derefs! {
    [] TcpListener => Inner::TcpListener;
    [] TcpSocket => Inner::TcpSocket;
}

super::stream::descriptor!(TcpSocket);

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
        self.0.connect(addr).await.map(TcpStream)
    }

    /// Listens for connections.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        self.0.listen(backlog).map(TcpListener)
    }
}
