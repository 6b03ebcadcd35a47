//! A TCP connection.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    net::{Shutdown, SocketAddr, ToSocketAddrs},
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures_io::{AsyncRead, AsyncWrite};

use super::{
    addr::try_each,
    split::{OwnedReadHalf, OwnedWriteHalf},
};
use crate::{
    reactor::{Direction, Registration},
    sys::socket,
};

/// A TCP connection.
///
/// Dropping it closes it, both ways.
#[derive(Debug)]
pub struct TcpStream(Registration<std::net::TcpStream>);

impl TcpStream {
    pub(super) fn new(stream: std::net::TcpStream) -> io::Result<Self> {
        Registration::new(stream).map(Self)
    }

    /// Connects to an address.
    ///
    /// A name is looked up on the calling thread, which that may block; an address is not. To wait
    /// no longer than you like, see [`timeout`](crate::time::timeout).
    ///
    /// # Errors
    ///
    /// What the system says, the last if there were several addresses.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        try_each(addr, async |addr| {
            let stream = Self::new(socket::connect(addr)?)?;
            stream.0.ready(Direction::Write).await?;
            match stream.0.get().take_error()? {
                Some(error) => Err(error),
                None => Ok(stream),
            }
        })
        .await
    }

    /// Takes over a connection. It is made non-blocking.
    ///
    /// # Errors
    ///
    /// If there is no runtime, or the system will not watch it.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Self::new(stream)
    }

    /// Gives the socket back, still non-blocking.
    pub fn into_std(self) -> std::net::TcpStream {
        self.0.into_inner()
    }

    /// This end's address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The other end's address.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Sends small writes at once (`TCP_NODELAY`).
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Whether small writes are sent at once.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Splits the connection into two halves that different tasks may own.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (
            OwnedReadHalf::new(stream.clone()),
            OwnedWriteHalf::new(stream),
        )
    }

    /// Ends one direction, or both, at once: who waits to read finds the end.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }

    /// Reads into memory that need not be initialized, and answers how much of it is now.
    #[cfg(feature = "hyper")]
    pub(crate) fn poll_read_uninit(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [std::mem::MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        let room = buf.len();
        let read = |stream: &std::net::TcpStream| socket::receive(stream, buf);
        self.poll_with(cx, Direction::Read, read, |&n| took_all(n, room))
    }

    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        mut operation: impl FnMut(&std::net::TcpStream) -> io::Result<usize>,
        used_up: impl Fn(&usize) -> bool,
    ) -> Poll<io::Result<usize>> {
        self.0
            .poll_io(cx, direction, |stream| operation(stream), used_up)
    }
}

/// Whether an operation that moved `n` of `room` bytes used up what there was: epoll(7) says so of
/// streams, and the next operation then waits without asking in vain. (None at all is the end.)
fn took_all(n: usize, room: usize) -> bool {
    n > 0 && n < room
}

impl AsyncRead for &TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let room = buf.len();
        let read = |mut stream: &std::net::TcpStream| stream.read(buf);
        self.poll_with(cx, Direction::Read, read, |&n| took_all(n, room))
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let read = |mut stream: &std::net::TcpStream| stream.read_vectored(bufs);
        self.poll_with(cx, Direction::Read, read, |_| false)
    }
}

impl AsyncWrite for &TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = |mut stream: &std::net::TcpStream| stream.write(buf);
        self.poll_with(cx, Direction::Write, write, |&n| took_all(n, buf.len()))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = |mut stream: &std::net::TcpStream| stream.write_vectored(bufs);
        self.poll_with(cx, Direction::Write, write, |_| false)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Sends the end of the stream; reading goes on.
    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read(cx, buf)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_read_vectored(cx, bufs)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut &*self).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut &*self).poll_close(cx)
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get().as_fd()
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.get().as_raw_fd()
    }
}
