//! What a wait for a descriptor answers.

use std::{error::Error, fmt, io, os::fd::AsFd};

use super::{AsyncFd, Ready};
use crate::reactor;

/// Evidence that an [`AsyncFd`] was ready. An operation goes through [`try_io`](Self::try_io), which
/// takes the readiness back when it turns out to be used up.
///
/// Dropped without that, the descriptor stays ready.
#[must_use = "readiness that is used up has to be taken back, or the next wait ends at once"]
pub struct AsyncFdReadyGuard<'a, T: AsFd> {
    async_fd: &'a AsyncFd<T>,
    /// What was seen; nothing, once it is taken back.
    seen: Option<reactor::Ready>,
    ready: Ready,
}

impl<'a, T: AsFd> AsyncFdReadyGuard<'a, T> {
    pub(super) fn new(async_fd: &'a AsyncFd<T>, seen: reactor::Ready, ready: Ready) -> Self {
        Self {
            async_fd,
            seen: Some(seen),
            ready,
        }
    }

    /// Takes back the readiness, unless an event came since. Only for who has seen an operation answer
    /// `WouldBlock`: there is no other event until something changes.
    pub fn clear_ready(&mut self) {
        if let Some(seen) = self.seen.take() {
            self.async_fd.clear_blocked(seen, self.ready);
        }
    }

    /// As [`clear_ready`](Self::clear_ready), for a part of what it was waited for.
    pub fn clear_ready_matching(&mut self, ready: Ready) {
        if let Some(seen) = self.seen {
            self.async_fd.clear(seen, self.ready & ready);
            let open = Ready::READABLE | Ready::WRITABLE;
            self.ready = self.ready - (ready & open);
        }
    }

    /// Leaves the readiness as it is, as dropping the guard does: does nothing.
    pub fn retain_ready(&mut self) {}

    /// What the descriptor was ready for, of what it was waited for.
    pub fn ready(&self) -> Ready {
        self.ready
    }

    /// Does an operation, and takes back the readiness if that answers `WouldBlock`.
    ///
    /// `operation` must not answer `WouldBlock` for any other reason.
    ///
    /// # Errors
    ///
    /// [`TryIoError`] if it would block: wait again. The errors of the operation are in the result.
    pub fn try_io<R>(
        &mut self,
        operation: impl FnOnce(&'a AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        match operation(self.async_fd) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.clear_ready();
                Err(TryIoError(()))
            }
            result => Ok(result),
        }
    }

    /// What is ready.
    pub fn get_ref(&self) -> &'a AsyncFd<T> {
        self.async_fd
    }

    /// What is wrapped.
    pub fn get_inner(&self) -> &'a T {
        self.async_fd.get_ref()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFdReadyGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFdReadyGuard")
            .field("async_fd", self.async_fd)
            .field("ready", &self.ready)
            .finish()
    }
}

/// The operation would block: see [`AsyncFdReadyGuard::try_io`].
#[derive(Debug)]
pub struct TryIoError(());

impl fmt::Display for TryIoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the operation would block")
    }
}

impl Error for TryIoError {}
