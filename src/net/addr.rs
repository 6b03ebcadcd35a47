//! Addresses that have to be looked up.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// Tries each address that `addr` stands for, until one succeeds. The last error is the one told.
pub(super) async fn try_each<T>(
    addr: impl ToSocketAddrs,
    attempt: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match attempt(addr).await {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

/// The first address that `addr` stands for.
pub(super) fn first(addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    addr.to_socket_addrs()?.next().ok_or_else(no_address)
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name stands for no address",
    )
}
