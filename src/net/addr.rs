//! Resolution of socket addresses.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
};

/// Calls `attempt` with each address that `addr` resolves to, until one succeeds. If all fail,
/// returns the last error.
pub(super) async fn try_each<T>(
    addr: impl ToSocketAddrs,
    attempt: impl AsyncFn(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addr.to_socket_addrs()? {
        match attempt(addr).await {
            Ok(done) => return Ok(done),
            // The caller gets the last address's error, as from the standard library.
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(no_address))
}

/// Returns the first address that `addr` resolves to.
pub(super) fn first(addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
    addr.to_socket_addrs()?.next().ok_or_else(no_address)
}

fn no_address() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the name resolves to no address; give a host and a port that can be reached",
    )
}
