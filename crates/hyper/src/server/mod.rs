//! For servers that drive hyper by hand: how many connections they accept, and how they end.
//!
//! A server [adds](Connections::add) each connection to its [`Connections`], and polls the returned
//! [`ConnectionGuard`] in the connection's task. To stop it [closes](Connections::close) them: each
//! connection then learns that it has to end. `tourbillon-axum` does all of this for routers.
//!
//! ```
//! use std::{future::{Future, poll_fn}, pin::pin, task::Poll};
//! use tourbillon_hyper::server::{Connections, ConnectionGuard};
//!
//! /// Runs a connection until it ends, or until the server closes.
//! async fn run(connection: impl Future<Output = ()>, guard: ConnectionGuard) {
//!     let mut connection = pin!(connection);
//!     poll_fn(|cx| {
//!         if guard.is_closing(cx) {
//!             return Poll::Ready(());
//!         }
//!         connection.as_mut().poll(cx)
//!     })
//!     .await;
//! }
//!
//! # tourbillon::Runtime::new().unwrap().block_on(async {
//! let connections = Connections::default();
//! tourbillon::spawn(run(std::future::pending(), connections.add()));
//! assert_eq!(connections.close(), 1);
//! connections.at_most(0).await;
//! # });
//! ```

mod connections;

use std::{io, time::Duration};

pub use self::connections::{ConnectionGuard, Connections};

/// The pause before the next attempt to accept, if the process has no descriptors left.
///
/// Hidden, because only our own servers use it.
#[doc(hidden)]
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The minimum time between two reports of such failures.
///
/// Hidden, because only our own servers use it.
#[doc(hidden)]
pub const ACCEPT_REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Returns whether an error of accepting concerns one client only, so that the next connection can
/// be accepted at once. After other errors wait for [`ACCEPT_PAUSE`].
///
/// Hidden, because only our own servers use it.
#[doc(hidden)]
pub fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

/// Returns how many connections a server of this process should have open at most, by how many
/// descriptors the process may have open at this moment (`RLIMIT_NOFILE`).
///
/// An eighth of the descriptors, and at least 32, but never more than half, stay free for files,
/// other sockets and the runtime.
pub fn default_max_connections() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    room(limit.current)
}

/// Returns the default limit of connections for a process with this limit of descriptors.
fn room(descriptors: Option<u64>) -> usize {
    let limit = descriptors.unwrap_or(u64::MAX);
    // Leave descriptors to the rest of the program, but not more than half.
    let others = (limit / 8).max(32).min(limit / 2);
    usize::try_from(limit - others).unwrap_or(usize::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::room;

    #[test]
    fn the_default_limit_leaves_descriptors_for_other_uses() {
        let rooms = [0, 1, 24, 64, 256, 1024, 1 << 20].map(|limit| room(Some(limit)));
        assert_eq!(rooms, [1, 1, 12, 32, 224, 896, 7 << 17]);
        assert!(room(None) > 1 << 30);
    }
}
