//! Addresses that are used again when their socket is closed.
//!
//! Two things keep such an address taken for a while. Another test may get the port, when it asks
//! for any: [`any_port_of_its_own`]. And a child process that another test starts has a copy of
//! each socket until it executes its program: [`until_ok`].

use std::{
    fmt::Debug,
    net::{Ipv4Addr, SocketAddr},
    process,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};

use tourbillon::time::{sleep, timeout};

use super::PATIENCE;

/// Returns any port of a loopback address that no other caller gets.
pub fn any_port_of_its_own() -> (Ipv4Addr, u16) {
    static CALLS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = process::id().to_be_bytes();
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    // No other test uses these: theirs begin with 127.0.
    (Ipv4Addr::new(127, high | 0x80, low, call), 0)
}

/// Returns an address at which no socket is.
pub fn nobody() -> SocketAddr {
    // The system gives a port below 1,024 only to those who ask for it.
    (any_port_of_its_own().0, 1).into()
}

/// Tries until it works, and returns the result.
///
/// # Panics
///
/// Panics after [`PATIENCE`].
pub async fn until_ok<T, E: Debug>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> T {
    let mut last = None;
    let succeeding = async {
        loop {
            match attempt().await {
                Ok(done) => break done,
                Err(error) => last = Some(error),
            }
            sleep(Duration::from_millis(1)).await;
        }
    };
    match timeout(PATIENCE, succeeding).await {
        Ok(done) => done,
        Err(_) => panic!("never succeeded; the last error: {last:?}"),
    }
}

/// Tries until it fails, and returns the error.
///
/// # Panics
///
/// Panics after [`PATIENCE`].
pub async fn until_err<T, E>(mut attempt: impl AsyncFnMut() -> Result<T, E>) -> E {
    until_ok(async || match attempt().await {
        Ok(_) => Err("it succeeds"),
        Err(error) => Ok(error),
    })
    .await
}
