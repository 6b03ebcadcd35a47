//! Implementations of tokio's I/O traits for our streams, and of ours for its buffer. They need no
//! tokio runtime.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::{
    TcpStream, UnixStream,
    buf::{PollBuf, sealed},
    tcp, unix,
};

macro_rules! reads {
    ($($Stream:ty),*) => {$(
        impl AsyncRead for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: `poll_read_uninit` only writes initialized bytes into `room`, so no byte
                // of the buffer that was initialized becomes uninitialized.
                let room = unsafe { buf.unfilled_mut() };
                let read = ready!(self.poll_read_uninit(cx, room))?;
                // SAFETY: `poll_read_uninit` returned that it initialized the first `read` bytes.
                unsafe { buf.assume_init(read) };
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    )*};
}

macro_rules! writes {
    ($($Stream:ty),*) => {$(
        impl AsyncWrite for $Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write(self, cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_flush(self, cx)
            }

            /// Shuts down the write direction. Reading continues to work.
            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_close(self, cx)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write_vectored(self, cx, bufs)
            }
        }
    )*};
}

impl sealed::Sealed for ReadBuf<'_> {}

impl PollBuf for ReadBuf<'_> {
    type Count = ();
    type CountAnd<A> = A;

    fn room(&mut self) -> &mut [u8] {
        self.initialize_unfilled()
    }

    fn filled(&mut self, n: usize) {
        self.advance(n);
    }

    fn filled_from<A>(&mut self, n: usize, addr: A) -> A {
        self.advance(n);
        addr
    }
}

reads!(
    TcpStream,
    tcp::OwnedReadHalf,
    tcp::ReadHalf<'_>,
    UnixStream,
    unix::OwnedReadHalf,
    unix::ReadHalf<'_>
);
writes!(
    TcpStream,
    tcp::OwnedWriteHalf,
    tcp::WriteHalf<'_>,
    UnixStream,
    unix::OwnedWriteHalf,
    unix::WriteHalf<'_>
);
