//! What all connections have: they are read and written, whole or in halves.

/// Whether an operation that moved `n` of `room` bytes used up what there was: epoll(7) says so of
/// streams, and the next operation then waits without asking in vain. (None at all is the end.)
pub(super) fn took_all(n: usize, room: usize) -> bool {
    n > 0 && n < room
}

/// For a connection that is a registration of the standard library's; the last says whether a read used
/// up what there was.
macro_rules! connection {
    ($Stream:ident, $Std:ty, $read_all:expr) => {
        impl $Stream {
            /// Splits the connection into two halves that different tasks may own.
            ///
            /// ```
            /// use futures_lite::{AsyncReadExt, AsyncWriteExt};
            ///
            #[doc = concat!("# async fn example(stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// let (mut read, mut write) = stream.into_split();
            /// tourbillon::spawn(async move {
            ///     write.write_all(b"request").await
            ///     // Dropping the half sends the end.
            /// });
            /// let mut reply = Vec::new();
            /// read.read_to_end(&mut reply).await?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
                let stream = Arc::new(self);
                (
                    OwnedReadHalf::new(stream.clone()),
                    OwnedWriteHalf::new(stream),
                )
            }

            /// Ends one direction, or both, at once: who waits to read finds the end.
            ///
            /// # Errors
            ///
            /// What the system says, such as that there is no connection any more.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.get().shutdown(how)
            }

            /// How long a read may wait: see [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            ///
            /// None; as the standard library has it.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Read))
            }

            /// How long a write may wait: see [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            ///
            /// None; as the standard library has it.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Write))
            }

            /// Sets how long a read may wait, in whichever way it is done: through the traits of futures-io or
            /// hyper, a half, or [`async_io`](Self::async_io). One that has found nothing for so long fails
            /// with `TimedOut`, and the stream can be used as before. By default, and with `None`, there is no
            /// limit, and one that is longer than time lasts is none. `try_` methods do not wait, and to wait
            /// for readiness alone takes as long as it takes.
            ///
            /// The time counts from when a read begins to wait. Reads by `poll_read`, which are all that go
            /// through traits, do not tell when they are given up (as by [`timeout`](crate::time::timeout) or a
            /// `select`): the next one goes on with that wait, and what is limited is how long nothing comes while
            /// somebody asks, in however many attempts. The wait ends with anything that is read, and if its time was
            /// over a second ago or longer and nobody asked since. To set a limit, the same or another, makes who waits,
            /// and who comes next, begin anew.
            ///
            /// There is one timer for the socket in each direction, armed by the first read that has to wait;
            /// each that follows moves it, if it has to wait itself: one atomic operation and no
            /// allocation, where `timeout` around each read arms and cancels a timer each time.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is zero.
            ///
            /// ```
            /// use std::{io::ErrorKind, time::Duration};
            /// use futures_lite::AsyncReadExt;
            ///
            #[doc = concat!("# async fn example(mut stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            /// let mut buf = [0; 1024];
            /// match stream.read(&mut buf).await {
            ///     Err(error) if error.kind() == ErrorKind::TimedOut => println!("idle for too long"),
            ///     read => println!("{} bytes", read?),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Read, timeout)
            }

            /// As [`set_read_timeout`](Self::set_read_timeout), for writes: how long one may wait for room.
            ///
            /// # Errors
            ///
            /// `InvalidInput` if it is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Write, timeout)
            }

            /// Reads what is there, without waiting. No bytes are the end.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if nothing is there, and else what the system says.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Read, |mut stream| stream.read(buf))
            }

            /// As [`try_read`](Self::try_read), into several buffers.
            ///
            /// # Errors
            ///
            /// As for [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Read, |mut stream| stream.read_vectored(bufs))
            }

            /// Writes as much as there is room for, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, and else what the system says.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Write, |mut stream| stream.write(buf))
            }

            /// As [`try_write`](Self::try_write), from several buffers.
            ///
            /// # Errors
            ///
            /// As for [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Write, |mut stream| stream.write_vectored(bufs))
            }

            /// Reads into memory that need not be initialized, and answers how much of it is now.
            #[cfg(feature = "hyper")]
            pub(crate) fn poll_read_uninit(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                let room = buf.len();
                let read = |stream: &$Std| socket::receive(stream, buf);
                self.0
                    .poll_io(cx, Direction::Read, read, |&n| $read_all(n, room))
            }
        }

        impl AsyncRead for &$Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let room = buf.len();
                let read = |mut stream: &$Std| stream.read(buf);
                self.0
                    .poll_io(cx, Direction::Read, read, |&n| $read_all(n, room))
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                let read = |mut stream: &$Std| stream.read_vectored(bufs);
                self.0.poll_io(cx, Direction::Read, read, |_| false)
            }
        }

        impl AsyncWrite for &$Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                let write = |mut stream: &$Std| stream.write(buf);
                self.0
                    .poll_io(cx, Direction::Write, write, |&n| took_all(n, buf.len()))
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let write = |mut stream: &$Std| stream.write_vectored(bufs);
                self.0.poll_io(cx, Direction::Write, write, |_| false)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Sends the end of the stream; reading goes on.
            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.shutdown(Shutdown::Write))
            }
        }

        impl AsyncRead for $Stream {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self).poll_read(cx, buf)
            }

            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self).poll_read_vectored(cx, bufs)
            }
        }

        impl AsyncWrite for $Stream {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Pin::new(&mut &*self).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut &*self).poll_flush(cx)
            }

            fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Pin::new(&mut &*self).poll_close(cx)
            }
        }
    };
}
pub(super) use connection;
