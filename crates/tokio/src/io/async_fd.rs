//! Readiness of any file descriptor.
//!
//! Tourbillon's `AsyncFd` wraps a value that lends its descriptor ([`AsFd`]). tokio's wraps one
//! that names it ([`AsRawFd`]), so the types here do that.

use std::{
    error::Error,
    fmt, io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Context, Poll, ready},
};

use tourbillon::io as ours;

use super::{Interest, Ready, unix::TryIoError};
use crate::context::need_io;

/// A value that names its descriptor.
#[derive(Debug)]
struct Named<T>(T);

impl<T: AsRawFd> AsFd for Named<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let number = match self.0.as_raw_fd() {
            // No `BorrowedFd` may have this number. No descriptor has the other one either, so the
            // system refuses both with the same error.
            -1 => RawFd::MIN,
            number => number,
        };
        // SAFETY: the caller of `register` promises that the descriptor stays open as long as the
        // value. tokio's constructors that are not unsafe are deprecated for that reason.
        unsafe { BorrowedFd::borrow_raw(number) }
    }
}

/// Makes a descriptor awaitable. It must be nonblocking, and stay open as long as this.
#[repr(transparent)]
pub struct AsyncFd<T: AsRawFd>(ours::AsyncFd<Named<T>>);

/// A value whose descriptor cannot be watched, and why.
pub struct AsyncFdRegisterError<T> {
    inner: T,
    cause: io::Error,
}

/// The old name of [`AsyncFdRegisterError`].
#[deprecated(note = "use `AsyncFdRegisterError` instead")]
pub type AsyncFdTryNewError<T> = AsyncFdRegisterError<T>;

impl<T> AsyncFdRegisterError<T> {
    /// Returns the value and the cause.
    pub fn into_parts(self) -> (T, io::Error) {
        (self.inner, self.cause)
    }
}

impl<T> fmt::Display for AsyncFdRegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.cause, f)
    }
}

impl<T> fmt::Debug for AsyncFdRegisterError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.cause, f)
    }
}

impl<T> Error for AsyncFdRegisterError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.cause)
    }
}

impl<T> From<AsyncFdRegisterError<T>> for io::Error {
    fn from(error: AsyncFdRegisterError<T>) -> Self {
        error.cause
    }
}

impl<T: AsRawFd> AsyncFd<T> {
    /// Watches a descriptor for reading and writing.
    ///
    /// # Safety
    ///
    /// The descriptor must be that of `inner`, and stay open as long as `inner`.
    ///
    /// # Errors
    ///
    /// Fails if epoll cannot watch the descriptor.
    ///
    /// # Panics
    ///
    /// Panics outside of a runtime, and in one without sockets.
    #[track_caller]
    pub unsafe fn register(inner: T) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::watch(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a descriptor for `interest`.
    ///
    /// # Safety
    ///
    /// See [`register`](AsyncFd::register).
    ///
    /// # Errors
    ///
    /// See [`register`](AsyncFd::register).
    #[track_caller]
    pub unsafe fn register_with_interest(
        inner: T,
        interest: Interest,
    ) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::watch(inner, interest)
    }

    /// Watches a descriptor for reading and writing.
    ///
    /// # Errors
    ///
    /// See [`register`](AsyncFd::register).
    #[deprecated(note = "use `register` instead")]
    #[track_caller]
    pub fn new(inner: T) -> io::Result<Self> {
        Ok(Self::watch(inner, Interest::READABLE | Interest::WRITABLE)?)
    }

    /// Watches a descriptor for `interest`.
    ///
    /// # Errors
    ///
    /// See [`register`](AsyncFd::register).
    #[deprecated(note = "use `register_with_interest` instead")]
    #[track_caller]
    pub fn with_interest(inner: T, interest: Interest) -> io::Result<Self> {
        Ok(Self::watch(inner, interest)?)
    }

