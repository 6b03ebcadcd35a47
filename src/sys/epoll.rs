//! An epoll instance that waits to the nanosecond.
//!
//! `epoll_wait` counts in milliseconds. `epoll_pwait2` (Linux 5.11) takes a `timespec`, but the
//! kernel allows itself to be late by a thousandth of the time (a two-hundredth for a nice thread),
//! whatever the thread's timer slack: good for short waits. For longer ones, and for all on older
//! kernels, a timerfd in the same instance does the waking, which is set [as seldom as can
//! be](super::deadline).
//!
//! A process may give up its rights to either call when the instance is there (seccomp). Then it
//! waits by the next that it has: `epoll_pwait2`, the timerfd, milliseconds.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::OnceLock,
    time::Duration,
};

use super::sync::atomic::{AtomicBool, Ordering};
use super::{check, deadline::Deadline, kernel};

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

/// Up to here `epoll_pwait2` is late by 10 µs at the most, which is no more than a wake-up takes.
const SHORT: Duration = Duration::from_millis(10);

/// For how long to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Not at all.
    Zero,
    /// Until an event comes.
    None,
    /// Until a moment that is so long from now: in ns, on a clock that runs as the kernel's does.
    Until { deadline: u64, left: Duration },
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    timer: Deadline,
    /// Whether short waits are by `epoll_pwait2`.
    pwait2: AtomicBool,
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

    fn has_timer(&self) -> bool {
        self.0.iter().any(|event| event.token() == TIMER)
    }
}

pub(crate) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// In ms, and not less.
fn millis(duration: Duration) -> libc::c_int {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    millis.try_into().unwrap_or(libc::c_int::MAX)
}

/// Returns whether the call that has just failed did so because a filter of system calls does not
/// let it through, and not by what it was asked.
#[cold]
fn was_refused() -> bool {
    let error = io::Error::last_os_error().raw_os_error();
    matches!(error, Some(libc::ENOSYS | libc::EPERM | libc::EACCES))
}

/// Returns whether this kernel has `epoll_pwait2`; asked once.
pub(crate) fn has_pwait2() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        // A bad descriptor: EBADF from a kernel that knows the call, ENOSYS from one that does not
        // (and EPERM from a sandbox that does not let it through).
        let timeout = timespec(Duration::ZERO);
        // SAFETY: nothing is written, since the descriptor is refused.
        let answer =
            unsafe { kernel::epoll_pwait2(-1, std::ptr::null_mut(), 1, &raw const timeout) };
        let error = io::Error::last_os_error().raw_os_error();
        answer < 0 && matches!(error, Some(libc::EBADF | libc::EFAULT | libc::EINVAL))
    })
}

