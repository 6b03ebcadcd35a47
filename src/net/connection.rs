//! Methods and traits that every stream socket has: reading, writing, splitting, timeouts.

use std::{
    io::{self, IoSlice, Write},
    mem::MaybeUninit,
    slice,
};

/// Returns whether an operation that moved `n` of `room` bytes exhausted the socket.
///
/// According to epoll(7), a partial read or write of a stream means that the next one would block.
/// The next operation then waits without a system call. Zero bytes are the end of the stream.
pub(super) fn took_all(n: usize, room: usize) -> bool {
    n > 0 && n < room
}

/// The most bytes of several buffers that are gathered into one.
const GATHERED: usize = 4_096;

/// Writes from several buffers. Short ones, such as the head and the body of a short response, are
/// first copied into one. To hand several buffers to the system costs more than the copy.
pub(super) fn write_gathered(mut stream: impl Write, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let mut gathered = [const { MaybeUninit::<u8>::uninit() }; GATHERED];
    let mut len = 0;
    for buf in bufs {
        let Some(room) = gathered[len..].get_mut(..buf.len()) else {
            return stream.write_vectored(bufs);
        };
        let room = room.as_mut_ptr().cast::<u8>();
        // SAFETY: both are as long as `buf`, and `room` is a local variable of this function.
        unsafe { room.copy_from_nonoverlapping(buf.as_ptr(), buf.len()) };
        len += buf.len();
    }
    // SAFETY: the loop has initialized the first `len` bytes.
    stream.write(unsafe { slice::from_raw_parts(gathered.as_ptr().cast(), len) })
}

