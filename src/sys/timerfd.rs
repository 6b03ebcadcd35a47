//! timerfds: what wakes a worker in time where `epoll_pwait2` is not precise, or not there, and
//! what tells of the clocks that it cannot wait for.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::{check, kernel};

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// `CLOCK_REALTIME`, which may be set.
    Realtime,
    /// `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
    Boottime,
}

/// A timerfd.
#[derive(Debug)]
pub(crate) struct TimerFd {
    fd: OwnedFd,
    clock: Clock,
}

impl TimerFd {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let id = match clock {
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Realtime => libc::CLOCK_REALTIME,
            Clock::Boottime => libc::CLOCK_BOOTTIME,
        };
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = check(unsafe { kernel::timerfd_create(id, flags) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, clock })
    }

    /// Makes the descriptor readable once, `after` from now (at least 1 ns), and not before.
    pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm it.
        self.set_time(after.max(Duration::from_nanos(1)), 0)
    }

    /// Makes the descriptor readable once, when its clock says `at` (since its zero), and whenever
    /// a clock that can be set is set.
    ///
    /// # Errors
    ///
    /// `ECANCELED` if the clock was set since the last [`take`](TimerFd::take). The descriptor is
    /// set all the same.
    pub(crate) fn set_at(&self, at: Duration) -> io::Result<()> {
        let flags = match self.clock {
            Clock::Realtime => libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET,
            Clock::Monotonic | Clock::Boottime => libc::TFD_TIMER_ABSTIME,
        };
        self.set_time(at.max(Duration::from_nanos(1)), flags)
    }

    /// Does not make the descriptor readable any more.
    pub(crate) fn unset(&self) -> io::Result<()> {
        self.set_time(Duration::ZERO, 0)
    }

    /// Takes note that the descriptor is readable; true if that is because its clock was set.
    pub(crate) fn take(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: eight writable bytes, as a timerfd wants them.
        let read = unsafe {
            kernel::read(
                self.fd.as_raw_fd(),
                (&raw mut count).cast(),
                size_of::<u64>(),
            )
        };
        read < 0 && is_step(&io::Error::last_os_error())
    }

    fn set_time(&self, time: Duration, flags: libc::c_int) -> io::Result<()> {
        let spec = libc::itimerspec {
            it_interval: super::epoll::timespec(Duration::ZERO),
            it_value: super::epoll::timespec(time),
        };
        // SAFETY: `spec` is a valid itimerspec, and the old value is not asked for.
        check(unsafe {
            kernel::timerfd_settime(self.fd.as_raw_fd(), flags, &spec, std::ptr::null_mut())
        })?;
        Ok(())
    }
}

/// Returns whether this is how a timerfd tells that its clock was set.
pub(crate) fn is_step(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
