//! A stream that counts the bytes which its socket accepts.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::rt::{Read, ReadBufCursor, Write};

use crate::requests::Requests;

/// A stream that counts the bytes which its socket accepts.
///
/// hyper drops a body once it has taken all of it, and may continue to write for long. A connection
/// is not idle while its client takes these bytes, and has to end if the client takes none.
///
/// A socket accepts large parts with long pauses between them. In a pause the connection asks the
/// system for acknowledged bytes: see `End::has_taken`.
pub(crate) struct Watched<Io> {
    pub(crate) io: Io,
    pub(crate) requests: Arc<Requests>,
}

impl<Io: Unpin> Watched<Io> {
    fn io(&mut self) -> Pin<&mut Io> {
        Pin::new(&mut self.io)
    }

    fn record(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.requests.wrote(*bytes),
            Poll::Ready(Err(_)) => {}
            // The socket is full: from here on the response waits for its client.
            Poll::Pending => self.requests.note_stuck(),
        }
        written
    }
}

impl<Io: Read + Unpin> Read for Watched<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(cx, buf)
    }
}

impl<Io: Write + Unpin> Write for Watched<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.io().poll_write(cx, buf);
        self.record(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes after its last write. A TLS stream may still hold data then.
        let flushed = self.io().poll_flush(cx);
        match &flushed {
            Poll::Ready(Ok(())) => self.requests.note_flushed(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => self.requests.note_stuck(),
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.io().poll_write_vectored(cx, bufs);
        self.record(written)
    }
}
