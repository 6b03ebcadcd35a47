//! The halves of a TCP connection.

use std::{
    error::Error,
    fmt,
    io::{self, IoSlice, IoSliceMut},
    net::{Shutdown, SocketAddr},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_io::{AsyncRead, AsyncWrite};

use super::super::{TcpStream, buf::PollBuf, split::halves};
use crate::io::{Interest, Ready};

halves!(TcpStream, SocketAddr);

macro_rules! peeks {
    ($($Half:ty),*) => {$(
        impl $Half {
            /// Reads data without removing it from the queue. See [`TcpStream::peek`].
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub async fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.peek(buf).await
            }

            /// Attempts [`peek`](Self::peek) from a `poll` function. See [`TcpStream::poll_peek`].
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn poll_peek<B: PollBuf + ?Sized>(
                &self,
                cx: &mut Context<'_>,
                buf: &mut B,
            ) -> Poll<io::Result<usize>> {
                self.0.poll_peek(cx, buf)
            }
        }
    )*};
}

peeks!(OwnedReadHalf, ReadHalf<'_>);
