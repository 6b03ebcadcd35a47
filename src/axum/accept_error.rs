//! What acceptors do about errors.
//!
//! The program `tourbillon` has this module, too: it needs nothing of the library's.

use std::{io, time::Duration};

/// How long to wait when the system gives no more descriptors.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// How long to be silent after saying so.
pub(super) const SILENCE: Duration = Duration::from_secs(1);

/// Returns whether the error is that of a client who is gone, and the next one may be served.
pub(super) fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
