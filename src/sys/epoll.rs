//! An epoll instance that waits to the nanosecond.
//!
//! `epoll_wait` counts in milliseconds. `epoll_pwait2` (Linux 5.11) takes a `timespec`; below that, a
//! timerfd in the same instance does the waking.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::OnceLock,
    time::Duration,
};

use super::{check, timerfd::TimerFd};

/// Readable, as a condition on a descriptor.
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32;
/// Urgent data.
pub(crate) const PRIORITY: u32 = libc::EPOLLPRI as u32;
/// Writable.
pub(crate) const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer will send no more.
pub(crate) const READ_CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// Both directions are gone.
pub(crate) const CLOSED: u32 = libc::EPOLLHUP as u32;
/// An error is pending.
pub(crate) const ERROR: u32 = libc::EPOLLERR as u32;

const EDGE: u32 = libc::EPOLLET as u32;
/// The token of the timerfd, which callers do not see.
const TIMER: u64 = u64::MAX;

/// How an [`Epoll`] waits.
#[derive(Debug)]
enum Wait {
    Pwait2,
    Timer(TimerFd),
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    wait: Wait,
}

/// What happened to one descriptor.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(crate) struct Event(libc::epoll_event);

impl Event {
    pub(crate) fn token(&self) -> u64 {
        self.0.u64
    }

    pub(crate) fn is(&self, conditions: u32) -> bool {
        self.0.events & conditions != 0
    }
}

/// Room for the events of one wait.
pub(crate) struct Events(Vec<Event>);

impl Events {
    pub(crate) fn with_capacity(capacity: usize) -> Self {
        Self(Vec::with_capacity(capacity.max(1)))
    }

    /// The events of the last wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter().filter(|event| event.token() != TIMER)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Whether this kernel has `epoll_pwait2`; asked once.
pub(crate) fn has_pwait2() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // A bad descriptor: EBADF from a kernel that knows the call, ENOSYS from one that does not
        // (and EPERM from a sandbox that does not let it through).
        // SAFETY: nothing is written, since the descriptor is refused.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                -1,
                std::ptr::null_mut::<libc::epoll_event>(),
                1,
                std::ptr::null::<libc::timespec>(),
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let error = io::Error::last_os_error().raw_os_error();
        answer < 0 && matches!(error, Some(libc::EBADF | libc::EFAULT | libc::EINVAL))
    })
}

impl Epoll {
    /// A new instance, which waits by `epoll_pwait2` if `pwait2` says so, or by a timerfd.
    pub(crate) fn new(pwait2: bool) -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: a fresh descriptor that nobody else owns.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let mut epoll = Self {
            fd,
            wait: Wait::Pwait2,
        };
        if !pwait2 {
            let timer = TimerFd::new()?;
            epoll.add(timer.as_raw_fd(), TIMER, READABLE)?;
            epoll.wait = Wait::Timer(timer);
        }
        Ok(epoll)
    }

    /// Watches `fd` for `conditions`, edge-triggered. Closing `fd` ends the watch, unless it was
    /// duplicated.
    pub(crate) fn add(&self, fd: RawFd, token: u64, conditions: u32) -> io::Result<()> {
        let mut event = libc::epoll_event {
            events: conditions | EDGE,
            u64: token,
        };
        // SAFETY: `event` lives through the call.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event)
        })?;
        Ok(())
    }

    /// Watches `fd` no more.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: no event is needed for a removal (since Linux 2.6.9).
        check(unsafe {
            libc::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Waits for events, at most for `timeout` (`None`: for ever), but not less. A signal ends the
    /// wait early, without events.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<Duration>) -> io::Result<()> {
        events.0.clear();
        let room = events.0.capacity().try_into().unwrap_or(libc::c_int::MAX);
        let buffer = events.0.as_mut_ptr().cast::<libc::epoll_event>();
        let fd = self.fd.as_raw_fd();
        let count = match (&self.wait, timeout) {
            (Wait::Pwait2, Some(timeout)) if !timeout.is_zero() => {
                let timeout = timespec(timeout);
                // SAFETY: `buffer` has room for `room` events, and `timeout` lives through the
                // call. glibc's wrapper is younger than the system call.
                let count = unsafe {
                    libc::syscall(
                        libc::SYS_epoll_pwait2,
                        fd,
                        buffer,
                        room,
                        &raw const timeout,
                        std::ptr::null::<libc::sigset_t>(),
                        0_usize,
                    )
                };
                count as libc::c_int
            }
            (wait, timeout) => {
                let millis = match (wait, timeout) {
                    (_, Some(Duration::ZERO)) => 0,
                    (Wait::Timer(timer), Some(timeout)) => {
                        timer.set(timeout)?;
                        -1
                    }
                    (_, _) => -1,
                };
                // SAFETY: `buffer` has room for `room` events.
                unsafe { libc::epoll_wait(fd, buffer, room, millis) }
            }
        };
        match check(count) {
            // SAFETY: the kernel wrote `count` events into the buffer, which has room for them, and
            // `Event` is transparent.
            Ok(count) => unsafe { events.0.set_len(count as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::eventfd::EventFd;
    use std::time::Instant;

    fn waits_no_less_than_asked(pwait2: bool) {
        let epoll = Epoll::new(pwait2).unwrap();
        let mut events = Events::with_capacity(4);
        for micros in [1, 50, 700, 3_000] {
            let timeout = Duration::from_micros(micros);
            let start = Instant::now();
            epoll.wait(&mut events, Some(timeout)).unwrap();
            assert!(start.elapsed() >= timeout);
            assert_eq!(events.iter().count(), 0);
        }
        epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
        assert_eq!(events.iter().count(), 0);
    }

    #[test]
    fn pwait2_waits_no_less_than_asked() {
        if has_pwait2() {
            waits_no_less_than_asked(true);
        }
    }

    #[test]
    fn timerfd_waits_no_less_than_asked() {
        waits_no_less_than_asked(false);
    }

    #[test]
    fn each_write_is_an_edge_though_nobody_reads() {
        let epoll = Epoll::new(false).unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            eventfd.write();
            epoll.wait(&mut events, None).unwrap();
            assert_eq!(events.iter().map(Event::token).collect::<Vec<_>>(), [7]);
            epoll.wait(&mut events, Some(Duration::ZERO)).unwrap();
            assert_eq!(events.iter().count(), 0);
        }
    }
}
