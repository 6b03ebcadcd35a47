//! The halves of a stream.

/// Defines the halves of a stream that has the methods of [`connection`](super::connection).
macro_rules! halves {
    ($Stream:ident, $Addr:ty) => {
        #[doc = concat!("The read half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), ").")]
        #[derive(Debug)]
        pub struct OwnedReadHalf(Arc<$Stream>);

        #[doc = concat!("The write half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), "). Dropping it shuts down the write direction.")]
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: Arc<$Stream>,
            shutdown_on_drop: bool,
        }

        impl OwnedReadHalf {
            pub(super) fn new(stream: Arc<$Stream>) -> Self {
                Self(stream)
            }

            /// Reunites the halves into the stream. See also [`OwnedWriteHalf::reunite`].
            ///
            /// # Errors
            ///
            /// Fails if the halves belong to different connections.
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$Stream, ReuniteError> {
                if !Arc::ptr_eq(&self.0, &write.stream) {
                    return Err(ReuniteError(self, write));
                }
                // This drops the other reference, without a shutdown of the write direction.
                write.forget();
                Ok(Arc::into_inner(self.0).expect("`forget` dropped the only other reference"))
            }
        }

        impl OwnedWriteHalf {
            pub(super) fn new(stream: Arc<$Stream>) -> Self {
                Self {
                    stream,
                    shutdown_on_drop: true,
                }
            }

            /// Reunites the halves into the stream. See also [`OwnedReadHalf::reunite`].
            ///
            /// # Errors
            ///
            /// Fails if the halves belong to different connections.
            pub fn reunite(self, read: OwnedReadHalf) -> Result<$Stream, ReuniteError> {
                read.reunite(self)
            }

            /// Drops the half without shutting down the write direction.
            pub fn forget(mut self) {
                self.shutdown_on_drop = false;
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shutdown_on_drop {
                    // Fails if the peer has closed the connection already. There is nothing left to
                    // do then.
                    let _ = self.stream.shutdown_now(Shutdown::Write);
                }
            }
        }

        #[doc = concat!("The borrowed read half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), "), from `split`.")]
        #[derive(Debug)]
        pub struct ReadHalf<'a>(pub(super) &'a $Stream);

        #[doc = concat!("The borrowed write half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), "), from `split`.")]
        ///
        /// Dropping it does not shut down the write direction. Closing it through the trait does.
        #[derive(Debug)]
        pub struct WriteHalf<'a> {
            pub(super) stream: &'a $Stream,
        }

        $crate::net::split::read_half!($Stream, $Addr, OwnedReadHalf);
        $crate::net::split::read_half!($Stream, $Addr, ReadHalf<'_>);
        $crate::net::split::write_half!($Stream, $Addr, OwnedWriteHalf, |half| {
            half.shutdown_on_drop = false;
        });
        $crate::net::split::write_half!($Stream, $Addr, WriteHalf<'_>, |_| {});

        /// The error of `reunite`: the halves belong to different connections. It returns both
        /// halves.
        #[derive(Debug)]
        pub struct ReuniteError(
            /// The read half.
            pub OwnedReadHalf,
            /// The write half.
            pub OwnedWriteHalf,
        );

        impl fmt::Display for ReuniteError {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the halves are not of one connection")
            }
        }

        impl Error for ReuniteError {}
    };
}
pub(super) use halves;

/// Implements the methods and traits of a half, whose field `$stream` leads to the stream.
macro_rules! half {
    ($Stream:ident, $Addr:ty, $Half:ty, $stream:tt) => {
        impl $Half {
            /// Returns the peer's address.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn peer_addr(&self) -> io::Result<$Addr> {
                self.$stream.peer_addr()
            }

            /// Returns the local address.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn local_addr(&self) -> io::Result<$Addr> {
                self.$stream.local_addr()
            }

            /// Waits until the stream seems ready in at least one direction of `interest`.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.$stream.ready(interest).await
            }
        }

        impl crate::io::Source for $Half {}

        impl crate::io::source::sealed::Sealed for $Half {
            fn watched(
                &self,
                interest: Interest,
            ) -> io::Result<crate::io::source::sealed::Watched<'_>> {
                self.$stream.watched(interest)
            }
        }

        impl AsRef<$Stream> for $Half {
            fn as_ref(&self) -> &$Stream {
                &self.$stream
            }
        }
    };
}
pub(super) use half;

