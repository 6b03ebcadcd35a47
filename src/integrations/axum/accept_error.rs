//! Handling of accept errors.
//!
//! The program `tourbillon` also includes this file, so it uses nothing of the library.

use std::{io, time::Duration};

/// The pause before the next attempt, if there are no descriptors.
pub(crate) const PAUSE: Duration = Duration::from_millis(100);
/// The minimum time between two reports.
pub(crate) const SILENCE: Duration = Duration::from_secs(1);

/// Returns whether the error concerns one client only, so that the next one can be accepted at
/// once.
pub(crate) fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
