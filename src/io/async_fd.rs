//! Any descriptor that epoll watches.

use std::{
    error::Error,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll, ready},
};

use super::{
    AsyncFdReadyGuard, Interest, Ready, Source,
    source::sealed::{Sealed, Watched},
};
use crate::{
    reactor,
    reactor::{Direction, Registration},
};

/// A descriptor of any kind that epoll watches, on the instance of the worker that it was made on: what
/// sockets are made of, for pipes, eventfds, devices and sockets of other crates.
///
/// The descriptor has to be non-blocking, which is left to who makes it: a blocking one would block its
/// worker. It is watched edge-triggered: once it is found ready it stays so, until an operation finds
/// that it is not and that is told, by [`AsyncFdReadyGuard::try_io`] or
/// [`clear_ready`](AsyncFdReadyGuard::clear_ready). The name and the methods are tokio's, but for
/// those that lend what is wrapped mutably; the type that is wrapped has to be [`AsFd`].
///
/// Dropping it drops what it wraps.
///
/// ```
/// use std::{fs::File, io::{self, Read, Write}};
/// use tourbillon::io::{AsyncFd, Interest};
///
/// # fn eventfd() -> io::Result<File> {
/// #     use std::os::fd::FromRawFd;
/// #     // SAFETY: no pointers; a fresh descriptor that nobody else owns.
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
/// // The loop is what this does, too:
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
    /// Watches a descriptor, for both directions.
    ///
    /// # Errors
    ///
    /// If there is no runtime, it has been shut down, or the system will not watch the descriptor:
    /// [`NotPollable`], inside of an error of kind `PermissionDenied`, for regular files and
    /// directories, and `AlreadyExists` for one that is watched already by this worker.
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

    /// Watches a descriptor for what is of interest alone; it is an error to wait for anything else.
    ///
    /// # Errors
    ///
    /// As for [`new`](AsyncFd::new).
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

    /// As [`new`](AsyncFd::new); the error gives back the descriptor.
    ///
    /// # Errors
    ///
    /// As for [`new`](AsyncFd::new).
    pub fn try_new(inner: T) -> Result<Self, AsyncFdTryNewError<T>> {
        Self::try_with_interest(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// As [`with_interest`](AsyncFd::with_interest); the error gives back the descriptor.
    ///
    /// # Errors
    ///
    /// As for [`new`](AsyncFd::new).
    pub fn try_with_interest(inner: T, interest: Interest) -> Result<Self, AsyncFdTryNewError<T>> {
        match Registration::with_directions(inner, interest.0) {
            Ok(registration) => Ok(Self {
                registration,
                interest,
            }),
            Err((inner, cause)) => {
                let cause = match cause.raw_os_error() {
                    Some(libc::EPERM) => io::Error::new(cause.kind(), NotPollable(())),
                    _ => cause,
                };
                Err(AsyncFdTryNewError { inner, cause })
            }
        }
    }

    /// What is wrapped.
    pub fn get_ref(&self) -> &T {
        self.registration.get()
    }

    /// What is wrapped. It has to keep its descriptor.
    pub fn get_mut(&mut self) -> &mut T {
        self.registration.get_mut()
    }

    /// Ends the watch, and gives back what was wrapped.
    pub fn into_inner(self) -> T {
        self.registration.into_inner()
    }

    /// Waits until the descriptor is ready for some of what is of interest. Any number of tasks may
    /// wait; dropping the future takes nothing from the others.
    ///
    /// # Errors
    ///
    /// If the runtime is shut down, or the descriptor is not watched for that.
    pub async fn ready(&self, interest: Interest) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.allow(interest)?;
        let ready = self.registration.ready(interest.0).await?;
        Ok(self.guard(ready, interest))
    }

    /// Waits until there is something to read, or the end.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready).
    pub async fn readable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::READABLE).await
    }

    /// Waits until there is room to write, or nobody who reads.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready).
    pub async fn writable(&self) -> io::Result<AsyncFdReadyGuard<'_, T>> {
        self.ready(Interest::WRITABLE).await
    }

    /// As [`readable`](AsyncFd::readable), for those who write futures by hand. One task at a time: the
    /// last to ask is woken.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready).
    pub fn poll_read_ready<'a>(
        &'a self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        self.poll_ready(cx, Direction::Read, Interest::READABLE)
    }

    /// As [`writable`](AsyncFd::writable), for those who write futures by hand. One task at a time: the
    /// last to ask is woken.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready).
    pub fn poll_write_ready<'a>(
        &'a self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'a, T>>> {
        self.poll_ready(cx, Direction::Write, Interest::WRITABLE)
    }

    fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        interest: Interest,
    ) -> Poll<io::Result<AsyncFdReadyGuard<'_, T>>> {
        self.allow(interest)?;
        let ready = ready!(self.registration.poll_ready(cx, direction))?;
        Poll::Ready(Ok(self.guard(ready, interest)))
    }

    /// Tries `operation` when the descriptor seems ready, and waits when it answers `WouldBlock`: what
    /// a loop around [`ready`](AsyncFd::ready) and [`AsyncFdReadyGuard::try_io`] does.
    ///
    /// `operation` must not answer `WouldBlock` for any other reason.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready), and those of the operation.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.allow(interest)?;
        self.registration.io(interest.0, operation).await
    }

    /// Tries `operation` once, without waiting. If it answers `WouldBlock`, who waits next waits for
    /// an event. It is tried also if nothing is known of the descriptor yet.
    ///
    /// # Errors
    ///
    /// As for [`ready`](AsyncFd::ready), and those of the operation.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        operation: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.allow(interest)?;
        self.registration.try_once(interest.0, operation)
    }

    /// Who waited for what is not watched would wait for ever.
    fn allow(&self, interest: Interest) -> io::Result<()> {
        match interest.remove(self.interest) {
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

    fn guard(&self, ready: reactor::Ready, interest: Interest) -> AsyncFdReadyGuard<'_, T> {
        AsyncFdReadyGuard::new(self, ready, Ready::of(ready, interest))
    }

    /// An operation would have blocked, for which the descriptor had been `ready`.
    pub(super) fn clear_blocked(&self, seen: reactor::Ready, ready: Ready) {
        if let Some(directions) = ready.directions() {
            self.registration.clear_blocked(seen, directions);
        }
    }

    /// Takes back a part of what was seen; the ends of streams are no such part.
    pub(super) fn clear(&self, seen: reactor::Ready, ready: Ready) {
        let open = ready - Ready::READ_CLOSED - Ready::WRITE_CLOSED;
        if let Some(directions) = open.directions() {
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

/// The descriptor is of a kind that epoll does not watch: a regular file or a directory, whose
/// operations do not wait for anything that could be told. Give them to
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

/// A descriptor that is not watched, and why: see [`AsyncFd::try_new`].
pub struct AsyncFdTryNewError<T> {
    inner: T,
    cause: io::Error,
}

impl<T> AsyncFdTryNewError<T> {
    /// What was to be wrapped, and why it was not.
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
