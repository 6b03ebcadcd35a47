//! Addresses and directories for Unix sockets.

use std::os::{linux::net::SocketAddrExt, unix::net::SocketAddr};

use tourbillon::net::UnixListener;

pub use crate::dir::{Dir, unique};

pub fn abstract_addr() -> SocketAddr {
    SocketAddr::from_abstract_name(unique()).unwrap()
}

/// Listens at a unique abstract name.
pub fn listen() -> (UnixListener, SocketAddr) {
    let addr = abstract_addr();
    (UnixListener::bind_addr(&addr).unwrap(), addr)
}
