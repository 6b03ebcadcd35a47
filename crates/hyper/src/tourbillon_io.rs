//! hyper's traits for the runtime's own streams.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    ops::{Deref, DerefMut},
    os::fd::{AsFd, BorrowedFd},
    pin::Pin,
    task::{Context, Poll, ready},
};

use futures_io::{AsyncRead, AsyncWrite};
use hyper::rt::{self, ReadBufCursor};
use tourbillon::net::{TcpStream, UnixStream};

/// A [`TcpStream`] or a [`UnixStream`] with hyper's `Read` and `Write`.
///
/// It derefs to the stream, and has its traits of futures-io: TLS can stand on it. hyper reads into
/// memory that nobody has zeroed, and writes several buffers at once. For other streams there is
/// [`FuturesIo`](crate::FuturesIo).
///
/// ```
/// use hyper::client::conn::http1;
/// use tourbillon::net::TcpStream;
/// use tourbillon_hyper::TourbillonIo;
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let stream = TourbillonIo::new(TcpStream::connect("127.0.0.1:8080").await?);
/// stream.set_nodelay(true)?;
/// let (mut sender, connection) = http1::handshake(stream).await?;
/// tourbillon::spawn(connection);
/// # sender.send_request(hyper::Request::new(String::new())).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct TourbillonIo<S>(S);

impl<S> TourbillonIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        Self(stream)
    }

    /// Returns the stream. The wrapper has no buffer, so no data is lost.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S> From<S> for TourbillonIo<S> {
    fn from(stream: S) -> Self {
        Self(stream)
    }
}

impl<S> Deref for TourbillonIo<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.0
    }
}

impl<S> DerefMut for TourbillonIo<S> {
    fn deref_mut(&mut self) -> &mut S {
        &mut self.0
    }
}

impl<S: AsFd> AsFd for TourbillonIo<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The streams that [`TourbillonIo`] wraps: [`TcpStream`] and [`UnixStream`].
pub trait Stream: AsyncWrite + Unpin + sealed::ReadUninit {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

mod sealed {
    use super::*;

    pub trait ReadUninit {
        /// Reads like `poll_read`. As many bytes as it returns are initialized then.
        fn poll_read_uninit(
            &self,
            cx: &mut Context<'_>,
            buf: &mut [MaybeUninit<u8>],
        ) -> Poll<io::Result<usize>>;
    }

    macro_rules! read_uninit {
        ($($Stream:ty),*) => {$(
            impl ReadUninit for $Stream {
                #[inline]
                fn poll_read_uninit(
                    &self,
                    cx: &mut Context<'_>,
                    buf: &mut [MaybeUninit<u8>],
                ) -> Poll<io::Result<usize>> {
                    // The method of the stream, which hides that of this trait.
                    <$Stream>::poll_read_uninit(self, cx, buf)
                }
            }
        )*};
    }

    read_uninit!(TcpStream, UnixStream);
}

impl<S: Stream> rt::Read for TourbillonIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: `poll_read_uninit` of the sealed trait is that of `TcpStream` or `UnixStream`. It
        // only writes initialized bytes into `room`, so no initialized byte becomes uninitialized.
        let room = unsafe { buf.as_mut() };
        let read = ready!(sealed::ReadUninit::poll_read_uninit(&self.0, cx, room))?;
        // SAFETY: `poll_read_uninit` promises that the first `read` bytes are initialized.
        unsafe { buf.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> rt::Write for TourbillonIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TourbillonIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_read_vectored(cx, bufs)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TourbillonIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_close(cx)
    }
}