impl Epoll {
    /// A new instance, which waits for short times by `epoll_pwait2` if `pwait2` says so.
    pub(crate) fn new(pwait2: bool) -> io::Result<Self> {
        // SAFETY: no pointers; the descriptor is checked before it is owned.
        let fd = check(unsafe { kernel::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let epoll = Self {
            // SAFETY: a fresh descriptor that nobody else owns.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            timer: Deadline::new()?,
            pwait2: AtomicBool::new(pwait2),
        };
        epoll.add(epoll.timer.as_raw_fd(), TIMER, READABLE)?;
        Ok(epoll)
    }

    /// Watches `fd` for `conditions`, edge-triggered. Closing `fd` ends the watch, unless it was
    /// duplicated.
    pub(crate) fn add(&self, fd: RawFd, token: u64, conditions: u32) -> io::Result<()> {
        self.watch(fd, token, conditions | EDGE)
    }

    /// As [`add`](Epoll::add), for a descriptor that several instances watch: of those that wait,
    /// not all are woken.
    pub(crate) fn add_shared(&self, fd: RawFd, token: u64) -> io::Result<()> {
        const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
        self.watch(fd, token, READABLE | EDGE | EXCLUSIVE)
    }

    fn watch(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` lives through the call.
        check(unsafe {
            kernel::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event)
        })?;
        Ok(())
    }

    /// Watches `fd` no more.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: no event is needed for a removal (since Linux 2.6.9).
        check(unsafe {
            kernel::epoll_ctl(
                self.fd.as_raw_fd(),
                libc::EPOLL_CTL_DEL,
                fd,
                std::ptr::null_mut(),
            )
        })?;
        Ok(())
    }

    /// Waits for events, at most for `timeout`, but not less. A signal ends the wait early, without
    /// events.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Timeout) -> io::Result<()> {
        events.0.clear();
        let room = events.0.capacity().try_into().unwrap_or(libc::c_int::MAX);
        let buffer = events.0.as_mut_ptr().cast::<libc::epoll_event>();
        let fd = self.fd.as_raw_fd();
        // SAFETY: `buffer` has room for `room` events.
        let wait = |millis| unsafe { kernel::epoll_wait(fd, buffer, room, millis) };
        let count = match timeout {
            Timeout::Zero => wait(0),
            Timeout::Until { left, .. } if left.is_zero() => wait(0),
            Timeout::Until { deadline, left } => {
                // SAFETY: `buffer` has room for `room` events.
                let count = unsafe { self.wait_short(buffer, room, left) };
                count.unwrap_or_else(|| match self.timer.set(deadline, left) {
                    Ok(()) => wait(-1),
                    Err(_) => wait(millis(left)),
                })
            }
            Timeout::None => {
                // A timerfd that cannot be unset ends the wait for nothing, once.
                let _ = self.timer.unset();
                wait(-1)
            }
        };
        // SAFETY: the kernel has written so many events into the buffer of `events`.
        unsafe { self.waited(events, count) }?;
        if events.has_timer() {
            self.timer.went_off();
        }
        Ok(())
    }

    /// Waits by `epoll_pwait2`, as that answers; `None` if it is not for such a wait, or not there.
    ///
    /// # Safety
    ///
    /// `buffer` has room for `room` events.
    unsafe fn wait_short(
        &self,
        buffer: *mut libc::epoll_event,
        room: libc::c_int,
        left: Duration,
    ) -> Option<libc::c_int> {
        if left > SHORT || !self.pwait2.load(Ordering::Relaxed) {
            return None;
        }
        let timeout = timespec(left);
        // SAFETY: the caller says that there is room, and `timeout` lives through the call.
        let count =
            unsafe { kernel::epoll_pwait2(self.fd.as_raw_fd(), buffer, room, &raw const timeout) };
        if count < 0 && was_refused() {
            self.pwait2.store(false, Ordering::Relaxed);
            return None;
        }
        Some(count)
    }

    /// Takes events in the place of the one who waits here, without waiting. True if that one has
    /// to be woken, because what would have woken it in time is among them.
    pub(crate) fn take(&self, events: &mut Events) -> io::Result<bool> {
        events.0.clear();
        let room = events.0.capacity().try_into().unwrap_or(libc::c_int::MAX);
        let buffer = events.0.as_mut_ptr().cast::<libc::epoll_event>();
        // SAFETY: `buffer` has room for `room` events.
        let count = unsafe { kernel::epoll_wait(self.fd.as_raw_fd(), buffer, room, 0) };
        // SAFETY: the kernel has written so many events into the buffer of `events`.
        unsafe { self.waited(events, count) }?;
        let has_timer = events.has_timer();
        if has_timer {
            self.timer.was_taken();
        }
        Ok(has_timer)
    }

    /// Takes note of how many events there are.
    ///
    /// # Safety
    ///
    /// If `count` is not negative, so many have been written into the buffer of `events`.
    unsafe fn waited(&self, events: &mut Events, count: libc::c_int) -> io::Result<()> {
        match check(count) {
            // SAFETY: the caller says so, and `Event` is transparent.
            Ok(count) => unsafe { events.0.set_len(count as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits for as long as it takes until there are events to be had, and leaves them there. A
    /// signal ends the wait early.
    pub(crate) fn wait_ready(&self) -> io::Result<()> {
        self.poll(-1).map(drop)
    }

    /// Returns whether there are events to be had, for the one who waits here; they are left to it.
    /// From any thread. (An instance that cannot be looked at will not tell who waits of any,
    /// either.)
    pub(crate) fn has_events(&self) -> bool {
        self.poll(0).unwrap_or(false)
    }

    /// Waits for `millis` (−1: without end) until there are events; whether there are.
    fn poll(&self, millis: libc::c_int) -> io::Result<bool> {
        let mut fd = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `fd` is one valid pollfd, and lives through the call.
        match check(unsafe { kernel::poll(&mut fd, 1, millis) }) {
            Ok(ready) => Ok(ready > 0),
            // A signal came, and had there been events, it would have said so.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
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
        for (deadline, micros) in (1..).zip([1, 50, 700, 3_000, 12_000, 20, 15_000]) {
            let left = Duration::from_micros(micros);
            let start = Instant::now();
            epoll
                .wait(&mut events, Timeout::Until { deadline, left })
                .unwrap();
            assert!(start.elapsed() >= left);
            assert_eq!(events.iter().count(), 0);
        }
        epoll.wait(&mut events, Timeout::Zero).unwrap();
        assert_eq!(events.iter().count(), 0);
    }

    #[test]
    fn milliseconds_are_no_less_than_asked() {
        for (nanos, expected) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
            assert_eq!(millis(Duration::from_nanos(nanos)), expected);
        }
        assert_eq!(millis(Duration::MAX), libc::c_int::MAX);
    }

    #[test]
    fn a_deadline_that_is_over_before_its_time_does_not_end_other_waits() {
        let epoll = Epoll::new(false).unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        eventfd.write();
        let left = Duration::from_millis(20);
        epoll
            .wait(&mut events, Timeout::Until { deadline: 1, left })
            .unwrap();
        assert_eq!(events.iter().count(), 1, "the event came first");
        let (left, start) = (Duration::from_millis(60), Instant::now());
        epoll
            .wait(&mut events, Timeout::Until { deadline: 2, left })
            .unwrap();
        assert!(start.elapsed() >= left, "the first deadline is void");
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
    fn events_can_be_seen_from_outside_until_they_are_taken() {
        let epoll = Epoll::new(false).unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            assert!(!epoll.has_events());
            eventfd.write();
            for _ in 0..2 {
                epoll.wait_ready().unwrap();
                assert!(epoll.has_events());
            }
            epoll.wait(&mut events, Timeout::Zero).unwrap();
            assert_eq!(events.iter().count(), 1);
        }
        assert!(!epoll.has_events());
    }

    #[test]
    fn each_write_is_an_edge_though_nobody_reads() {
        let epoll = Epoll::new(false).unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            eventfd.write();
            epoll.wait(&mut events, Timeout::None).unwrap();
            assert_eq!(events.iter().map(Event::token).collect::<Vec<_>>(), [7]);
            epoll.wait(&mut events, Timeout::Zero).unwrap();
            assert_eq!(events.iter().count(), 0);
        }
    }
}
