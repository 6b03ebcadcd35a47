//! An adapter between the traits of futures-io and hyper.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::rt::{self, ReadBuf, ReadBufCursor};

/// The maximum size of a read: that of a TLS record. The buffer is zeroed before each read, because
/// safe implementations of futures-io may look at it.
const READ_MAX: usize = 16 * 1024;

/// An adapter between the traits of futures-io and hyper, in both directions.
///
/// It gives hyper's traits to a stream with those of futures-io, such as one of TLS. It gives those
/// of futures-io to a stream with hyper's, such as an upgraded connection.
/// [`TourbillonIo`](crate::TourbillonIo) has both already, and reads without zeroing a buffer.
///
/// ```
/// use futures_rustls::server::TlsStream;
/// use hyper::{body::Incoming, server::conn::http1, service::HttpService};
/// use tourbillon::net::TcpStream;
/// use tourbillon_hyper::FuturesIo;
///
/// # async fn example<S, B>(stream: TlsStream<TcpStream>, service: S) -> hyper::Result<()>
/// # where S: HttpService<Incoming, ResBody = B>,
/// #     S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
/// #     B: hyper::body::Body + 'static, B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
/// # {
/// http1::Builder::new()
///     .timer(tourbillon_hyper::TourbillonTimer::new())
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

    /// Sets whether the stream can write several buffers at once. The traits of futures-io do not
    /// tell.
    ///
    /// By default it cannot, and hyper joins the buffers. If hyper passed several buffers to a
    /// stream that writes only the first one, it would write in small pieces.
    pub fn with_write_vectored(mut self, vectored: bool) -> Self {
        self.vectored = vectored;
        self
    }

    /// Returns the stream.
    pub fn get_ref(&self) -> &T {
        &self.stream
    }

    /// Returns the stream mutably.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.stream
    }

    /// Returns the stream. The adapter has no buffer, so no data is lost.
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
        // SAFETY: this function only writes initialized bytes into `room`, so no initialized byte
        // becomes uninitialized.
        let room = unsafe { buf.as_mut() };
        let len = room.len().min(READ_MAX);
        let room = &mut room[..len];
        room.fill(std::mem::MaybeUninit::new(0));
        // SAFETY: the line above initialized all of it.
        let room = unsafe { &mut *(std::ptr::from_mut(room) as *mut [u8]) };
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, room))?;
        // A safe implementation may return a wrong number.
        assert!(read <= len, "read {read} bytes into {len}");
        // SAFETY: all `len` bytes are initialized, and `read` is at most `len`.
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
