//! Operations that block, on the blocking threads of the runtime: what files and the standard
//! streams have in common.

use std::{
    io::{self, Read, Write},
    pin::Pin,
    task::{Context, Poll, ready},
};

use real::io::ReadBuf;
use tourbillon::task::{JoinHandle, spawn_blocking};

use crate::context::need_runtime;

/// How many bytes one operation reads or writes at most, unless a file is set otherwise.
pub(crate) const MOST: usize = 2 * 1024 * 1024;

/// Runs `f` on a blocking thread.
///
/// # Panics
///
/// Panics outside of a runtime, as the methods of [`Job`] that start an operation.
pub(crate) async fn run<R: Send + 'static>(
    f: impl FnOnce() -> io::Result<R> + Send + 'static,
) -> io::Result<R> {
    need_runtime();
    // The text of the error is tokio's. The runtime has ended, or `f` has panicked.
    let ended = spawn_blocking(f).await;
    ended.unwrap_or_else(|_| Err(io::Error::other("background task failed")))
}

/// Bytes that were read and not yet taken, or that are to be written.
#[derive(Debug, Default)]
pub(crate) struct Buf {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buf {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Removes all bytes.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Moves as many bytes to `into` as it has room for.
    pub(crate) fn move_to(&mut self, into: &mut ReadBuf<'_>) {
        let n = self.len().min(into.remaining());
        into.put_slice(&self.bytes[self.start..self.start + n]);
        self.start += n;
    }

    /// Takes bytes from the slices until they are `most`, in place of all bytes that were there.
    /// Returns their number.
    pub(crate) fn take_from<'a>(
        &mut self,
        slices: impl IntoIterator<Item = &'a [u8]>,
        most: usize,
    ) -> usize {
        self.bytes.clear();
        for slice in slices {
            let n = slice.len().min(most - self.bytes.len());
            self.bytes.extend_from_slice(&slice[..n]);
        }
        (self.start, self.end) = (0, self.bytes.len());
        self.end
    }

    /// Reads at most `most` bytes by one call, in place of all bytes that were there.
    pub(crate) fn read_from(&mut self, mut from: impl Read, most: usize) -> io::Result<()> {
        self.clear();
        if self.bytes.len() < most {
            self.bytes.resize(most, 0);
        }
        self.end = loop {
            match from.read(&mut self.bytes[..most]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        Ok(())
    }

    /// Writes all bytes, and removes them, also if there is an error.
    pub(crate) fn write_to(&mut self, mut to: impl Write) -> io::Result<()> {
        let written = to.write_all(&self.bytes[self.start..self.end]);
        self.clear();
        written
    }
}

/// An operation at a time on a blocking thread, each with the buffer.
#[derive(Debug)]
pub(crate) enum Job<T> {
    /// There is none.
    Idle(Buf),
    Running(JoinHandle<(T, Buf)>),
}

impl<T> Default for Job<T> {
    fn default() -> Self {
        Self::Idle(Buf::default())
    }
}

impl<T: Send + 'static> Job<T> {
    /// Starts an operation. Its buffer must have been taken from the idle state.
    pub(crate) fn start(&mut self, mut buf: Buf, f: impl FnOnce(&mut Buf) -> T + Send + 'static) {
        need_runtime();
        *self = Self::Running(spawn_blocking(move || (f(&mut buf), buf)));
    }

    /// Waits for the end of the operation, if there is one, and returns its result. Returns `None`
    /// if there is none.
    ///
    /// Its error is that of the blocking thread, for example a panic.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<T>>> {
        let Self::Running(job) = self else {
            return Poll::Ready(Ok(None));
        };
        let ended = ready!(Pin::new(job).poll(cx));
        *self = Self::default();
        let (output, buf) = ended?;
        *self = Self::Idle(buf);
        Poll::Ready(Ok(Some(output)))
    }

    /// Returns the buffer while there is no operation.
    pub(crate) fn idle(&mut self) -> Option<&mut Buf> {
        match self {
            Self::Idle(buf) => Some(buf),
            Self::Running(_) => None,
        }
    }

    /// Takes the buffer to [`start`](Job::start) the next operation.
    ///
    /// # Panics
    ///
    /// Panics if there is an operation.
    pub(crate) fn take(&mut self) -> Buf {
        std::mem::take(self.idle().expect("no operation runs"))
    }
}
