//! Socket options that TCP and UDP share.

/// Implements the options of IP packets and of the network interface.
macro_rules! ip_options {
    ($Socket:ident) => {
        impl $Socket {
            /// Returns the type of service of IPv4 packets that are sent (`IP_TOS`): the field with
            /// the DSCP and ECN bits.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn tos_v4(&self) -> io::Result<u32> {
                socket2::SockRef::from(self).tos_v4()
            }

            /// Sets [`tos_v4`](Self::tos_v4). The system ignores or reserves some of the bits.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn set_tos_v4(&self, tos: u32) -> io::Result<()> {
                socket2::SockRef::from(self).set_tos_v4(tos)
            }

            /// Returns the traffic class of IPv6 packets that are sent (`IPV6_TCLASS`).
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, for example on an IPv4 socket.
            pub fn tclass_v6(&self) -> io::Result<u32> {
                socket2::SockRef::from(self).tclass_v6()
            }

            /// Sets [`tclass_v6`](Self::tclass_v6).
            ///
            /// # Errors
            ///
            /// Returns the operating system's error, for example on an IPv4 socket.
            pub fn set_tclass_v6(&self, tclass: u32) -> io::Result<()> {
                socket2::SockRef::from(self).set_tclass_v6(tclass)
            }

            /// Returns the name of the network interface that the socket is bound to
            /// (`SO_BINDTODEVICE`), or `None`.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error.
            pub fn device(&self) -> io::Result<Option<Vec<u8>>> {
                socket2::SockRef::from(self).device()
            }

            /// Binds the socket to the network interface of this name. It then exchanges packets
            /// through this interface only. `None` or an empty name removes the binding.
            ///
            /// # Errors
            ///
            /// Returns the operating system's error: `ENODEV` if there is no such interface,
            /// `PermissionDenied` if the socket is bound already and the process lacks
            /// `CAP_NET_RAW`.
            pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
                socket2::SockRef::from(self).bind_device(interface)
            }
        }
    };
}
pub(super) use ip_options;
