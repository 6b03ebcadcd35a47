//! The standard streams of a child.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    pin::Pin,
    process::{self, Stdio},
    task::{Context, Poll},
};

use real::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::net::unix::pipe::{Receiver, Sender};

/// Defines a stream of a child.
macro_rules! streams {
    ($($Stream:ident = $End:ident, $what:literal;)*) => {$(
        #[doc = concat!("The standard ", $what, " of a child.")]
        #[derive(Debug)]
        pub struct $Stream($End);

        impl $Stream {
            /// Wraps a stream of the standard library, and makes it nonblocking.
            ///
            /// # Errors
            ///
            /// Fails outside of a runtime, or with the operating system's error.
            pub fn from_std(stream: process::$Stream) -> io::Result<Self> {
                $End::from_owned_fd(stream.into()).map(Self)
            }

            /// Returns the descriptor, which is blocking from now on.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn into_owned_fd(self) -> io::Result<OwnedFd> {
                self.0.into_blocking_fd()
            }
        }

        impl TryFrom<$Stream> for Stdio {
            type Error = io::Error;

            fn try_from(stream: $Stream) -> io::Result<Self> {
                stream.into_owned_fd().map(Self::from)
            }
        }

        impl AsFd for $Stream {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $Stream {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }
    )*};
}

streams! {
    ChildStdin = Sender, "input";
    ChildStdout = Receiver, "output";
    ChildStderr = Receiver, "error output";
}

macro_rules! reads {
    ($($Stream:ident),*) => {$(
        impl AsyncRead for $Stream {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                Pin::new(&mut self.0).poll_read(cx, buf)
            }
        }
    )*};
}

reads!(ChildStdout, ChildStderr);

impl AsyncWrite for ChildStdin {
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

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
