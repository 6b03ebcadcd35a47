//! Methods that every datagram socket has.

/// Implements the methods of a datagram socket that is a
/// [`Registration`](crate::engine::registration::Registration) of a standard library socket.
/// `$addr` converts an address of socket2 to `$Addr`.
macro_rules! datagrams {
    ($Socket:ident, $Std:ty, $Addr:ty, $addr:expr) => {
        $crate::net::datagram::receives! {
            $Socket, $Std, $Addr,
            /// Receives a datagram, and returns the number of bytes received.
            ///
            /// Bytes that do not fit into `buf` are lost. Any number of tasks may wait; each
            /// datagram goes to one of them. Dropping the future while it waits loses no datagram.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, for example if the peer refused an earlier
            /// datagram.
            recv, try_recv, poll_recv,
            /// Receives a datagram from any sender, and returns its length and the sender's
            /// address. See [`recv`](Self::recv).
            ///
            /// # Errors
            ///
            /// See [`recv`](Self::recv).
            recv_from, try_recv_from, poll_recv_from
        }

        impl $Socket {
            /// Sends a datagram to the connected address, and returns the number of bytes sent. Any
            /// number of tasks may wait.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, for example if the socket is not connected, or
            /// if the peer refused an earlier datagram.
            pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
                self.0.io(Direction::Write, |socket| socket.send(buf)).await
            }

            /// Attempts [`send`](Self::send) once, without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, otherwise see [`send`](Self::send).
            pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
                self.0.try_once(Direction::Write, |socket| socket.send(buf))
            }

            /// Attempts [`send`](Self::send) from a `poll` function. Only the last task to poll is
            /// woken.
            ///
            /// # Errors
            ///
            /// See [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                let send = |socket: &$Std| socket.send(buf);
                self.0.poll_io(cx, Direction::Write, send, |_| false)
            }

            /// Receives a datagram into the unused room of `buf`, which need not be initialized,
            /// and advances `buf`. See [`recv`](Self::recv).
            ///
            /// Bytes that do not fit into `chunk_mut` of `buf` are lost. A `Vec` has its free
            /// capacity there, or a few bytes if it is full: reserve room before each call.
            ///
            /// # Errors
            ///
            /// See [`recv`](Self::recv).
            ///
            /// ```
            #[doc = concat!("# async fn example(socket: tourbillon::net::", stringify!($Socket), ") -> std::io::Result<()> {")]
            /// let mut buf = Vec::with_capacity(1500);
            /// let n = socket.recv_buf(&mut buf).await?;
            /// assert_eq!(n, buf.len());
            /// # Ok(())
            /// # }
            /// ```
            #[cfg(feature = "bytes")]
            #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
            pub async fn recv_buf<B: bytes::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
                let recv = |socket: &$Std| crate::sys::socket::receive_buf(socket, buf);
                self.0.io(Direction::Read, recv).await
            }

            /// Attempts [`recv_buf`](Self::recv_buf) once, without waiting.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no datagram, otherwise see [`recv`](Self::recv).
            #[cfg(feature = "bytes")]
            #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
            pub fn try_recv_buf<B: bytes::BufMut>(&self, buf: &mut B) -> io::Result<usize> {
                let recv = |socket: &$Std| crate::sys::socket::receive_buf(socket, buf);
                self.0.try_once(Direction::Read, recv)
            }

            /// Receives a datagram from any sender like [`recv_buf`](Self::recv_buf). Returns its
            /// length and the sender's address.
            ///
            /// # Errors
            ///
            /// See [`recv`](Self::recv).
            #[cfg(feature = "bytes")]
            #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
            pub async fn recv_buf_from<B: bytes::BufMut>(
                &self,
                buf: &mut B,
            ) -> io::Result<(usize, $Addr)> {
                let recv =
                    |socket: &$Std| crate::sys::socket::receive_buf_from(socket, buf, $addr);
                self.0.io(Direction::Read, recv).await
            }

            /// Attempts [`recv_buf_from`](Self::recv_buf_from) once, without waiting.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no datagram, otherwise see [`recv`](Self::recv).
            #[cfg(feature = "bytes")]
            #[cfg_attr(docsrs, doc(cfg(feature = "bytes")))]
            pub fn try_recv_buf_from<B: bytes::BufMut>(
                &self,
                buf: &mut B,
            ) -> io::Result<(usize, $Addr)> {
                let recv =
                    |socket: &$Std| crate::sys::socket::receive_buf_from(socket, buf, $addr);
                self.0.try_once(Direction::Read, recv)
            }

            /// Returns the local address.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn local_addr(&self) -> io::Result<$Addr> {
                self.0.get().local_addr()
            }

            /// Returns the address that the socket is connected to.
            ///
            /// # Errors
            ///
            /// Returns `NotConnected` if the socket is not connected, otherwise the operating
            /// system's error.
            pub fn peer_addr(&self) -> io::Result<$Addr> {
                self.0.get().peer_addr()
            }
        }
    };
}
pub(super) use datagrams;

