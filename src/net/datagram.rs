//! What all sockets for datagrams have.

/// For a socket that is a registration of the standard library's.
macro_rules! datagrams {
    ($Socket:ident, $Std:ty, $Addr:ty) => {
        impl $Socket {
            /// Sends a datagram to the address that the socket is connected to, and answers how long it
            /// was. Any number of tasks may wait.
            ///
            /// # Errors
            ///
            /// What the system says, such as that the socket is not connected, or that an earlier
            /// datagram was refused.
            pub async fn send(&self, buf: &[u8]) -> io::Result<usize> {
                self.0.io(Direction::Write, |socket| socket.send(buf)).await
            }

            /// As [`send`](Self::send), without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if there is no room, and else as for [`send`](Self::send).
            pub fn try_send(&self, buf: &[u8]) -> io::Result<usize> {
                self.0.try_once(Direction::Write, |socket| socket.send(buf))
            }

            /// As [`send`](Self::send), for those who write futures by hand. One task at a time.
            ///
            /// # Errors
            ///
            /// As for [`send`](Self::send).
            pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                let send = |socket: &$Std| socket.send(buf);
                self.0.poll_io(cx, Direction::Write, send, |_| false)
            }

            /// Receives a datagram, and answers how long it was; what does not fit is lost. Any number
            /// of tasks may wait: each datagram goes to one. Dropped while it waits, it has taken none.
            ///
            /// # Errors
            ///
            /// What the system says, such as that what was sent was refused.
            pub async fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.io(Direction::Read, |socket| socket.recv(buf)).await
            }

            /// As [`recv`](Self::recv), without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if nothing is there, and else as for [`recv`](Self::recv).
            pub fn try_recv(&self, buf: &mut [u8]) -> io::Result<usize> {
                self.0.try_once(Direction::Read, |socket| socket.recv(buf))
            }

            /// As [`recv`](Self::recv), for those who write futures by hand. One task at a time.
            ///
            /// # Errors
            ///
            /// As for [`recv`](Self::recv).
            pub fn poll_recv(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let recv = |socket: &$Std| socket.recv(buf);
                self.0.poll_io(cx, Direction::Read, recv, |_| false)
            }

            /// As [`recv`](Self::recv), from anybody, and answers who sent it.
            ///
            /// # Errors
            ///
            /// As for [`recv`](Self::recv).
            pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                self.0
                    .io(Direction::Read, |socket| socket.recv_from(buf))
                    .await
            }

            /// As [`recv_from`](Self::recv_from), without waiting.
            ///
            /// # Errors
            ///
            /// `WouldBlock` if nothing is there, and else as for [`recv`](Self::recv).
            pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                self.0
                    .try_once(Direction::Read, |socket| socket.recv_from(buf))
            }

            /// As [`recv_from`](Self::recv_from), for those who write futures by hand. One task at a time.
            ///
            /// # Errors
            ///
            /// As for [`recv`](Self::recv).
            pub fn poll_recv_from(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<(usize, $Addr)>> {
                let recv = |socket: &$Std| socket.recv_from(buf);
                self.0.poll_io(cx, Direction::Read, recv, |_| false)
            }

            /// The address of this end.
            ///
            /// # Errors
            ///
            /// What the system says.
            pub fn local_addr(&self) -> io::Result<$Addr> {
                self.0.get().local_addr()
            }

            /// The address that the socket is connected to.
            ///
            /// # Errors
            ///
            /// `NotConnected` if it is not, and else what the system says.
            pub fn peer_addr(&self) -> io::Result<$Addr> {
                self.0.get().peer_addr()
            }
        }
    };
}
pub(super) use datagrams;
