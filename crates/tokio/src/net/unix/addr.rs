//! The address of a Unix socket.

use std::{
    fmt,
    os::{linux::net::SocketAddrExt, unix::net},
    path::Path,
};

/// The address of a Unix socket. It wraps the standard library's.
#[derive(Clone)]
pub struct SocketAddr(net::SocketAddr);

impl SocketAddr {
    pub(super) fn as_std(&self) -> &net::SocketAddr {
        &self.0
    }

    /// Returns whether the address has no name.
    pub fn is_unnamed(&self) -> bool {
        self.0.is_unnamed()
    }

    /// Returns the path, if the address has one.
    pub fn as_pathname(&self) -> Option<&Path> {
        self.0.as_pathname()
    }

    /// Returns the name, if it is an abstract one.
    pub fn as_abstract_name(&self) -> Option<&[u8]> {
        self.0.as_abstract_name()
    }
}

impl fmt::Debug for SocketAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<net::SocketAddr> for SocketAddr {
    fn from(addr: net::SocketAddr) -> Self {
        Self(addr)
    }
}

impl From<SocketAddr> for net::SocketAddr {
    fn from(addr: SocketAddr) -> Self {
        addr.0
    }
}
