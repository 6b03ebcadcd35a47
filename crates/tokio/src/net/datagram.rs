//! What datagram sockets have in common.

/// Implements the methods that receive or peek into a `ReadBuf`. Of each pair of names, the second
/// method returns the sender.
macro_rules! receives {
    ($Socket:ident, $Addr:ty: $($receive:ident, $receive_from:ident);*) => {
        impl $Socket {
            $(
                #[doc = concat!("See [`", stringify!($receive), "`](Inner::", stringify!($Socket),
                    "::", stringify!($receive), ").")]
                ///
                /// # Errors
                ///
                /// Returns the operating system's error.
                pub fn $receive(
                    &self,
                    cx: &mut std::task::Context<'_>,
                    buf: &mut real::io::ReadBuf<'_>,
                ) -> std::task::Poll<io::Result<()>> {
                    let received = self.0.$receive(cx, buf.initialize_unfilled());
                    received.map_ok(|n| buf.advance(n))
                }

                #[doc = concat!("See [`", stringify!($receive_from), "`](Inner::",
                    stringify!($Socket), "::", stringify!($receive_from), ").")]
                ///
                /// # Errors
                ///
                /// Returns the operating system's error.
                pub fn $receive_from(
                    &self,
                    cx: &mut std::task::Context<'_>,
                    buf: &mut real::io::ReadBuf<'_>,
                ) -> std::task::Poll<io::Result<$Addr>> {
                    let received = self.0.$receive_from(cx, buf.initialize_unfilled());
                    received.map_ok(|(n, addr)| {
                        buf.advance(n);
                        addr.into()
                    })
                }
            )*
        }
    };
}

/// Defines the methods that all datagram sockets have, with addresses of the type `$Addr`.
macro_rules! datagrams {
    ($Socket:ident, $Addr:ty) => {
        crate::forward::forward_addrs! { [] $Socket, $Addr: local_addr, peer_addr }
        crate::forward::forward! {
            [] $Socket:
            fn poll_recv_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>;
            fn poll_send(cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
            fn poll_send_ready(cx: &mut Context<'_>) -> Poll<io::Result<()>>;
            fn take_error() -> io::Result<Option<io::Error>>;
            fn try_io<R>(
                interest: Interest,
                operation: impl FnOnce() -> io::Result<R>,
            ) -> io::Result<R>;
            fn try_recv(buf: &mut [u8]) -> io::Result<usize>;
            fn try_recv_buf<B: buffers::BufMut>(buf: &mut B) -> io::Result<usize>;
            fn try_send(buf: &[u8]) -> io::Result<usize>;
            async {
                fn async_io<R>(
                    interest: Interest,
                    operation: impl FnMut() -> io::Result<R>,
                ) -> io::Result<R>;
                fn readable() -> io::Result<()>;
                fn ready(interest: Interest) -> io::Result<Ready>;
                fn recv(buf: &mut [u8]) -> io::Result<usize>;
                fn recv_buf<B: buffers::BufMut>(buf: &mut B) -> io::Result<usize>;
                fn send(buf: &[u8]) -> io::Result<usize>;
                fn writable() -> io::Result<()>;
            }
        }

        impl $Socket {
            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, or fails if the runtime is shut down.
            pub async fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                let (n, addr) = self.0.recv_from(buf).await?;
                Ok((n, addr.into()))
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if nothing has arrived, otherwise the operating system's error.
            pub fn try_recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, $Addr)> {
                let (n, addr) = self.0.try_recv_from(buf)?;
                Ok((n, addr.into()))
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, or fails if the runtime is shut down.
            pub async fn recv_buf_from<B: buffers::BufMut>(
                &self,
                buf: &mut B,
            ) -> io::Result<(usize, $Addr)> {
                let (n, addr) = self.0.recv_buf_from(buf).await?;
                Ok((n, addr.into()))
            }

            /// See Tourbillon's method of this name.
            ///
            /// # Errors
            ///
            /// Returns `WouldBlock` if nothing has arrived, otherwise the operating system's error.
            pub fn try_recv_buf_from<B: buffers::BufMut>(
                &self,
                buf: &mut B,
            ) -> io::Result<(usize, $Addr)> {
                let (n, addr) = self.0.try_recv_buf_from(buf)?;
                Ok((n, addr.into()))
            }
        }
    };
}

pub(super) use {datagrams, receives};
