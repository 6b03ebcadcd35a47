//! The guard that an `AsyncFd` returns when it is ready.

use std::{error::Error, fmt, io, os::fd::AsFd};

use super::{AsyncFd, Ready};
use crate::reactor;

/// Proof that an [`AsyncFd`] was ready. Run the operation through [`try_io`](Self::try_io), which
/// clears the readiness if the operation would block.
///
/// Dropping the guard leaves the readiness set.
#[must_use = "readiness stays set until it is cleared; otherwise the next wait ends at once"]
pub struct AsyncFdReadyGuard<'a, T: AsFd> {
    async_fd: &'a AsyncFd<T>,
    /// The readiness as of the wait; `None` once it is cleared.
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

    /// Clears the readiness, unless a new event has arrived.
    ///
    /// Call it only after an operation returned `WouldBlock`: otherwise there may be no further
    /// event, and the next wait may never end.
    pub fn clear_ready(&mut self) {
        if let Some(seen) = self.seen.take() {
            self.async_fd.clear_blocked(seen, self.ready);
        }
    }

    /// Clears a part of the readiness. See [`clear_ready`](Self::clear_ready).
    pub fn clear_ready_matching(&mut self, ready: Ready) {
        if let Some(seen) = self.seen {
            self.async_fd.clear(seen, self.ready & ready);
            // The end of a stream is final and cannot be cleared.
            let open = Ready::READABLE | Ready::WRITABLE;
            self.ready = self.ready - (ready & open);
        }
    }

    /// Leaves the readiness set, like dropping the guard. This method does nothing.
    pub fn retain_ready(&mut self) {}

    /// Returns the readiness found, limited to what was waited for.
    pub fn ready(&self) -> Ready {
        self.ready
    }

    /// Runs an operation, and clears the readiness if it returns `WouldBlock`.
    ///
    /// `operation` must return `WouldBlock` only if the descriptor is not ready.
    ///
    /// # Errors
    ///
    /// Returns [`TryIoError`] if the operation would block: wait again. Other errors of the
    /// operation are in the inner result.
    pub fn try_io<R>(
        &mut self,
        operation: impl FnOnce(&'a AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        match operation(self.async_fd) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The operation has shown that the descriptor is not ready any more.
                self.clear_ready();
                Err(TryIoError(()))
            }
            result => Ok(result),
        }
    }

    /// Returns the `AsyncFd` of this guard.
    pub fn get_ref(&self) -> &'a AsyncFd<T> {
        self.async_fd
    }

    /// Returns the wrapped value.
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
