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

/// Implements `AsyncRead` for a stream and its halves, of which each refers to the stream.
macro_rules! reads {
    ($Stream:ident: $($Outer:ty),*) => {$(
        impl real::io::AsyncRead for $Outer {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut real::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let stream: &Inner::$Stream = self.0.as_ref();
                // SAFETY: `poll_read_uninit` only writes initialized bytes into `room`, so no byte
                // of the buffer that was initialized becomes uninitialized.
                let room = unsafe { buf.unfilled_mut() };
                let read = ready!(stream.poll_read_uninit(cx, room))?;
                // SAFETY: `poll_read_uninit` promises that the first `read` bytes are initialized.
                unsafe { buf.assume_init(read) };
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
            /// Returns the operating system's error.
            ///
            /// # Panics
            ///
            /// Panics outside of a runtime, and in one without sockets.
            #[track_caller]
            pub fn from_std(socket: $Std) -> io::Result<Self> {
                crate::context::need_io();
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

/// Implements the traits that take and return the descriptor of a socket that is not yet connected.
macro_rules! raw {
    ($Socket:ident) => {
        impl std::os::fd::FromRawFd for $Socket {
            unsafe fn from_raw_fd(descriptor: std::os::fd::RawFd) -> Self {
                // SAFETY: the caller owns the descriptor, and passes it on.
                Self(unsafe { Inner::$Socket::from_raw_fd(descriptor) })
            }
        }

        impl std::os::fd::IntoRawFd for $Socket {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                self.0.into_raw_fd()
            }
        }
    };
}

/// Defines the old names of two options.
macro_rules! tos {
    ($Socket:ident) => {
        impl $Socket {
            /// The old name of [`tos_v4`](Self::tos_v4).
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            #[deprecated(note = "use `tos_v4` instead")]
            pub fn tos(&self) -> std::io::Result<u32> {
                self.tos_v4()
            }

            /// The old name of [`set_tos_v4`](Self::set_tos_v4).
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            #[deprecated(note = "use `set_tos_v4` instead")]
            pub fn set_tos(&self, tos: u32) -> std::io::Result<()> {
                self.set_tos_v4(tos)
            }
        }
    };
}

/// Defines the methods for reading of a stream or a half.
macro_rules! reading {
    ($([$($params:tt)*] $Outer:ty;)*) => {$(
        crate::forward::forward! {
            [$($params)*] $Outer:
            fn try_read(buf: &mut [u8]) -> io::Result<usize>;
            fn try_read_buf<B: buffers::BufMut>(buf: &mut B) -> io::Result<usize>;
            fn try_read_vectored(bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize>;
            async {
                fn readable() -> io::Result<()>;
            }
        }
    )*};
}

/// Defines the methods for writing of a stream or a half.
macro_rules! writing {
    ($([$($params:tt)*] $Outer:ty;)*) => {$(
        crate::forward::forward! {
            [$($params)*] $Outer:
            fn try_write(buf: &[u8]) -> io::Result<usize>;
            fn try_write_vectored(bufs: &[IoSlice<'_>]) -> io::Result<usize>;
            async {
                fn writable() -> io::Result<()>;
            }
        }
    )*};
}

/// Defines the other methods that a stream `$Stream` and its halves have.
macro_rules! either {
    ($Stream:ident, $Addr:ty: $([$($params:tt)*] $Outer:ty;)*) => {$(
        crate::forward::forward! {
            [$($params)*] $Outer:
            async {
                fn ready(interest: Interest) -> io::Result<Ready>;
            }
        }
        crate::forward::forward_addrs! { [$($params)*] $Outer, $Addr: local_addr, peer_addr }

        impl<$($params)*> AsRef<$Stream> for $Outer {
            fn as_ref(&self) -> &$Stream {
                let inner: &Inner::$Stream = self.0.as_ref();
                // SAFETY: the stream is a transparent wrapper of this type, so both have one
                // layout.
                unsafe { &*std::ptr::from_ref(inner).cast() }
            }
        }
    )*};
}

/// Defines a stream and its halves. `$inner` is the module of Tourbillon's halves.
macro_rules! stream {
    ($Stream:ident, $Std:ty, $Addr:ty, $inner:path) => {
        use std::{
            io::{self, IoSlice, IoSliceMut},
            pin::Pin,
            task::{Context, Poll, ready},
        };

        use tourbillon::{
            io::{Interest, Ready},
            net as Inner,
        };
        use $inner as halves;

        /// A connection.
        #[derive(Debug)]
        #[repr(transparent)]
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

        crate::forward::forward! {
            [] $Stream:
            fn poll_read_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>;
            fn poll_write_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>;
            fn take_error() -> io::Result<Option<io::Error>>;
            fn try_io<R>(
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R>;
            async {
                fn async_io<R>(
                    interest: Interest,
                    operation: impl FnMut() -> io::Result<R>,
                ) -> io::Result<R>;
            }
        }
        crate::net::stream::reading! {
            [] $Stream;
            [] OwnedReadHalf;
            ['a] ReadHalf<'a>;
        }
        crate::net::stream::writing! {
            [] $Stream;
            [] OwnedWriteHalf;
            ['a] WriteHalf<'a>;
        }
        crate::net::stream::either! {
            $Stream, $Addr:
            [] $Stream;
            [] OwnedReadHalf;
            [] OwnedWriteHalf;
            ['a] ReadHalf<'a>;
            ['a] WriteHalf<'a>;
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
        crate::net::stream::reads!($Stream: $Stream, OwnedReadHalf, ReadHalf<'_>);
        crate::net::stream::writes!($Stream, OwnedWriteHalf, WriteHalf<'_>);
    };
}

pub(super) use {derefs, descriptor, either, raw, reading, socket, stream, tos, writing};
pub(crate) use {reads, writes};
