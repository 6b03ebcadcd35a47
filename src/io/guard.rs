//! The guards that an `AsyncFd` returns when it is ready.

use std::{error::Error, fmt, io, os::fd::AsFd};

use super::{AsyncFd, Interest, Ready};
use crate::reactor;

/// Proof that an [`AsyncFd`] was ready. Run the operation through [`try_io`](Self::try_io), which
/// clears the readiness if the operation would block.
///
/// Dropping the guard leaves the readiness set.
#[must_use = "readiness stays set until it is cleared; otherwise the next wait ends at once"]
pub struct AsyncFdReadyGuard<'a, T: AsFd> {
    async_fd: &'a AsyncFd<T>,
    seen: Seen,
}

/// An [`AsyncFdReadyGuard`] that passes the wrapped value mutably. See
/// [`AsyncFd::ready_mut`].
///
/// ```
/// use std::{io::Read, os::unix::net::UnixStream};
/// use tourbillon::io::AsyncFd;
///
/// # tourbillon::Runtime::new()?.block_on(async {
/// let (ours, theirs) = UnixStream::pair()?;
/// ours.set_nonblocking(true)?;
/// let mut ours = AsyncFd::new(ours)?;
/// drop(theirs);
/// let n = loop {
///     let mut guard = ours.readable_mut().await?;
///     match guard.try_io(|ours| ours.get_mut().read(&mut [0])) {
///         Ok(result) => break result?,
///         Err(_would_block) => continue,
///     }
/// };
/// assert_eq!(n, 0);
/// # std::io::Result::Ok(())
/// # })?;
/// # std::io::Result::Ok(())
/// ```
#[must_use = "readiness stays set until it is cleared; otherwise the next wait ends at once"]
pub struct AsyncFdReadyMutGuard<'a, T: AsFd> {
    async_fd: &'a mut AsyncFd<T>,
    seen: Seen,
}

/// The readiness as of the end of the wait.
struct Seen {
    /// `None` once all is cleared.
    proof: Option<reactor::Ready>,
    ready: Ready,
    interest: Interest,
}

impl Seen {
    fn new(proof: reactor::Ready, interest: Interest) -> Self {
        Self {
            proof: Some(proof),
            ready: Ready::of(proof, interest),
            interest,
        }
    }

    /// Clears the readiness, except for the end of the stream: the caller has not shown that an
    /// operation would block. What was read may have come together with the end.
    fn clear<T: AsFd>(&mut self, async_fd: &AsyncFd<T>) {
        if let Some(proof) = self.proof.take() {
            async_fd.clear(proof, self.ready);
            self.ready = Ready::EMPTY;
        }
    }

    /// Clears the readiness if `result`, of an operation on `async_fd`, is `WouldBlock`.
    fn settle<T: AsFd, R>(
        &mut self,
        async_fd: &AsyncFd<T>,
        result: io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                // The operation has shown that the descriptor is not ready any more.
                if let Some(proof) = self.proof.take() {
                    async_fd.clear_blocked(proof, self.interest);
                    self.ready = Ready::EMPTY;
                }
                Err(TryIoError(()))
            }
            result => Ok(result),
        }
    }

    fn clear_matching<T: AsFd>(&mut self, async_fd: &AsyncFd<T>, ready: Ready) {
        if let Some(proof) = self.proof {
            async_fd.clear(proof, self.ready & ready);
            self.ready = self.ready - ready;
            if self.ready.is_empty() {
                self.proof = None;
            }
        }
    }
}

/// Implements the methods that both guards have.
macro_rules! guard {
    ($Guard:ident, $Fd:ty) => {
        impl<'a, T: AsFd> $Guard<'a, T> {
            pub(super) fn new(async_fd: $Fd, seen: reactor::Ready, interest: Interest) -> Self {
                let seen = Seen::new(seen, interest);
                Self { async_fd, seen }
            }

            /// Clears the readiness, unless a new event has arrived. The end of the stream stays:
            /// the next wait ends at once.
            ///
            /// Call it only after an operation returned `WouldBlock`: otherwise there may be no
            /// further event, and the next wait may never end.
            pub fn clear_ready(&mut self) {
                self.seen.clear(self.async_fd);
            }

            /// Clears a part of the readiness. See [`clear_ready`](Self::clear_ready).
            pub fn clear_ready_matching(&mut self, ready: Ready) {
                self.seen.clear_matching(self.async_fd, ready);
            }

            /// Leaves the readiness set, like dropping the guard. This method does nothing.
            pub fn retain_ready(&mut self) {}

            /// Returns the readiness found, limited to what was waited for, and without what this
            /// guard has cleared.
            pub fn ready(&self) -> Ready {
                self.seen.ready
            }
        }

        impl<T: AsFd + fmt::Debug> fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($Guard))
                    .field("async_fd", self.async_fd)
                    .field("ready", &self.ready())
                    .finish()
            }
        }
    };
}

guard!(AsyncFdReadyGuard, &'a AsyncFd<T>);
guard!(AsyncFdReadyMutGuard, &'a mut AsyncFd<T>);

impl<'a, T: AsFd> AsyncFdReadyGuard<'a, T> {
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
        let result = operation(self.async_fd);
        self.seen.settle(self.async_fd, result)
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

impl<T: AsFd> AsyncFdReadyMutGuard<'_, T> {
    /// Runs an operation, and clears the readiness if it returns `WouldBlock`. See
    /// [`AsyncFdReadyGuard::try_io`].
    ///
    /// # Errors
    ///
    /// See [`AsyncFdReadyGuard::try_io`].
    pub fn try_io<R>(
        &mut self,
        operation: impl FnOnce(&mut AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        let result = operation(self.async_fd);
        self.seen.settle(self.async_fd, result)
    }

    /// Returns the `AsyncFd` of this guard.
    pub fn get_ref(&self) -> &AsyncFd<T> {
        self.async_fd
    }

    /// Returns the `AsyncFd` of this guard mutably.
    pub fn get_mut(&mut self) -> &mut AsyncFd<T> {
        self.async_fd
    }

    /// Returns the wrapped value.
    pub fn get_inner(&self) -> &T {
        self.async_fd.get_ref()
    }

    /// Returns the wrapped value mutably. The caller must not replace its descriptor.
    pub fn get_inner_mut(&mut self) -> &mut T {
        self.async_fd.get_mut()
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