    /// Watches a descriptor for reading and writing, and returns the value with an error.
    ///
    /// # Errors
    ///
    /// See [`register`](AsyncFd::register).
    #[deprecated(note = "use `register` instead")]
    #[track_caller]
    pub fn try_new(inner: T) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::watch(inner, Interest::READABLE | Interest::WRITABLE)
    }

    /// Watches a descriptor for `interest`, and returns the value with an error.
    ///
    /// # Errors
    ///
    /// See [`register`](AsyncFd::register).
    #[deprecated(note = "use `register_with_interest` instead")]
    #[track_caller]
    pub fn try_with_interest(
        inner: T,
        interest: Interest,
    ) -> Result<Self, AsyncFdRegisterError<T>> {
        Self::watch(inner, interest)
    }

    #[track_caller]
    fn watch(inner: T, interest: Interest) -> Result<Self, AsyncFdRegisterError<T>> {
        need_io();
        match ours::AsyncFd::try_with_interest(Named(inner), interest) {
            Ok(fd) => Ok(Self(fd)),
            Err(error) => {
                let (Named(inner), cause) = error.into_parts();
                Err(AsyncFdRegisterError { inner, cause })
            }
        }
    }

    /// Returns the value.
    pub fn get_ref(&self) -> &T {
        &self.0.get_ref().0
    }

    /// Returns the value. Its descriptor must stay the same.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.0.get_mut().0
    }

    /// Ends the watch, and returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner().0
    }

    /// Runs `f` when the descriptor seems ready, and again after `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Returns the error of `f`, or an error if the runtime is shut down.
    pub async fn async_io<R>(
        &self,
        interest: Interest,
        mut f: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.async_io(interest, |inner| f(&inner.0)).await
    }

    /// Runs `f` when the descriptor seems ready, and again after `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Returns the error of `f`, or an error if the runtime is shut down.
    pub async fn async_io_mut<R>(
        &mut self,
        interest: Interest,
        mut f: impl FnMut(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.async_io_mut(interest, |inner| f(&mut inner.0)).await
    }

    /// Runs `f` once, which must return `WouldBlock` only if the descriptor is not ready.
    ///
    /// # Errors
    ///
    /// Returns the error of `f`.
    pub fn try_io<R>(
        &self,
        interest: Interest,
        f: impl FnOnce(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.try_io(interest, |inner| f(&inner.0))
    }

    /// Runs `f` once, which must return `WouldBlock` only if the descriptor is not ready.
    ///
    /// # Errors
    ///
    /// Returns the error of `f`.
    pub fn try_io_mut<R>(
        &mut self,
        interest: Interest,
        f: impl FnOnce(&mut T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.try_io_mut(interest, |inner| f(&mut inner.0))
    }
}

/// Defines the methods that wait, and return a guard.
macro_rules! waits {
    ($Guard:ident, [$($mut:tt)?], $ready:ident, $readable:ident, $writable:ident,
        $poll_read:ident, $poll_write:ident) => {
        impl<T: AsRawFd> AsyncFd<T> {
            /// Waits until the descriptor seems ready in a direction of `interest`.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if the watch lacks a direction.
            pub async fn $ready(&$($mut)? self, interest: Interest) -> io::Result<$Guard<'_, T>> {
                self.0.$ready(interest).await.map($Guard)
            }

            /// Waits until the descriptor seems ready for reading.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if the watch lacks the direction.
            pub async fn $readable(&$($mut)? self) -> io::Result<$Guard<'_, T>> {
                self.0.$readable().await.map($Guard)
            }

            /// Waits until the descriptor seems ready for writing.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if the watch lacks the direction.
            pub async fn $writable(&$($mut)? self) -> io::Result<$Guard<'_, T>> {
                self.0.$writable().await.map($Guard)
            }

            /// Polls for readiness for reading. Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if the watch lacks the direction.
            pub fn $poll_read<'a>(
                &'a $($mut)? self,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<$Guard<'a, T>>> {
                Poll::Ready(ready!(self.0.$poll_read(cx)).map($Guard))
            }

            /// Polls for readiness for writing. Only the last task to poll is woken.
            ///
            /// # Errors
            ///
            /// Fails if the runtime is shut down, or if the watch lacks the direction.
            pub fn $poll_write<'a>(
                &'a $($mut)? self,
                cx: &mut Context<'_>,
            ) -> Poll<io::Result<$Guard<'a, T>>> {
                Poll::Ready(ready!(self.0.$poll_write(cx)).map($Guard))
            }
        }
    };
}