/// Implements the methods of a stream that is a
/// [`Registration`](crate::engine::registration::Registration) of a standard library stream.
/// `$read_all` decides whether a read exhausted the socket.
macro_rules! connection {
    ($Stream:ident, $Std:ty, $read_all:expr) => {
        impl $Stream {
            /// Splits the connection into two borrowed halves, which one task may use at the same
            /// time. This allocates nothing.
            ///
            /// ```
            /// use futures_lite::{AsyncReadExt, AsyncWriteExt, future::zip};
            ///
            #[doc = concat!("# async fn example(mut stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// let (mut read, mut write) = stream.split();
            /// let mut reply = [0; 100];
            /// let (sent, came) = zip(write.write_all(b"hello"), read.read(&mut reply)).await;
            /// # sent?;
            /// # came?;
            /// # Ok(())
            /// # }
            /// ```
            pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
                (ReadHalf(self), WriteHalf { stream: self })
            }

            /// Splits the connection into two owned halves, which different tasks may use.
            ///
            /// ```
            /// use futures_lite::{AsyncReadExt, AsyncWriteExt};
            ///
            #[doc = concat!("# async fn example(stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// let (mut read, mut write) = stream.into_split();
            /// tourbillon::spawn(async move {
            ///     write.write_all(b"request").await
            ///     // Dropping the half closes this direction.
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

            /// Shuts down one or both directions at once. A task that waits to read then finds the
            /// end.
            ///
            /// This is `shutdown` of the standard library's stream. It has another name here, as a
            /// method of the name `shutdown` would hide the one of tokio's `AsyncWriteExt`.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, for example if the socket is no longer
            /// connected.
            pub fn shutdown_now(&self, how: Shutdown) -> io::Result<()> {
                self.0.get().shutdown(how)
            }

            /// Returns the limit on how long a read may wait. See
            /// [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            ///
            /// None. The signature follows the standard library.
            pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Read))
            }

            /// Returns the limit on how long a write may wait. See
            /// [`set_write_timeout`](Self::set_write_timeout).
            ///
            /// # Errors
            ///
            /// None. The signature follows the standard library.
            pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.0.timeout(Direction::Write))
            }

            /// Sets a limit on how long a read may wait, or removes it with `None`, which is the
            /// default.
            ///
            /// The limit applies to every kind of read: the traits of futures-io and hyper, the
            /// read half, and [`async_io`](Self::async_io). A read that has waited this long fails
            /// with `TimedOut`; the stream stays usable. The limit does not apply to `try_`
            /// methods, which never wait, nor to waiting for readiness alone.
            ///
            /// The time counts from the moment a read begins to wait. The traits read by
            /// `poll_read`, which cannot tell that the caller gave up the read, for example in a
            /// [`timeout`](crate::time::timeout) or a `select`. The next such read continues that
            /// wait, so the limit is on the time without data, over all attempts. The wait ends
            /// when data is read. It also ends if its time ran out at least one second ago and no
            /// read was attempted since. Setting a limit restarts the wait of all readers.
            ///
            /// Each direction of a socket has one timer. The first read that has to wait arms it,
            /// and each later one that has to wait moves it. Moving takes one atomic operation and
            /// no allocation, while a `timeout` around each read arms and cancels a timer every
            /// time.
            ///
            /// # Errors
            ///
            /// Returns `InvalidInput` if `timeout` is zero.
            ///
            /// ```
            /// use std::{io::ErrorKind, time::Duration};
            /// use futures_lite::AsyncReadExt;
            ///
            #[doc = concat!("# async fn example(mut stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// stream.set_read_timeout(Some(Duration::from_secs(30)))?;
            /// let mut buf = [0; 1024];
            /// match stream.read(&mut buf).await {
            ///     Err(error) if error.kind() == ErrorKind::TimedOut => println!("idle too long"),
            ///     read => println!("{} bytes", read?),
            /// }
            /// # Ok(())
            /// # }
            /// ```
            pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Read, timeout)
            }

            /// Sets a limit on how long a write may wait for room. See
            /// [`set_read_timeout`](Self::set_read_timeout).
            ///
            /// # Errors
            ///
            /// Returns `InvalidInput` if `timeout` is zero.
            pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.0.set_timeout(Direction::Write, timeout)
            }

            /// Reads available data without waiting. Returns 0 at the end of the stream.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no data, otherwise the operating system's error.
            pub fn try_read(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Read, |mut stream| stream.read(buf))
            }

            /// Reads available data into several buffers without waiting. See
            /// [`try_read`](Self::try_read).
            ///
            /// # Errors
            ///
            /// See [`try_read`](Self::try_read).
            pub fn try_read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Read, |mut stream| stream.read_vectored(bufs))
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
                self.0
                    .try_once(Direction::Read, |stream| socket::receive_buf(stream, buf))
            }

            /// Writes as much as the socket accepts without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, otherwise the operating system's error.
            pub fn try_write(&self, buf: &[u8]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Write, |mut stream| stream.write(buf))
            }

            /// Writes from several buffers without waiting. See [`try_write`](Self::try_write).
            ///
            /// # Errors
            ///
            /// See [`try_write`](Self::try_write).
            pub fn try_write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0
                    .try_once(Direction::Write, |stream| write_gathered(stream, bufs))
            }

            /// Reads available data into memory that may be uninitialized. Returns the number of
            /// bytes: as many at the beginning of `buf` are initialized then. It is zero at the end
            /// of the stream.
            ///
            /// An adapter for another trait of streams needs no zeroed buffer this way. If there is
            /// no data, this wakes the task of `cx` when there is some. It wakes only the task of
            /// the last call, as `poll_read` does.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, or `TimedOut` after the
            /// [timeout of reads](Self::set_read_timeout).
            ///
            /// ```
            /// use std::{future::poll_fn, mem::MaybeUninit};
            ///
            #[doc = concat!("# async fn example(stream: tourbillon::net::", stringify!($Stream), ") -> std::io::Result<()> {")]
            /// let mut buf = [MaybeUninit::<u8>::uninit(); 1024];
            /// let n = poll_fn(|cx| stream.poll_read_uninit(cx, &mut buf)).await?;
            /// println!("{n} bytes");
            /// # Ok(())
            /// # }
            /// ```
            pub fn poll_read_uninit(
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

        impl AsRef<$Stream> for $Stream {
            fn as_ref(&self) -> &$Stream {
                self
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
                // Whether all buffers were filled is not computed, so the next read tries again
                // before it waits.
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
                let write = |stream: &$Std| write_gathered(stream, bufs);
                self.0.poll_io(cx, Direction::Write, write, |_| false)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                // The stream has no buffer of its own. The kernel has all the data.
                Poll::Ready(Ok(()))
            }

            /// Shuts down the write direction. Reading continues to work.
            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(match self.shutdown_now(Shutdown::Write) {
                    // The peer is gone already. tokio's streams do not report this as an error.
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
                    closed => closed,
                })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all bytes, and notes how many buffers each call had.
    #[derive(Default)]
    struct Calls(Vec<usize>, Vec<u8>);

    impl Write for &mut Calls {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            self.write_vectored(&[IoSlice::new(buf)])
        }

        fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
            self.0.push(bufs.len());
            bufs.iter().for_each(|buf| self.1.extend_from_slice(buf));
            Ok(bufs.iter().map(|buf| buf.len()).sum())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn short_buffers_are_written_as_one() {
        let bytes: Vec<u8> = (0..=GATHERED).map(|i| i as u8).collect();
        for (len, buffers) in [(0, 1), (1, 1), (GATHERED, 1), (GATHERED + 1, 3)] {
            let (a, rest) = bytes[..len].split_at(len / 3);
            let (b, c) = rest.split_at(len / 2);
            let mut calls = Calls::default();
            let bufs = [a, b, c].map(IoSlice::new);
            assert_eq!(write_gathered(&mut calls, &bufs).unwrap(), len);
            assert_eq!(calls.0, [buffers]);
            assert!(calls.1 == bytes[..len], "bytes differ");
        }
    }
}
