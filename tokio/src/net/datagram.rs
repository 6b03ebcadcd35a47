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
                        addr
                    })
                }
            )*
        }
    };
}

pub(super) use receives;
