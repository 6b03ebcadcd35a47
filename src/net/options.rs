//! Socket options.

/// Implements options of a socket: for each a method that returns it, and one that sets it.
///
/// `$it` stands for the socket in the expressions that do so.
macro_rules! options {
    ($Socket:ident, |$it:ident| $(
        $(#[$doc:meta])*
        $get:ident() = $get_by:expr;
        $(#[$more:meta])*
        $set:ident($value:ident: $Type:ty) = $set_by:expr;
    )*) => {
        impl $Socket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// Returns the operating system's error.
                pub fn $get(&self) -> io::Result<$Type> {
                    let $it = self;
                    $get_by
                }

                #[doc = concat!("Sets [`", stringify!($get), "`](Self::", stringify!($get), ").")]
                $(#[$more])*
                ///
                /// # Errors
                ///
                /// Returns the operating system's error.
                pub fn $set(&self, $value: $Type) -> io::Result<()> {
                    let $it = self;
                    $set_by
                }
            )*
        }
    };
}
pub(super) use options;

/// Implements the options of IP packets and of the network interface.
macro_rules! ip_options {
    ($Socket:ident) => {
        $crate::net::options::options! {
            $Socket, |it|

            /// Returns the type of service of IPv4 packets that are sent (`IP_TOS`): the field with
            /// the DSCP and ECN bits.
            tos_v4() = socket2::SockRef::from(it).tos_v4();
            /// The system ignores or reserves some of the bits.
            set_tos_v4(tos: u32) = socket2::SockRef::from(it).set_tos_v4(tos);

            /// Returns the traffic class of IPv6 packets that are sent (`IPV6_TCLASS`). An IPv4
            /// socket has none.
            tclass_v6() = socket2::SockRef::from(it).tclass_v6();
            set_tclass_v6(tclass: u32) = socket2::SockRef::from(it).set_tclass_v6(tclass);
        }

        impl $Socket {
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
