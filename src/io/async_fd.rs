//! An adapter for any descriptor that epoll supports.

use std::{
    error::Error,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll, ready},
};

use super::{
    AsyncFdReadyGuard, AsyncFdReadyMutGuard, Interest, Ready, Source,
    source::sealed::{Sealed, Watched},
};
use crate::{engine::registration::Registration, reactor, reactor::Direction};

/// A descriptor of any kind that epoll supports, such as a pipe, an eventfd, a device or a socket
/// of another crate.
///
/// The worker that creates it watches it. The caller must make the descriptor non-blocking: a
/// blocking one would block its worker.
///
/// The watch is edge-triggered. Once ready, the descriptor counts as ready until the caller reports
/// that an operation would block, with [`AsyncFdReadyGuard::try_io`] or
/// [`clear_ready`](AsyncFdReadyGuard::clear_ready). The names are tokio's. The methods that end in
/// `_mut` pass the wrapped value mutably.
///
/// The wrapped type must be [`AsFd`]: its descriptor stays open as long as it exists. A bare number
/// could be closed elsewhere, and then be that of another file, whose watch this type would end.
///
/// Dropping it drops the wrapped value.
///
/// ```
/// use std::{fs::File, io::{self, Read, Write}};
/// use tourbillon::io::{AsyncFd, Interest};
///
/// # fn eventfd() -> io::Result<File> {
/// #     use std::os::fd::FromRawFd;
/// #     // SAFETY: the call takes no pointers, and nothing else owns the new descriptor.
/// #     Ok(unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) })
/// # }
/// # tourbillon::Runtime::new()?.block_on(async {
/// let counter = eventfd()?; // eventfd(2), non-blocking
/// let mut elsewhere = counter.try_clone()?;
/// let counter = AsyncFd::new(counter)?;
///
/// tourbillon::spawn(async move { elsewhere.write_all(&7_u64.to_ne_bytes()) });
/// let mut bytes = [0; 8];
/// loop {
///     let mut guard = counter.readable().await?;
///     match guard.try_io(|counter| counter.get_ref().read(&mut bytes)) {
///         Ok(result) => break assert_eq!(result?, 8),
///         Err(_would_block) => continue,
///     }
/// }
/// assert_eq!(u64::from_ne_bytes(bytes), 7);
///
/// // `async_io` runs this loop:
/// counter.get_ref().write_all(&1_u64.to_ne_bytes())?;
/// counter.async_io(Interest::READABLE, |mut counter| counter.read(&mut bytes)).await?;
/// assert_eq!(u64::from_ne_bytes(bytes), 1);
/// # io::Result::Ok(())
/// # })?;
/// # io::Result::Ok(())
/// ```
pub struct AsyncFd<T: AsFd> {
    registration: Registration<T>,
    interest: Interest,
}

