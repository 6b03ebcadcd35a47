//! Unix sockets.

use std::path::Path;

pub use tourbillon::net::unix::{SocketAddr, UCred};

super::stream::stream!(
    UnixStream,
    std::os::unix::net::UnixStream,
    tourbillon::net::unix
);

impl UnixStream {
    /// Connects to the socket at `path`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Inner::UnixStream::connect(path).await.map(Self)
    }

    /// Creates two connected streams.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = Inner::UnixStream::pair()?;
        Ok((Self(one), Self(other)))
    }
}

/// A Unix socket that accepts connections.
#[derive(Debug)]
pub struct UnixListener(Inner::UnixListener);

super::stream::socket!(UnixListener, std::os::unix::net::UnixListener);
super::stream::derefs! { [] UnixListener => Inner::UnixListener; }

impl UnixListener {
    /// Binds to `path`.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Inner::UnixListener::bind(path).map(Self)
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, addr) = self.0.accept().await?;
        Ok((UnixStream(stream), addr))
    }

    /// Polls for the next connection.
    ///
    /// # Errors
    ///
    /// Returns the operating system's error.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let (stream, addr) = ready!(self.0.poll_accept(cx))?;
        Poll::Ready(Ok((UnixStream(stream), addr)))
    }
}
