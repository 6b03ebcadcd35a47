//! The timerfd by which a worker wakes in time where `epoll_pwait2` is not precise, or not there.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::check;

/// A timerfd on `CLOCK_MONOTONIC`.
#[derive(Debug)]
pub(crate) struct TimerFd(OwnedFd);

impl TimerFd {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = check(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes the descriptor readable once, `after` from now (at least 1 ns), and not before.
    pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm it.
        self.set_time(after.max(Duration::from_nanos(1)))
    }

    /// Does not make the descriptor readable any more.
    pub(crate) fn unset(&self) -> io::Result<()> {
        self.set_time(Duration::ZERO)
    }

    fn set_time(&self, after: Duration) -> io::Result<()> {
        let spec = libc::itimerspec {
            it_interval: super::epoll::timespec(Duration::ZERO),
            it_value: super::epoll::timespec(after),
        };
        // SAFETY: `spec` is a valid itimerspec, and the old value is not asked for.
        check(unsafe {
            libc::timerfd_settime(self.0.as_raw_fd(), 0, &spec, std::ptr::null_mut())
        })?;
        Ok(())
    }
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
