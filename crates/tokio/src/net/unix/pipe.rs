//! Pipes, also those that have a name.

use std::{
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
    pin::Pin,
    task::{Context, Poll, ready},
};

use real::io::{AsyncRead, AsyncWrite, ReadBuf};
use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::{PipeFlags, pipe_with},
};
use tourbillon::io::{AsyncFd, Interest, Ready};

/// Creates a pipe.
///
/// # Errors
///
/// Fails with the operating system's error.
#[track_caller]
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    Ok((Sender::watch(write.into())?, Receiver::watch(read.into())?))
}

/// The options for opening a pipe that has a name.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    reads_and_writes: bool,
    is_unchecked: bool,
}

impl OpenOptions {
    /// Creates options that are all off.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether each end is opened for reading and writing. The pipe then has another end from
    /// the beginning.
    pub fn read_write(&mut self, value: bool) -> &mut Self {
        self.reads_and_writes = value;
        self
    }

    /// Sets whether any file is opened as if it were a pipe.
    pub fn unchecked(&mut self, value: bool) -> &mut Self {
        self.is_unchecked = value;
        self
    }

    /// Opens the end that reads.
    ///
    /// # Errors
    ///
    /// Fails if it is no pipe, or with the operating system's error.
    #[track_caller]
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        Receiver::watch(self.open(path.as_ref(), true)?)
    }

    /// Opens the end that writes. There must be one that reads.
    ///
    /// # Errors
    ///
    /// Fails if it is no pipe, or with the operating system's error: `ENXIO`
    /// if nothing reads.
    #[track_caller]
    pub fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        Sender::watch(self.open(path.as_ref(), false)?)
    }

    fn open(&self, path: &Path, reads: bool) -> io::Result<File> {
        let file = File::options()
            .read(reads || self.reads_and_writes)
            .write(!reads || self.reads_and_writes)
            .custom_flags(OFlags::NONBLOCK.bits() as i32)
            .open(path)?;
        if !self.is_unchecked {
            check_pipe(&file)?;
        }
        Ok(file)
    }
}

fn check_pipe(file: &File) -> io::Result<()> {
    if file.metadata()?.file_type().is_fifo() {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        "the descriptor is not that of a pipe",
    ))
}

/// Returns an error unless the descriptor was opened in one of `modes`.
fn check_mode(file: &File, modes: [OFlags; 2], error: &'static str) -> io::Result<()> {
    if modes.contains(&(fcntl_getfl(file)? & OFlags::RWMODE)) {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn set_nonblocking(file: &File, nonblocking: bool) -> io::Result<()> {
    let mut flags = fcntl_getfl(file)?;
    flags.set(OFlags::NONBLOCK, nonblocking);
    Ok(fcntl_setfl(file, flags)?)
}

/// Defines an end of a pipe.
macro_rules! ends {
    ($(#[$doc:meta])* $End:ident, $Interest:ident, [$($Mode:ident),*], $wrong_mode:literal) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $End(AsyncFd<File>);

        impl $End {
            /// Wraps a nonblocking descriptor.
            #[track_caller]
            fn watch(file: File) -> io::Result<Self> {
                crate::context::need_io();
                AsyncFd::with_interest(file, Interest::$Interest).map(Self)
            }

            /// Wraps a pipe, and makes it nonblocking.
            ///
            /// # Errors
            ///
            /// Fails if the file is no pipe, if it was opened for the other
            /// direction only, or with the operating system's error.
            #[track_caller]
            pub fn from_file(file: File) -> io::Result<Self> {
                check_pipe(&file)?;
                check_mode(&file, [$(OFlags::$Mode),*], $wrong_mode)?;
                set_nonblocking(&file, true)?;
                Self::watch(file)
            }

            /// Wraps a pipe, and makes it nonblocking. See [`from_file`](Self::from_file).
            ///
            /// # Errors
            ///
            /// See [`from_file`](Self::from_file).
            #[track_caller]
            pub fn from_owned_fd(descriptor: OwnedFd) -> io::Result<Self> {
                Self::from_file(descriptor.into())
            }

            /// Wraps a file that must be a nonblocking pipe of this direction.
            ///
            /// # Errors
            ///
            /// Fails with the operating system's error.
            #[track_caller]
            pub fn from_file_unchecked(file: File) -> io::Result<Self> {
                Self::watch(file)
            }

            /// Wraps a descriptor that must be a nonblocking pipe of this direction.
            ///
            /// # Errors
            ///
            /// Fails with the operating system's error.
            #[track_caller]
            pub fn from_owned_fd_unchecked(descriptor: OwnedFd) -> io::Result<Self> {
                Self::watch(descriptor.into())
            }

            /// Waits until the pipe seems ready in a direction of `interest`.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if `interest` has the other direction.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                let mut guard = self.0.ready(interest).await?;
                guard.retain_ready();
                Ok(guard.ready())
            }

            /// Calls `f` once, which must return `WouldBlock` only if the pipe is not ready.
            ///
            /// # Errors
            ///
            /// Returns the error of `f`.
            pub fn try_io<R>(&self, f: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
                self.0.try_io(Interest::$Interest, |_| f())
            }

            /// Returns the descriptor, which is blocking from now on.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
                let file = self.0.into_inner();
                set_nonblocking(&file, false)?;
                Ok(file.into())
            }

            /// Returns the descriptor, which stays nonblocking.
            ///
            /// # Errors
            ///
            /// None. The signature follows tokio.
            pub fn into_nonblocking_fd(self) -> io::Result<OwnedFd> {
                Ok(self.0.into_inner().into())
            }
        }

        impl AsFd for $End {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.get_ref().as_fd()
            }
        }

        impl AsRawFd for $End {
            fn as_raw_fd(&self) -> RawFd {
                self.0.get_ref().as_raw_fd()
            }
        }
    };
}

