//! Implementations of hyper's runtime traits, to use hyper 1.x on this runtime.
//!
//! [`TcpStream`] and [`UnixStream`] implement hyper's `Read` and `Write`. hyper's builders take
//! [`TourbillonExecutor`] and [`TourbillonTimer`]. [`FuturesIo`] adapts any other stream with the
//! traits of futures-io, such as one of TLS.
//!
//! # Clients
//!
//! With the feature `client`, hyper-util's `client::legacy::Client` and tonic's `Channel` connect
//! by `HttpConnector` and `UnixConnector`. Both streams implement hyper-util's `Connection`, for
//! connectors of your own.

#[cfg(feature = "client")]
mod client;
pub(crate) mod futures_io;

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Instant as StdInstant,
};

use ::futures_io::AsyncWrite;
use ::hyper::rt::{self, ReadBufCursor};

#[cfg(feature = "client")]
#[cfg_attr(docsrs, doc(cfg(feature = "client")))]
pub use crate::integrations::hyper::client::{
    ConnectError, HttpConnector, HttpInfo, UnixConnector,
};
pub use crate::integrations::hyper::futures_io::FuturesIo;
use crate::{
    clock::instant::Instant,
    net::{TcpStream, UnixStream},
    time,
};

/// An executor for hyper that spawns tasks on the current runtime.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonExecutor;

impl TourbillonExecutor {
    /// Creates an executor.
    pub fn new() -> Self {
        Self
    }
}

impl<F> rt::Executor<F> for TourbillonExecutor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, future: F) {
        drop(crate::task::spawn(future));
    }
}

/// A timer for hyper that uses the timers of the current worker.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonTimer;

impl TourbillonTimer {
    /// Creates a timer.
    pub fn new() -> Self {
        Self
    }
}

/// A [`Sleep`](time::Sleep) with hyper's trait.
struct Sleep(time::Sleep);

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl rt::Sleep for Sleep {}

impl rt::Timer for TourbillonTimer {
    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }

    fn sleep(&self, duration: time::Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(time::sleep(duration)))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Sleep(time::sleep_until(deadline.into())))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(ours) => ours.get_mut().0.set_deadline(Instant::from(deadline)),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

macro_rules! connection {
    ($Stream:ty) => {
        impl rt::Read for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                mut buf: ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: `poll_read_uninit` only writes initialized bytes into `room`, so no
                // initialized byte becomes uninitialized.
                let room = unsafe { buf.as_mut() };
                let read = ready!(self.poll_read_uninit(cx, room))?;
                // SAFETY: `poll_read_uninit` returned that it initialized the first `read` bytes.
                unsafe { buf.advance(read) };
                Poll::Ready(Ok(()))
            }
        }

        impl rt::Write for $Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write(self, cx, buf)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_flush(self, cx)
            }

            fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                AsyncWrite::poll_close(self, cx)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                AsyncWrite::poll_write_vectored(self, cx, bufs)
            }
        }
    };
}

connection!(TcpStream);
connection!(UnixStream);
