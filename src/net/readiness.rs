//! What all sockets have: readiness, operations of others, and the descriptor.

/// For a socket that is a registration of the standard library's.
macro_rules! socket {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            pub(super) fn new(socket: $Std) -> io::Result<Self> {
                Registration::new(socket).map(Self)
            }

            /// Takes over a socket of the standard library. It is made non-blocking.
            ///
            /// # Errors
            ///
            /// If there is no runtime, or the system will not watch it.
            pub fn from_std(socket: $Std) -> io::Result<Self> {
                socket.set_nonblocking(true)?;
                Self::new(socket)
            }

            /// Gives the socket back, still non-blocking.
            ///
            /// # Errors
            ///
            /// None; as tokio has it.
            pub fn into_std(self) -> io::Result<$Std> {
                Ok(self.0.into_inner())
            }

            /// The error that the socket has met and that nobody was told, if there is one; it is told
            /// once.
            ///
            /// # Errors
            ///
            /// What the system says.
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

/// For a socket that data passes through, of which two methods poll for the directions.
macro_rules! readiness {
    ($Socket:ident, $poll_read:ident, $poll_write:ident, $try_read:ident, $try_write:ident) => {
        impl $Socket {
            /// Waits until the socket seems ready for some of what is of interest. It stays so until an
            /// operation finds that it is not. Any number of tasks may wait.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
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

            /// Waits until there is something to read, or the end, or an error.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
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

            /// Waits until there is room to write, or an error.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
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

            /// As [`readable`](Self::readable), for those who write futures by hand. One task at a time:
            /// the last to ask is woken.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub fn $poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_ready(cx, Direction::Read).map_ok(drop)
            }

            /// As [`writable`](Self::writable), for those who write futures by hand. One task at a time:
            /// the last to ask is woken.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub fn $poll_write(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_ready(cx, Direction::Write).map_ok(drop)
            }

            /// Tries an operation on the socket once, such as one that only another crate has, without
            /// waiting. If it answers `WouldBlock`, who waits next waits for an event.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down, and those of the operation, which must not answer
            /// `WouldBlock` for any other reason than that the socket is not ready.
            pub fn try_io<R>(
                &self,
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R> {
                self.0.try_once(interest.0, |_| operation())
            }

            /// Tries an operation on the socket when it seems ready, and waits when it answers
            /// `WouldBlock`.
            ///
            /// # Errors
            ///
            /// As for [`try_io`](Self::try_io).
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
