//! What to do about a connection that could not be accepted.

use std::{fmt::Display, io, time::Duration};

use tourbillon::time::{Instant, sleep};

use crate::say::complain;

/// How long to wait when the system gives no more descriptors.
const PAUSE: Duration = Duration::from_millis(100);
/// How long to be silent after saying so.
const SILENCE: Duration = Duration::from_secs(1);

/// An acceptor's troubles.
#[derive(Default)]
pub struct Trouble {
    complained: Option<Instant>,
}

impl Trouble {
    /// Returns when it is time to accept again; at once, unless it is the system that has a problem. Says so then, and
    /// with how many connections open, but not too often.
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
            complain(&format!(
                "cannot accept with {open} connections open, trying again: {error}{hint}"
            ));
        }
        // The connection waits in the listener's queue meanwhile.
        sleep(PAUSE).await;
    }
}

/// Whether the error is that of a client who is gone, and the next one may be served.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