/// Implements the methods and traits of a read half, owned or borrowed.
macro_rules! read_half {
    ($Stream:ident, $Addr:ty, $Half:ty) => {
        $crate::net::split::half!($Stream, $Addr, $Half, 0);

        impl $Half {
            /// Waits until the stream has data, reaches its end, or has an error.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            pub async fn readable(&self) -> io::Result<()> {
                self.0.readable().await
            }

            /// Returns the limit on how long a read may wait.
            ///
            /// # Errors
            ///
            /// None. The signature follows the standard library.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.read_timeout()
            }

            #[doc = concat!("Sets a limit on how long a read may wait. See [`", stringify!($Stream), "::set_read_timeout`](crate::net::", stringify!($Stream), "::set_read_timeout).")]
            ///
            /// # Errors
            ///
            /// Returns `InvalidInput` if `timeout` is zero.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_read_timeout(timeout)
            }

            /// Reads available data without waiting. Returns 0 at the end of the stream.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no data, otherwise the operating system's error.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_read(buf)
            }

            /// Reads available data into several buffers without waiting. See
            /// [`try_read`](Self::try_read).
            ///
            /// # Errors
            ///
            /// See [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.try_read_vectored(bufs)
            }

            /// Reads available data into the unused room of `buf`, which need not be initialized,
            /// and advances `buf`. See [`try_read`](Self::try_read).
            ///
            /// # Errors
            ///
            /// See [`try_read`](Self::try_read).
            #[cfg(feature = "bytes")]
            #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
            pub fn try_read_buf<B: bytes::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
                self.0.try_read_buf(buf)
            }

            /// Reads into memory that may be uninitialized. Returns the number of bytes it
            /// initialized.
            #[cfg(feature = "tokio-io")]
            pub(crate) fn poll_read_uninit(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll_read_uninit(cx, buf)
            }
        }

        impl AsyncRead for $Half {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.0).poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.0).poll_read_vectored(cx, bufs)
            }
        }
    };
}
pub(super) use read_half;

/// Implements the methods and traits of a write half, owned or borrowed. Closing the half first
/// calls `$closing`.
macro_rules! write_half {
    ($Stream:ident, $Addr:ty, $Half:ty, $closing:expr) => {
        $crate::net::split::half!($Stream, $Addr, $Half, stream);

        impl $Half {
            /// Waits until the stream has room to write, or has an error.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream.writable().await
            }

            /// Returns the limit on how long a write may wait.
            ///
            /// # Errors
            ///
            /// None. The signature follows the standard library.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.stream.write_timeout()
            }

            #[doc = concat!("Sets a limit on how long a write may wait. See [`", stringify!($Stream), "::set_write_timeout`](crate::net::", stringify!($Stream), "::set_write_timeout).")]
            ///
            /// # Errors
            ///
            /// Returns `InvalidInput` if `timeout` is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.stream.set_write_timeout(timeout)
            }

            /// Writes as much as the socket accepts without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, otherwise the operating system's error.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.stream.try_write(buf)
            }

            /// Writes from several buffers without waiting. See [`try_write`](Self::try_write).
            ///
            /// # Errors
            ///
            /// See [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream.try_write_vectored(bufs)
            }
        }

        impl AsyncWrite for $Half {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.stream).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self.stream).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut &*self.stream).poll_flush(cx)
            }

            fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let closing: fn(&mut Self) = $closing;
                closing(&mut self);
                Pin::new(&mut &*self.stream).poll_close(cx)
            }
        }
    };
}
pub(super) use write_half;
