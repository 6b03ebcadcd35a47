//! The two halves of a connection.

/// For a connection that [`connection`](super::connection) was said of.
macro_rules! halves {
    ($Stream:ident, $Addr:ty) => {
        #[doc = concat!("The half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), ") that reads.")]
        #[derive(Debug)]
        pub struct OwnedReadHalf(Arc<$Stream>);

        #[doc = concat!("The half of a [`", stringify!($Stream), "`](crate::net::", stringify!($Stream), ") that writes. Dropping it sends the end of the stream.")]
        #[derive(Debug)]
        pub struct OwnedWriteHalf {
            stream: Arc<$Stream>,
            shutdown_on_drop: bool,
        }

        impl OwnedReadHalf {
            pub(super) fn new(stream: Arc<$Stream>) -> Self {
                Self(stream)
            }

            /// Puts the halves together again, as does [`OwnedWriteHalf::reunite`].
            ///
            /// # Errors
            ///
            /// If they are not of one connection.
            pub fn reunite(self, write: OwnedWriteHalf) -> Result<$Stream, ReuniteError> {
                if !Arc::ptr_eq(&self.0, &write.stream) {
                    return Err(ReuniteError(self, write));
                }
                write.forget();
                Ok(Arc::into_inner(self.0).expect("there are two halves, and one was given up"))
            }

            /// The other end's address.
            ///
            /// # Errors
            ///
            /// What the system says.
            pub fn peer_addr(&self) -> io::Result<$Addr> {
                self.0.peer_addr()
            }

            /// This end's address.
            ///
            /// # Errors
            ///
            /// What the system says.
            pub fn local_addr(&self) -> io::Result<$Addr> {
                self.0.local_addr()
            }

            /// Waits until there is something to read, or the end, or an error.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub async fn readable(&self) -> io::Result<()> {
                self.0.readable().await
            }

            /// Waits until the connection seems ready for some of what is of interest.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.0.ready(interest).await
            }

            /// How long a read may wait.
            ///
            /// # Errors
            ///
            /// None; as the standard library has it.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                self.0.read_timeout()
            }

            #[doc = concat!("Sets how long a read may wait: see [`", stringify!($Stream), "::set_read_timeout`](crate::net::", stringify!($Stream), "::set_read_timeout).")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is zero.
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_read_timeout(timeout)
            }

            /// Reads what is there, without waiting. No bytes are the end.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if nothing is there, and else what the system says.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_read(buf)
            }

            /// As [`try_read`](Self::try_read), into several buffers.
            ///
            /// # Errors
            ///
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0.try_read_vectored(bufs)
            }
        }

        impl OwnedWriteHalf {
            pub(super) fn new(stream: Arc<$Stream>) -> Self {
                Self {
                    stream,
                    shutdown_on_drop: true,
                }
            }

            /// Puts the halves together again, as does [`OwnedReadHalf::reunite`].
            ///
            /// # Errors
            ///
            /// If they are not of one connection.
            pub fn reunite(self, read: OwnedReadHalf) -> Result<$Stream, ReuniteError> {
                read.reunite(self)
            }

            /// Drops the half without sending the end of the stream.
            pub fn forget(mut self) {
                self.shutdown_on_drop = false;
            }

            /// The other end's address.
            ///
            /// # Errors
            ///
            /// What the system says.
            pub fn peer_addr(&self) -> io::Result<$Addr> {
                self.stream.peer_addr()
            }

            /// This end's address.
            ///
            /// # Errors
            ///
            /// What the system says.
            pub fn local_addr(&self) -> io::Result<$Addr> {
                self.stream.local_addr()
            }

            /// Waits until there is room to write, or an error.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub async fn writable(&self) -> io::Result<()> {
                self.stream.writable().await
            }

            /// Waits until the connection seems ready for some of what is of interest.
            ///
            /// # Errors
            ///
            /// If the runtime is shut down.
            pub async fn ready(&self, interest: Interest) -> io::Result<Ready> {
                self.stream.ready(interest).await
            }

            /// How long a write may wait.
            ///
            /// # Errors
            ///
            /// None; as the standard library has it.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                self.stream.write_timeout()
            }

            #[doc = concat!("Sets how long a write may wait: see [`", stringify!($Stream), "::set_write_timeout`](crate::net::", stringify!($Stream), "::set_write_timeout).")]
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.stream.set_write_timeout(timeout)
            }

            /// Writes as much as there is room for, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, and else what the system says.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.stream.try_write(buf)
            }

            /// As [`try_write`](Self::try_write), from several buffers.
            ///
            /// # Errors
            ///
            /// As for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.stream.try_write_vectored(bufs)
            }
        }

        impl Drop for OwnedWriteHalf {
            fn drop(&mut self) {
                if self.shutdown_on_drop {
                    // The peer may be gone already.
                    let _ = self.stream.shutdown(Shutdown::Write);
                }
            }
        }

        impl crate::io::Source for OwnedReadHalf {}

        impl crate::io::source::sealed::Sealed for OwnedReadHalf {
            fn watched(
                &self,
                interest: Interest,
            ) -> io::Result<crate::io::source::sealed::Watched<'_>> {
                self.0.watched(interest)
            }
        }

        impl AsyncRead for OwnedReadHalf {
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

        impl crate::io::Source for OwnedWriteHalf {}

        impl crate::io::source::sealed::Sealed for OwnedWriteHalf {
            fn watched(
                &self,
                interest: Interest,
            ) -> io::Result<crate::io::source::sealed::Watched<'_>> {
                self.stream.watched(interest)
            }
        }

        impl AsyncWrite for OwnedWriteHalf {
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
                self.shutdown_on_drop = false;
                Pin::new(&mut &*self.stream).poll_close(cx)
            }
        }

        /// Two halves that are not of one connection; they are given back.
        #[derive(Debug)]
        pub struct ReuniteError(
            /// The half that reads.
            pub OwnedReadHalf,
            /// The half that writes.
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
