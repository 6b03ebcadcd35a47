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
    Err(last.unwrap_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "the name stands for no address",
        )
    }))
}
