//! Implementations of hyper's runtime traits, to use hyper 1.x on this runtime.
//!
//! [`TcpStream`] and [`UnixStream`] implement hyper's `Read` and `Write`. hyper's builders take
//! [`TourbillonExecutor`] and [`TourbillonTimer`].

use std::{
    future::Future,
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::{Duration, Instant as StdInstant},
};

use ::futures_io::AsyncWrite;
use ::hyper::rt::{self, ReadBufCursor};

use crate::{
    clock::instant::Instant,
    integrations::limit::Limit,
    net::{TcpStream, UnixStream},
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
///
/// hyper uses it for time limits, which need not be exact. So its timers may be late by a 32nd of
/// their time, at most 250 ms, and share wake-ups. [`tolerance`](TourbillonTimer::tolerance) sets
/// another bound.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct TourbillonTimer {
    tolerance: Option<Duration>,
}

impl TourbillonTimer {
    /// Creates a timer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how late hyper's timers may be, so that they share wake-ups. With zero they are exact.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hyper::server::conn::http1;
    /// use tourbillon::hyper::TourbillonTimer;
    ///
    /// let mut http = http1::Builder::new();
    /// http.timer(TourbillonTimer::new().tolerance(Duration::from_millis(20)))
    ///     .header_read_timeout(Duration::from_secs(1));
    /// ```
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = Some(tolerance);
        self
    }
}

impl rt::Sleep for Limit {}

impl rt::Timer for TourbillonTimer {
    fn now(&self) -> StdInstant {
        Instant::now().into_std()
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Limit::new(duration, self.tolerance))
    }

    fn sleep_until(&self, deadline: StdInstant) -> Pin<Box<dyn rt::Sleep>> {
        Box::pin(Limit::until(deadline.into(), self.tolerance))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn rt::Sleep>>, deadline: StdInstant) {
        match sleep.as_mut().downcast_mut_pin::<Limit>() {
            Some(ours) => ours.get_mut().set_deadline(Instant::from(deadline)),
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
