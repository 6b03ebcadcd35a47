//! A connection that counts what the client takes.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use ::hyper::rt::{Read, ReadBufCursor, Write};

use crate::integrations::axum::requests::Requests;

/// hyper takes a body and drops it, and may go on writing for long: a connection is not idle while
/// its client takes what is written. And if the client takes nothing, the connection has to end.
///
/// Here is seen what the socket takes. That comes in large parts with long pauses, in which the
/// connection asks the system what the client takes: see `End::has_taken`.
pub(crate) struct Watched<Io> {
    pub(crate) io: Io,
    pub(crate) requests: Arc<Requests>,
}

impl<Io: Unpin> Watched<Io> {
    fn io(&mut self) -> Pin<&mut Io> {
        Pin::new(&mut self.io)
    }

    fn seen(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &written {
            Poll::Ready(Ok(bytes)) => self.requests.wrote(*bytes),
            Poll::Ready(Err(_)) => {}
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
        self.seen(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper asks when it has written all. A stream of TLS may have it still.
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
        self.seen(written)
    }
}