impl<T: AsFd> AsyncFd<T> {
    /// Watches a descriptor for both directions.
    ///
    /// # Errors
    ///
    /// Fails if there is no runtime, or if it has been shut down. Returns [`NotPollable`], inside
    /// of an error of kind `PermissionDenied`, for regular files and directories. Returns
    /// `AlreadyExists` if this worker watches the descriptor already.
    ///
    /// ```
    /// use tourbillon::io::{AsyncFd, NotPollable};
    ///
    /// # tourbillon::Runtime::new().unwrap().block_on(async {
    /// let file = std::fs::File::open("/proc/self/exe").unwrap();
    /// let error = AsyncFd::new(file).unwrap_err();
    /// assert!(error.get_ref().is_some_and(|inner| inner.is::<NotPollable>()));
    /// # });
    /// ```
    pub fn new(inner: T) -> io::Result<Self> {
        Self::with_interest(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a descriptor for `interest` alone. Waiting for anything else is an error, except for
    /// [`Interest::ERROR`], which the system always reports.
    ///
    /// # Errors
    ///
    /// See [`new`](AsyncFd::new).
    ///
    /// ```
    /// use std::{io::{ErrorKind, Read}, os::unix::net::UnixStream};
    /// use tourbillon::io::{AsyncFd, Interest};
    ///
    /// # tourbillon::Runtime::new()?.block_on(async {
    /// let (ours, theirs) = UnixStream::pair()?;
    /// ours.set_nonblocking(true)?;
    /// let ours = AsyncFd::with_interest(ours, Interest::READABLE)?;
    /// drop(theirs);
    /// let n = ours.async_io(Interest::READABLE, |mut ours| ours.read(&mut [0])).await?;
    /// assert_eq!(n, 0);
    /// let error = ours.writable().await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::InvalidInput);
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    pub fn with_interest(inner: T, interest: Interest) -> io::Result<Self> {
        Self::try_with_interest(inner, interest).map_err(|error| error.cause)
    }

    /// Watches a descriptor for both directions. On failure, the error returns the wrapped value.
    ///
    /// # Errors
    ///
    /// See [`new`](AsyncFd::new).
    pub fn try_new(inner: T) -> Result<Self, AsyncFdTryNewError<T>> {
        Self::try_with_interest(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a descriptor for `interest` alone. On failure, the error returns the wrapped value.
    ///
    /// # Errors
    ///
    /// See [`new`](AsyncFd::new).
    pub fn try_with_interest(inner: T, interest: Interest) -> Result<Self, AsyncFdTryNewError<T>> {
        match Registration::with_directions(inner, interest.0) {
            Ok(registration) => Ok(Self {
                registration,
                interest,
            }),
            Err((inner, cause)) => {
                let cause = match cause.raw_os_error() {
                    // epoll_ctl(2) returns `EPERM` for kinds that it does not support.
                    Some(libc::EPERM) => io::Error::new(cause.kind(), NotPollable(())),
                    _ => cause,
                };
                Err(AsyncFdTryNewError { inner, cause })
            }
        }
    }

    /// Returns the wrapped value.
    pub fn get_ref(&self) -> &T {
        self.registration.get()
    }

    /// Returns the wrapped value mutably. The caller must not replace its descriptor.
    pub fn get_mut(&mut self) -> &mut T {
        self.registration.get_mut()
    }

    /// Stops the watch, and returns the wrapped value.
    pub fn into_inner(self) -> T {
        self.registration.into_inner()
    }

    /// Returns the last known readiness for `interest`, without waiting and without a system call.
    ///
    /// It is empty until the first event. Readiness stays until an operation that would block
    /// clears it, so an operation may still find the descriptor not ready.
    ///
    /// ```
    /// use std::{io::Write, os::unix::net::UnixStream};
    /// use tourbillon::io::{AsyncFd, Interest};
    ///
    /// # tourbillon::Runtime::new()?.block_on(async {
    /// let (ours, mut theirs) = UnixStream::pair()?;
    /// ours.set_nonblocking(true)?;
    /// let ours = AsyncFd::new(ours)?;
    /// assert!(!ours.last_readiness(Interest::READABLE)?.is_readable());
    /// theirs.write_all(b"data")?;
    /// drop(ours.readable().await?);
    /// assert!(ours.last_readiness(Interest::READABLE)?.is_readable());
    /// # std::io::Result::Ok(())
    /// # })?;
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub fn last_readiness(&self, interest: Interest) -> io::Result<Ready> {
        self.allow(interest)?;
        Ok(Ready::of(self.registration.readiness().now()?, interest))
    }

    /// Waits until the descriptor is ready in at least one direction of `interest`.
    ///
    /// Any number of tasks may wait, and dropping one future does not affect the others.
    ///
    /// # Errors
    ///
    /// Fails if the runtime is shut down, or if the descriptor is not watched for `interest`.
    pub async fn ready(&self, interest: Interest) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.allow(interest)?;
        let ready = self.registration.ready(interest.0).await?;
        Ok(AsyncFdReadyGuard::new(self, ready, interest))
    }

    /// Waits like [`ready`](AsyncFd::ready), for a guard that passes the wrapped value mutably.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub async fn ready_mut(
        &mut self,
        interest: Interest,
    ) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.allow(interest)?;
        let ready = self.registration.ready(interest.0).await?;
        Ok(AsyncFdReadyMutGuard::new(self, ready, interest))
    }

    /// Waits until there is data to read, or the end of the stream.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Waits until there is room to write, or the reader is gone.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// Waits like [`readable`](AsyncFd::readable), for a guard that passes the wrapped value
    /// mutably.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub async fn readable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::READABLE).await
    }

