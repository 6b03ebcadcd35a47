//! Timerfds. They end the sleeps of workers, and watch the clocks that no wait of a worker follows.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use super::check;

/// A clock of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clock {
    /// `CLOCK_MONOTONIC`, which nothing can set.
    Monotonic,
    /// `CLOCK_REALTIME`, which can be set.
    Realtime,
    /// `CLOCK_BOOTTIME`, which continues while the machine is suspended.
    Boottime,
}

/// A timerfd.
#[derive(Debug)]
pub(crate) struct TimerFd {
    fd: OwnedFd,
    clock: Clock,
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

impl TimerFd {
    pub(crate) fn new(clock: Clock) -> io::Result<Self> {
        let id = match clock {
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Realtime => libc::CLOCK_REALTIME,
            Clock::Boottime => libc::CLOCK_BOOTTIME,
        };
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: the call takes no pointers. The result is checked before it becomes an `OwnedFd`.
        let fd = check(unsafe { libc::timerfd_create(id, flags) })?;
        // SAFETY: nothing else owns this new descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { fd, clock })
    }

    /// Makes the descriptor readable once, after `after`, which counts as at least 1 ns.
    pub(crate) fn set(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm the timerfd.
        self.set_time(after.max(Duration::from_nanos(1)), 0)
    }

    /// Makes the descriptor readable once its clock shows `at`. If the clock can be set, also makes
    /// it readable each time that happens.
    ///
    /// # Errors
    ///
    /// Returns `ECANCELED` if the clock was set since the last [`take`](TimerFd::take). The timerfd
    /// is armed nevertheless.
    pub(crate) fn set_at(&self, at: Duration) -> io::Result<()> {
        let flags = match self.clock {
            Clock::Realtime => libc::TFD_TIMER_ABSTIME | libc::TFD_TIMER_CANCEL_ON_SET,
            Clock::Monotonic | Clock::Boottime => libc::TFD_TIMER_ABSTIME,
        };
        self.set_time(at.max(Duration::from_nanos(1)), flags)
    }

    /// Disarms the timerfd.
    pub(crate) fn unset(&self) -> io::Result<()> {
        self.set_time(Duration::ZERO, 0)
    }

    /// Reads the timerfd. Returns whether it was readable because its clock was set.
    pub(crate) fn take(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: the buffer has room for the eight bytes that a timerfd writes.
        let read = unsafe {
            libc::read(
                self.fd.as_raw_fd(),
                (&raw mut count).cast(),
                size_of::<u64>(),
            )
        };
        read < 0 && is_step(&io::Error::last_os_error())
    }

    fn set_time(&self, time: Duration, flags: libc::c_int) -> io::Result<()> {
        let spec = libc::itimerspec {
            it_interval: timespec(Duration::ZERO),
            it_value: timespec(time),
        };
        // SAFETY: `spec` is a valid itimerspec, and the old value is not requested.
        check(unsafe {
            libc::timerfd_settime(self.fd.as_raw_fd(), flags, &spec, std::ptr::null_mut())
        })?;
        Ok(())
    }
}

/// Returns whether this error means that the clock of a timerfd was set.
pub(crate) fn is_step(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECANCELED)
}

impl AsRawFd for TimerFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
