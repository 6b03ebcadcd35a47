//! Errors of `accept`.

use std::{fmt::Display, io, time::Duration};

use tourbillon::time::{Instant, sleep};

use crate::say::complain;

/// Delay before the next attempt if the system is out of descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// Minimum interval between two messages.
const SILENCE: Duration = Duration::from_secs(1);

/// The error state of an accept loop.
#[derive(Default)]
pub struct Trouble {
    complained: Option<Instant>,
}

impl Trouble {
    /// Waits until it makes sense to accept again. Returns at once if the error concerns one
    /// connection. Otherwise it prints the error with the number of open connections (at most one
    /// message a second) and sleeps.
    pub async fn outlast(&mut self, error: &io::Error, open: impl Display) {
        if concerns_one_connection(error) {
            return;
        }
        if self.complained.is_none_or(|when| when.elapsed() >= SILENCE) {
            self.complained = Some(Instant::now());
            let hint = match error.raw_os_error() {
                Some(libc::EMFILE) => "; raise the process's limit, `ulimit -n`",
                Some(libc::ENFILE) => "; raise the system's limit, `fs.file-max`",
                _ => "",
            };
            complain(format_args!(
                "cannot accept with {open} open connections, trying again: {error}{hint}"
            ));
        }
        // Meanwhile the connection waits in the listener's queue.
        sleep(PAUSE).await;
    }
}

/// Returns whether only one client is affected, so that the next one can be accepted at once.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