    /// Waits like [`writable`](AsyncFd::writable), for a guard that passes the wrapped value
    /// mutably.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub async fn writable_mut(&mut self) -> io::Result<AsyncFdReadyMutGuard<'_, T>> {
        self.ready_mut(Interest::WRITABLE).await
    }

    /// Attempts [`readable`](AsyncFd::readable) from a `poll` function.
    /// Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub fn poll_read_ready<'a>(
        &'a self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let interest = Interest::READABLE;
        let ready = ready!(self.poll_ready(cx, Direction::Read, interest))?;
        Poll::Ready(Ok(AsyncFdReadyGuard::new(self, ready, interest)))
    }

    /// Attempts [`readable_mut`](AsyncFd::readable_mut) from a `poll` function.
    /// Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub fn poll_read_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let interest = Interest::READABLE;
        let ready = ready!(self.poll_ready(cx, Direction::Read, interest))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard::new(self, ready, interest)))
    }

    /// Attempts [`writable`](AsyncFd::writable) from a `poll` function.
    /// Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub fn poll_write_ready<'a>(
        &'a self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        let interest = Interest::WRITABLE;
        let ready = ready!(self.poll_ready(cx, Direction::Write, interest))?;
        Poll::Ready(Ok(AsyncFdReadyGuard::new(self, ready, interest)))
    }

    /// Attempts [`writable_mut`](AsyncFd::writable_mut) from a `poll` function.
    /// Only the last task to poll is woken.
    ///
    /// # Errors
    ///
    /// See [`ready`](AsyncFd::ready).
    pub fn poll_write_ready_mut<'a>(
        &'a mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyMutGuard<'a, T>>> {
        let interest = Interest::WRITABLE;
        let ready = ready!(self.poll_ready(cx, Direction::Write, interest))?;
        Poll::Ready(Ok(AsyncFdReadyMutGuard::new(self, ready, interest)))
    }

    fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        interest: Interest,
    ) -> Poll<io::Result<reactor::Ready>> {
        self.allow(interest)?;
        self.registration.poll_ready(cx, direction)
    }

    /// Runs `operation` when the descriptor seems ready, and waits again each time it returns
    /// `WouldBlock`. This is the loop of [`ready`](AsyncFd::ready) and
    /// [`AsyncFdReadyGuard::try_io`]. If `operation` returns `Interrupted`, it runs again at once;
    /// tokio's returns this error.
    ///
    /// `operation` must return `WouldBlock` only if the descriptor is not ready.
    ///
    /// # Errors
    ///
    /// Returns the error of `operation`. See also [`ready`](AsyncFd::ready).
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.allow(interest)?;
        self.registration.io(interest.0, operation).await
    }

    /// Runs `operation` like [`async_io`](AsyncFd::async_io), with the wrapped value mutably.
    ///
    /// # Errors
    ///
    /// See [`async_io`](AsyncFd::async_io).
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut operation: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        loop {
            let mut guard = self.ready_mut(interest).await?;
            match guard.try_io(|fd| operation(fd.get_mut())) {
                // A signal came first. The descriptor is still ready.
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(result) => return result,
                Err(_would_block) => {}
            }
        }
    }

    /// Runs `operation` once without waiting, even if no event has been seen yet. If it returns
    /// `WouldBlock`, the next task that waits for readiness waits for a new event.
    ///
    /// # Errors
    ///
    /// Returns the error of `operation`. See also [`ready`](AsyncFd::ready).
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.allow(interest)?;
        self.registration.try_once(interest.0, operation)
    }

    /// Runs `operation` like [`try_io`](AsyncFd::try_io), with the wrapped value mutably.
    ///
    /// # Errors
    ///
    /// See [`try_io`](AsyncFd::try_io).
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        operation: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.allow(interest)?;
        // Read before the operation: an event that arrives during it must not be cleared.
        let seen = self.registration.readiness().now()?;
        let result = operation(self.get_mut());
        if matches!(&result, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
            self.clear_blocked(seen, interest);
        }
        result
    }

    /// Fails if `interest` is not watched: such a wait would never end.
    fn allow(&self, interest: Interest) -> io::Result<()> {
        // epoll reports only what it watches for, and errors. A wait for anything else would never
        // end.
        match interest.remove(self.interest | Interest::ERROR) {
            None => Ok(()),
            Some(more) => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!(
                    "the descriptor is watched for {:?} alone, and not for {more:?}",
                    self.interest
                ),
            )),
        }
    }

    /// Clears the readiness for `interest` after an operation returned `WouldBlock`.
    pub(super) fn clear_blocked(&self, seen: reactor::Ready, interest: Interest) {
        self.registration.clear_blocked(seen, interest.0);
    }

    /// Clears the flags of `ready`, except for the end of the stream, which operations find again
    /// and again.
    pub(super) fn clear(&self, seen: reactor::Ready, ready: Ready) {
        if let Some(directions) = ready.directions() {
            self.registration.clear(seen, directions);
        }
    }
}

impl<T: AsFd + Sync> Source for AsyncFd<T> {}

impl<T: AsFd + Sync> Sealed for AsyncFd<T> {
    fn watched(&self, interest: Interest) -> io::Result<Watched<'_>> {
        self.allow(interest)?;
        Ok((&self.registration).into())
    }
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFd")
            .field("inner", self.get_ref())
            .field("interest", &self.interest)
            .finish()
    }
}

/// The descriptor is of a kind that epoll does not support, such as a regular file or a directory.
/// Its operations never wait for readiness. Run them in
/// [`spawn_blocking`](crate::task::spawn_blocking).
#[derive(Debug)]
pub struct NotPollable(());

impl fmt::Display for NotPollable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "epoll does not watch descriptors of this kind, such as those of regular files and \
             directories: use `spawn_blocking` for them",
        )
    }
}

impl Error for NotPollable {}

/// A descriptor that could not be watched, with the error. See [`AsyncFd::try_new`].
pub struct AsyncFdTryNewError<T> {
    inner: T,
    cause: io::Error,
}

/// Another name of [`AsyncFdTryNewError`], which tokio has, too.
pub type AsyncFdRegisterError<T> = AsyncFdTryNewError<T>;

impl<T> AsyncFdTryNewError<T> {
    /// Returns the wrapped value and the error.
    pub fn into_parts(self) -> (T, io::Error) {
        (self.inner, self.cause)
    }
}

impl<T> fmt::Display for AsyncFdTryNewError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl<T> fmt::Debug for AsyncFdTryNewError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}

impl<T> Error for AsyncFdTryNewError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl<T> From<AsyncFdTryNewError<T>> for io::Error {
    fn from(error: AsyncFdTryNewError<T>) -> Self {
        error.cause
    }
}
