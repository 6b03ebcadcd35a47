//! The error of a failed accept.

use std::{error::Error, fmt, io};

/// The reason why a connection could not be accepted. Passed to [`Serve::on_accept_error`].
///
/// [`Serve::on_accept_error`]: crate::Serve::on_accept_error
#[derive(Debug)]
pub struct AcceptError {
    pub(crate) error: io::Error,
    pub(crate) open: usize,
}

impl AcceptError {
    /// Returns the listener's error, which is also the [`source`](Error::source).
    pub fn io_error(&self) -> &io::Error {
        &self.error
    }

    /// Returns the number of connections that the server had open.
    pub fn open_connections(&self) -> usize {
        self.open
    }
}

impl fmt::Display for AcceptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { error, open } = self;
        write!(
            f,
            "cannot accept with {open} connections open, trying again: {error}"
        )
    }
}

impl Error for AcceptError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}