ends! {
    /// The end of a pipe that writes.
    Sender, WRITABLE, [WRONLY, RDWR], "the pipe was opened for reading only"
}
ends! {
    /// The end of a pipe that reads.
    Receiver, READABLE, [RDONLY, RDWR], "the pipe was opened for writing only"
}

impl Sender {
    /// Waits until the pipe has room, or the other end is closed.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down.
    pub async fn writable(&self) -> io::Result<()> {
        self.ready(Interest::WRITABLE).await.map(drop)
    }

    /// Polls for room. Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down.
    pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_write_ready(cx).map_ok(drop)
    }

    /// Writes without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room, otherwise the operating system's error.
    pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
        self.0
            .try_io(Interest::WRITABLE, |mut file| file.write(buf))
    }

    /// Writes from several buffers without waiting.
    ///
    /// # Errors
    ///
    /// See [`try_write`](Sender::try_write).
    pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0
            .try_io(Interest::WRITABLE, |mut file| file.write_vectored(bufs))
    }

    /// Calls `write` when there is room, until it does not return `WouldBlock`.
    fn poll_with(
        &self,
        cx: &mut Context<'_>,
        write: impl Fn(&File) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.poll_write_ready(cx))?;
            if let Ok(written) = guard.try_io(|end| write(end.get_ref())) {
                return Poll::Ready(written);
            }
        }
    }
}

impl AsyncWrite for Sender {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |mut file| file.write(buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(cx, |mut file| file.write_vectored(bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Receiver {
    /// Waits until the pipe has data, or the other end is closed.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down.
    pub async fn readable(&self) -> io::Result<()> {
        self.ready(Interest::READABLE).await.map(drop)
    }

    /// Polls for data. Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down.
    pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_read_ready(cx).map_ok(drop)
    }

    /// Reads without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no data, otherwise the operating system's error.
    pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |mut file| file.read(buf))
    }

    /// Reads into several buffers without waiting.
    ///
    /// # Errors
    ///
    /// See [`try_read`](Receiver::try_read).
    pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0
            .try_io(Interest::READABLE, |mut file| file.read_vectored(bufs))
    }

    /// Reads into the unused room of `buf` without waiting, and advances `buf`.
    ///
    /// # Errors
    ///
    /// See [`try_read`](Receiver::try_read).
    pub fn try_read_buf<B: buffers::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
        self.0.try_io(Interest::READABLE, |file| {
            // SAFETY: the system call writes no uninitialized bytes.
            let room = unsafe { buf.chunk_mut().as_uninit_slice_mut() };
            let (read, _) = rustix::io::read(file, room)?;
            let n = read.len();
            // SAFETY: the call has initialized the first `n` bytes of this room.
            unsafe { buf.advance_mut(n) };
            Ok(n)
        })
    }
}

impl AsyncRead for Receiver {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.poll_read_ready(cx))?;
            let room = buf.initialize_unfilled();
            if let Ok(read) = guard.try_io(|end| end.get_ref().read(room)) {
                buf.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}
