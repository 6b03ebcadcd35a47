//! What streams have in common.

/// Makes a type dereference to what it wraps.
macro_rules! derefs {
    ($([$($lifetime:tt)*] $Outer:ty => $Inner:ty;)*) => {$(
        impl $($lifetime)* std::ops::Deref for $Outer {
            type Target = $Inner;

            fn deref(&self) -> &$Inner {
                &self.0
            }
        }
    )*};
}

/// Implements `AsyncRead` for wrappers of what implements futures-io's trait.
macro_rules! reads {
    ($($Outer:ty),*) => {$(
        impl real::io::AsyncRead for $Outer {
            fn poll_read(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut real::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let room = buf.initialize_unfilled();
                let stream = Pin::new(&mut self.0);
                let read = ready!(futures_io::AsyncRead::poll_read(stream, cx, room))?;
                buf.advance(read);
                Poll::Ready(Ok(()))
            }
        }
    )*};
}

/// Implements `AsyncWrite` for wrappers of what implements futures-io's trait.
macro_rules! writes {
    ($($Outer:ty),*) => {$(
        impl real::io::AsyncWrite for $Outer {
            fn poll_write(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write(Pin::new(&mut self.0), cx, buf)
            }

            fn poll_flush(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                futures_io::AsyncWrite::poll_flush(Pin::new(&mut self.0), cx)
            }

            fn poll_shutdown(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<()>> {
                let closed =
                    ready!(futures_io::AsyncWrite::poll_close(Pin::new(&mut self.0), cx));
                Poll::Ready(match closed {
                    // The peer is gone already. tokio's streams do not report this as an error.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    closed => closed,
                })
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_write_vectored(
                mut self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                futures_io::AsyncWrite::poll_write_vectored(Pin::new(&mut self.0), cx, bufs)
            }
        }
    )*};
}

/// Implements the conversions of a socket, and the traits for its descriptor.
macro_rules! socket {
    ($Socket:ident, $Std:ty) => {
        impl $Socket {
            /// Wraps a socket of the standard library, which must be nonblocking.
            ///
            /// # Errors
            ///
            /// Fails outside of a runtime, or with the operating system's error.
            pub fn from_std(socket: $Std) -> io::Result<Self> {
                Inner::$Socket::from_std(socket).map(Self)
            }

            /// Returns the socket of the standard library, which stays nonblocking.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn into_std(self) -> io::Result<$Std> {
                self.0.into_std()
            }
        }

        impl TryFrom<$Std> for $Socket {
            type Error = io::Error;

            fn try_from(socket: $Std) -> io::Result<Self> {
                Self::from_std(socket)
            }
        }

        crate::net::stream::descriptor!($Socket);
    };
}

/// Implements the traits for the descriptor of a socket.
macro_rules! descriptor {
    ($Socket:ident) => {
        impl std::os::fd::AsFd for $Socket {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl std::os::fd::AsRawFd for $Socket {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.as_raw_fd()
            }
        }
    };
}

/// Defines a stream and its halves. `$inner` is the module of Tourbillon's halves.
macro_rules! stream {
    ($Stream:ident, $Std:ty, $inner:path) => {
        use std::{
            io::{self, IoSlice},
            pin::Pin,
            task::{Context, Poll, ready},
        };

        use tourbillon::net as Inner;
        use $inner as halves;

        /// A connection.
        #[derive(Debug)]
        pub struct $Stream(Inner::$Stream);

        /// The owned read half of a connection.
        #[derive(Debug)]
        pub struct OwnedReadHalf(halves::OwnedReadHalf);

        /// The owned write half of a connection. Dropping it shuts down the write direction.
        #[derive(Debug)]
        pub struct OwnedWriteHalf(halves::OwnedWriteHalf);

        /// The borrowed read half of a connection.
        #[derive(Debug)]
        pub struct ReadHalf<'a>(halves::ReadHalf<'a>);

        /// The borrowed write half of a connection.
        #[derive(Debug)]
        pub struct WriteHalf<'a>(halves::WriteHalf<'a>);

        /// The halves belong to different connections. It has both.
        #[derive(Debug)]
        pub struct ReuniteError(pub OwnedReadHalf, pub OwnedWriteHalf);

        impl std::fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("the halves belong to different connections")
            }
        }

        impl std::error::Error for ReuniteError {}

        impl $Stream {
            /// Splits the connection into two borrowed halves.
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                let (read, write) = self.0.split();
                (ReadHalf(read), WriteHalf(write))
            }

            /// Splits the connection into two owned halves, which different tasks may use.
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let (read, write) = self.0.into_split();
                (OwnedReadHalf(read), OwnedWriteHalf(write))
            }
        }

        // A trait's method of an equal name for this type would come before a method of the wrapped
        // type. sqlx has one that calls the socket's method by its name.
        impl $Stream {
            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns [`WouldBlock`](io::ErrorKind::WouldBlock) if nothing has arrived, or the
            /// operating system's error.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_read(buf)
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns [`WouldBlock`](io::ErrorKind::WouldBlock) if there is no room, or the
            /// operating system's error.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.0.try_write(buf)
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn poll_read_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_read_ready(cx)
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                self.0.poll_write_ready(cx)
            }
        }

        impl OwnedReadHalf {
            /// Reunites the halves into the connection.
            ///
            /// # Errors
            ///
            /// Fails if the halves belong to different connections.
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$Stream, ReuniteError> {
                match self.0.reunite(write.0) {
                    Ok(stream) => Ok($Stream(stream)),
                    Err(error) => Err(ReuniteError(
                        OwnedReadHalf(error.0),
                        OwnedWriteHalf(error.1),
                    )),
                }
            }
        }

        impl OwnedWriteHalf {
            /// Reunites the halves into the connection.
            ///
            /// # Errors
            ///
            /// Fails if the halves belong to different connections.
            pub fn reunite(self, read: OwnedReadHalf) -> Result<$Stream, ReuniteError> {
                read.reunite(self)
            }

            /// Drops this half without a shutdown of the write direction.
            pub fn forget(self) {
                self.0.forget();
            }
        }

        crate::net::stream::socket!($Stream, $Std);
        crate::net::stream::derefs! {
            [] $Stream => Inner::$Stream;
            [] OwnedReadHalf => halves::OwnedReadHalf;
            [] OwnedWriteHalf => halves::OwnedWriteHalf;
            [<'a>] ReadHalf<'a> => halves::ReadHalf<'a>;
            [<'a>] WriteHalf<'a> => halves::WriteHalf<'a>;
        }
        crate::net::stream::reads!($Stream, OwnedReadHalf, ReadHalf<'_>);
        crate::net::stream::writes!($Stream, OwnedWriteHalf, WriteHalf<'_>);
    };
}

pub(super) use {derefs, descriptor, socket, stream};
pub(crate) use {reads, writes};