/// Implements methods that receive a datagram, or look at it: each in a form that waits, in one that
/// tries once, and in one that polls. The first three do so without the sender's address. Those of
/// `$Std` have the names of the forms that wait.
macro_rules! receives {
    (
        $Socket:ident, $Std:ty, $Addr:ty,
        $(#[$doc:meta])* $recv:ident, $try_recv:ident, $poll_recv:ident,
        $(#[$from_doc:meta])* $recv_from:ident, $try_recv_from:ident, $poll_recv_from:ident
    ) => {
        impl $Socket {
            $(#[$doc])*
            pub async fn $recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.io(Direction::Read, |socket| socket.$recv(buf)).await
            }

            #[doc = $crate::net::datagram::attempts!($recv, "once, without waiting.")]
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no datagram, otherwise see [`recv`](Self::recv).
            pub fn $try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_once(Direction::Read, |socket| socket.$recv(buf))
            }

            #[doc = $crate::net::datagram::attempts!($recv, "from a `poll` function.")]
            /// Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// See [`recv`](Self::recv).
            pub fn $poll_recv<B: PollBuf + ?Sized>(
                &self,
                cx: &mut Context<'_>,
                buf: &mut B,
            ) -> Poll<io::Result<B::Count>> {
                // One datagram does not tell whether another one is queued.
                let recv = |socket: &$Std| {
                    let n = socket.$recv(buf.room())?;
                    Ok(buf.filled(n))
                };
                self.0.poll_io(cx, Direction::Read, recv, |_| false)
            }

            $(#[$from_doc])*
            pub async fn $recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                self.0
                    .io(Direction::Read, |socket| socket.$recv_from(buf))
                    .await
            }

            #[doc = $crate::net::datagram::attempts!($recv_from, "once, without waiting.")]
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if there is no datagram, otherwise see [`recv`](Self::recv).
            pub fn $try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                self.0
                    .try_once(Direction::Read, |socket| socket.$recv_from(buf))
            }

            #[doc = $crate::net::datagram::attempts!($recv_from, "from a `poll` function.")]
            /// Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// See [`recv`](Self::recv).
            pub fn $poll_recv_from<B: PollBuf + ?Sized>(
                &self,
                cx: &mut Context<'_>,
                buf: &mut B,
            ) -> Poll<io::Result<B::CountAnd<$Addr>>> {
                let recv = |socket: &$Std| {
                    let (n, addr) = socket.$recv_from(buf.room())?;
                    Ok(buf.filled_from(n, addr))
                };
                self.0.poll_io(cx, Direction::Read, recv, |_| false)
            }
        }
    };
}
pub(super) use receives;

/// Returns the first line of documentation of a method that attempts another one.
macro_rules! attempts {
    ($method:ident, $how:literal) => {
        concat!(
            "Attempts [`",
            stringify!($method),
            "`](Self::",
            stringify!($method),
            ") ",
            $how
        )
    };
}
pub(super) use attempts;
