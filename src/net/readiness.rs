//! Methods and traits that every socket has: conversion, readiness, raw operations.

/// Implements the methods of a socket that is a
/// [`Registration`](crate::engine::registration::Registration) of a standard library socket.
macro_rules! socket {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            pub(super) fn new(socket: $Std) -> io::Result<Self> {
                Registration::new(socket).map(Self)
            }

            /// Converts a socket of the standard library, and makes it non-blocking.
            ///
            /// # Errors
            ///
            /// Fails if there is no runtime, or if epoll refuses to watch the socket.
            pub fn from_std(socket: $Std) -> io::Result<Self> {
                // A call that blocks would stop the worker, and all tasks on it.
                socket.set_nonblocking(true)?;
                Self::new(socket)
            }

            /// Converts back to a socket of the standard library, which stays non-blocking.
            ///
            /// # Errors
            ///
            /// None. The signature follows tokio.
            pub fn into_std(self) -> io::Result<$Std> {
                Ok(self.0.into_inner())
            }

            /// Returns the pending error of the socket (`SO_ERROR`) and clears it.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.0.get().take_error()
            }
        }

        impl TryFrom<$Std> for $Socket {
            type Error = io::Error;

            fn try_from(socket: $Std) -> io::Result<Self> {
                Self::from_std(socket)
            }
        }

        impl crate::io::Source for $Socket {}

        impl crate::io::source::sealed::Sealed for $Socket {
            fn watched(
                &self,
                _: crate::io::Interest,
            ) -> io::Result<crate::io::source::sealed::Watched<'_>> {
                Ok((&self.0).into())
            }
        }

        impl AsFd for $Socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.get().as_fd()
            }
        }

        impl AsRawFd for $Socket {
            fn as_raw_fd(&self) -> RawFd {
                self.0.get().as_raw_fd()
            }
        }
    };
}
pub(super) use socket;

/// Implements the conversions of a socket that is a [`Socket`](socket2::Socket), and not connected.
macro_rules! unconnected {
    ($Socket:ident) => {
        impl AsFd for $Socket {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $Socket {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_raw_fd()
            }
        }

        impl FromRawFd for $Socket {
            /// Converts a socket that is not connected yet. It becomes non-blocking when it
            /// connects, listens, or is converted.
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: the caller owns the descriptor, and passes it on.
                Self(unsafe { Socket::from_raw_fd(fd) })
            }
        }

        impl IntoRawFd for $Socket {
            fn into_raw_fd(self) -> RawFd {
                self.0.into_raw_fd()
            }
        }
    };
}
pub(super) use unconnected;

/// Implements waiting for readiness. `$poll_read` and `$poll_write` are the names of the two poll
/// methods.
macro_rules! readiness {
    ($Socket:ident, $poll_read:ident, $poll_write:ident, $try_read:ident, $try_write:ident) => {
        impl $Socket {
            /// Waits until the socket seems ready in at least one direction of `interest`.
            ///
            /// The socket counts as ready until an operation returns `WouldBlock`; an accepted
            /// connection does so from the start. Any number of tasks may wait.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            ///
            /// ```
            /// use tourbillon::io::Interest;
            ///
            #[doc = concat!("# async fn example(socket: tourbillon::net::", stringify!($Socket), ") -> std::io::Result<()> {")]
            /// let ready = socket.ready(Interest::READABLE | Interest::WRITABLE).await?;
            /// if ready.is_readable() {
            #[doc = concat!("    let read = socket.", stringify!($try_read), "(&mut [0; 100]); // may still be `WouldBlock`")]
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                let ready = self.0.ready(interest.0).await?;
                Ok(Ready::of(ready, interest))
            }

            /// Waits until the socket has data, reaches its end, or has an error.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            ///
            /// ```
            /// use std::io::ErrorKind;
            ///
            #[doc = concat!("# async fn example(socket: tourbillon::net::", stringify!($Socket), ") -> std::io::Result<()> {")]
            /// let mut buf = [0; 100];
            /// let n = loop {
            ///     socket.readable().await?;
            #[doc = concat!("    match socket.", stringify!($try_read), "(&mut buf) {")]
            ///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ///         result => break result?,
            ///     }
            /// };
            /// # Ok(())
            /// # }
            /// ```
            pub async fn readable(&self) -> io::Result<()> {
                self.0.ready(Direction::Read).await.map(drop)
            }

            /// Waits until the socket has room to write, or has an error.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            ///
            /// ```
            /// use std::io::ErrorKind;
            ///
            #[doc = concat!("# async fn example(socket: tourbillon::net::", stringify!($Socket), ") -> std::io::Result<()> {")]
            /// let n = loop {
            ///     socket.writable().await?;
            #[doc = concat!("    match socket.", stringify!($try_write), "(b\"hello\") {")]
            ///         Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            ///         result => break result?,
            ///     }
            /// };
            /// # Ok(())
            /// # }
            /// ```
            pub async fn writable(&self) -> io::Result<()> {
                self.0.ready(Direction::Write).await.map(drop)
            }

            /// Attempts [`readable`](Self::readable) from a `poll` function.
            /// Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            pub fn $poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_ready(cx, Direction::Read).map_ok(drop)
            }

            /// Attempts [`writable`](Self::writable) from a `poll` function.
            /// Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            pub fn $poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_ready(cx, Direction::Write).map_ok(drop)
            }

            /// Tries an operation on the socket once, without waiting.
            ///
            /// This allows operations that this type does not offer. If `operation` returns
            /// `WouldBlock`, the next task that waits for readiness waits for a new event.
            ///
            /// # Errors
            ///
            /// Returns the error of `operation`, or an error if the runtime is shut down.
            /// `operation` must return `WouldBlock` only if the socket is not ready.
            pub fn try_io<R>(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.0.try_once(interest.0, |_| operation())
            }

            /// Runs `operation` when the socket seems ready, and waits again each time it returns
            /// `WouldBlock`. If it returns `Interrupted`, it runs again at once; tokio's returns
            /// this error.
            ///
            /// # Errors
            ///
            /// See [`try_io`](Self::try_io).
            pub async fn async_io<R>(
                &self,
                interest: Interest,
                mut operation: impl FnMut() -> io::Result<R>,
            ) -> io::Result<R> {
                self.0.io(interest.0, |_| operation()).await
            }
        }
    };
}
pub(super) use readiness;
