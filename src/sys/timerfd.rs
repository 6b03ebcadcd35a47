//! The timerfd by which a worker wakes in time where there is no `epoll_pwait2`.

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
        let mut spec = libc::itimerspec {
            it_interval: libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: super::epoll::timespec(after),
        };
        if after.is_zero() {
            // Zero would disarm it.
            spec.it_value.tv_nsec = 1;
        }
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