waits!(
    AsyncFdReadyGuard,
    [],
    ready,
    readable,
    writable,
    poll_read_ready,
    poll_write_ready
);
waits!(
    AsyncFdReadyMutGuard,
    [mut],
    ready_mut,
    readable_mut,
    writable_mut,
    poll_read_ready_mut,
    poll_write_ready_mut
);

impl<T: AsRawFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.get_ref().as_raw_fd()
    }
}

impl<T: AsRawFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

impl<T: AsRawFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncFd")
            .field("inner", self.get_ref())
            .finish()
    }
}

/// Returns the wrapper of what a guard holds.
fn wrapper<T: AsRawFd>(fd: &ours::AsyncFd<Named<T>>) -> &AsyncFd<T> {
    // SAFETY: `AsyncFd` is a transparent wrapper of this type, so both have one layout.
    unsafe { &*std::ptr::from_ref(fd).cast() }
}

/// Returns the wrapper of what a guard holds.
fn wrapper_mut<T: AsRawFd>(fd: &mut ours::AsyncFd<Named<T>>) -> &mut AsyncFd<T> {
    // SAFETY: as above, and the borrow is exclusive as long as the result.
    unsafe { &mut *std::ptr::from_mut(fd).cast() }
}

/// Defines a guard.
macro_rules! guards {
    ($($(#[$doc:meta])* $Guard:ident;)*) => {$(
        $(#[$doc])*
        #[must_use = "readiness stays set until it is cleared"]
        pub struct $Guard<'a, T: AsRawFd>(ours::$Guard<'a, Named<T>>);

        impl<T: AsRawFd> $Guard<'_, T> {
            /// Clears the readiness, unless a new event has arrived. The end of the stream stays.
            pub fn clear_ready(&mut self) {
                self.0.clear_ready();
            }

            /// Clears a part of the readiness.
            pub fn clear_ready_matching(&mut self, ready: Ready) {
                self.0.clear_ready_matching(ready);
            }

            /// Leaves the readiness set. This method does nothing.
            pub fn retain_ready(&mut self) {
                self.0.retain_ready();
            }

            /// Returns the readiness that was found.
            pub fn ready(&self) -> Ready {
                self.0.ready()
            }
        }

        impl<T: AsRawFd + fmt::Debug> fmt::Debug for $Guard<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }
    )*};
}

guards! {
    /// Proof that an [`AsyncFd`] was ready.
    AsyncFdReadyGuard;
    /// Proof that an [`AsyncFd`] was ready, which passes its value mutably.
    AsyncFdReadyMutGuard;
}

impl<'a, T: AsRawFd> AsyncFdReadyGuard<'a, T> {
    /// Runs an operation, and clears the readiness if it returns `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Returns an error if the operation would block. Its other errors are in the inner result.
    pub fn try_io<R>(
        &mut self,
        f: impl FnOnce(&'a AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        self.0.try_io(|fd| f(wrapper(fd)))
    }

    /// Returns the `AsyncFd` of this guard.
    pub fn get_ref(&self) -> &'a AsyncFd<T> {
        wrapper(self.0.get_ref())
    }

    /// Returns the value.
    pub fn get_inner(&self) -> &'a T {
        &self.0.get_inner().0
    }
}

impl<T: AsRawFd> AsyncFdReadyMutGuard<'_, T> {
    /// Runs an operation, and clears the readiness if it returns `WouldBlock`.
    ///
    /// # Errors
    ///
    /// Returns an error if the operation would block. Its other errors are in the inner result.
    pub fn try_io<R>(
        &mut self,
        f: impl FnOnce(&mut AsyncFd<T>) -> io::Result<R>,
    ) -> Result<io::Result<R>, TryIoError> {
        self.0.try_io(|fd| f(wrapper_mut(fd)))
    }

    /// Returns the `AsyncFd` of this guard.
    pub fn get_ref(&self) -> &AsyncFd<T> {
        wrapper(self.0.get_ref())
    }

    /// Returns the `AsyncFd` of this guard.
    pub fn get_mut(&mut self) -> &mut AsyncFd<T> {
        wrapper_mut(self.0.get_mut())
    }

    /// Returns the value.
    pub fn get_inner(&self) -> &T {
        &self.0.get_inner().0
    }

    /// Returns the value.
    pub fn get_inner_mut(&mut self) -> &mut T {
        &mut self.0.get_inner_mut().0
    }
}
