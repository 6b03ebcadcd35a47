//! From futures-io's traits to hyper's, and back.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use ::hyper::rt::{self, ReadBuf, ReadBufCursor};

/// The most that is read at once: what a record of TLS may have. It is cleared each time, since
/// what reads by futures-io's trait may look at it.
const READ: usize = 16 * 1024;

/// A stream with the traits of futures-io, such as one of TLS, with hyper's; and one with hyper's,
/// such as a connection that was upgraded, with those of futures-io.
///
/// [`TcpStream`](crate::net::TcpStream) and [`UnixStream`](crate::net::UnixStream) have both
/// already.
///
/// ```
/// use futures_rustls::server::TlsStream;
/// use hyper::{body::Incoming, server::conn::http1, service::HttpService};
/// use tourbillon::{hyper::FuturesIo, net::TcpStream};
///
/// # async fn example<S, B>(stream: TlsStream<TcpStream>, service: S) -> hyper::Result<()>
/// # where S: HttpService<Incoming, ResBody = B>, S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
/// #     B: hyper::body::Body + 'static, B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
/// # {
/// http1::Builder::new()
///     .timer(tourbillon::hyper::TourbillonTimer::new())
///     .serve_connection(FuturesIo::new(stream), service)
///     .await
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct FuturesIo<T> {
    stream: T,
    vectored: bool,
}

impl<T> FuturesIo<T> {
    /// Wraps a stream.
    pub fn new(stream: T) -> Self {
        Self {
            stream,
            vectored: false,
        }
    }

    /// Tells hyper whether the stream writes several buffers at once, which futures-io's traits do
    /// not say. It does not by default: hyper joins them then, while a stream that took only the
    /// first would be written to in small pieces.
    pub fn with_write_vectored(mut self, vectored: bool) -> Self {
        self.vectored = vectored;
        self
    }

    /// The stream.
    pub fn get_ref(&self) -> &T {
        &self.stream
    }

    /// The stream.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// The stream, which is not wrapped any more. Nothing is buffered here.
    pub fn into_inner(self) -> T {
        self.stream
    }
}

impl<T: futures_io::AsyncRead + Unpin> rt::Read for FuturesIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: only bytes that were written are said to be, and none is made uninitialized.
        let room = unsafe { buf.as_mut() };
        let len = room.len().min(READ);
        let room = &mut room[..len];
        room.fill(std::mem::MaybeUninit::new(0));
        // SAFETY: all of it was written just now.
        let room = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, room))?;
        // What is safe to implement may answer nonsense.
        assert!(read <= len, "read {read} bytes into {len}");
        // SAFETY: so many bytes were written, if only with zeros.
        unsafe { buf.advance(read) };
        Poll::Ready(Ok(()))
    }
}

impl<T: futures_io::AsyncWrite + Unpin> rt::Write for FuturesIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}

impl<T: rt::Read + Unpin> futures_io::AsyncRead for FuturesIo<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut buf = ReadBuf::new(buf);
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf.unfilled()))?;
        Poll::Ready(Ok(buf.filled().len()))
    }
}

impl<T: rt::Write + Unpin> futures_io::AsyncWrite for FuturesIo<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }
}
