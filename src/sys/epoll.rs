//! An epoll instance whose waits have nanosecond resolution.
//!
//! `epoll_wait` takes milliseconds. So a timerfd in the instance ends each wait that has a limit.
//! It is set [as rarely as possible](super::deadline), and before the worker's alarm: the alarm is
//! later, and setting a timer that is not the core's next one is cheap. (`epoll_pwait2` has
//! nanoseconds, too. But its timer starts with the wait, after the alarm. Then each of the two is
//! the core's next timer when it is set, which costs 5 µs more where that leaves a virtual
//! machine.)
//!
//! A process may lose the right to set a timerfd after the instance exists (seccomp). Then the wait
//! falls back to milliseconds.

use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    sync::OnceLock,
    time::Duration,
};

use super::{check, deadline::Deadline};

/// The condition that a descriptor is readable.
pub(crate) const READABLE: u32 = libc::EPOLLIN as u32;
/// Urgent data is present.
pub(crate) const PRIORITY: u32 = libc::EPOLLPRI as u32;
/// The condition that a descriptor is writable.
pub(crate) const WRITABLE: u32 = libc::EPOLLOUT as u32;
/// The peer has shut down its write direction.
pub(crate) const READ_CLOSED: u32 = libc::EPOLLRDHUP as u32;
/// Both directions are closed.
pub(crate) const CLOSED: u32 = libc::EPOLLHUP as u32;
/// An error is pending.
pub(crate) const ERROR: u32 = libc::EPOLLERR as u32;

const EDGE: u32 = libc::EPOLLET as u32;
/// The token of the timerfd. Callers never see it.
const TIMER: u64 = u64::MAX;

/// The maximum duration of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    /// Do not wait.
    Zero,
    /// Wait until an event arrives.
    None,
    /// Wait until `deadline`, in ns on a clock that runs like the kernel's. `left` is the time
    /// until then.
    Until { deadline: u64, left: Duration },
}

/// A wait whose timerfd is set: see [`Epoll::prepare`].
#[derive(Debug)]
#[must_use]
pub(crate) struct Prepared {
    /// The timeout for `epoll_wait`.
    millis: libc::c_int,
}

/// An epoll instance.
#[derive(Debug)]
pub(crate) struct Epoll {
    fd: OwnedFd,
    /// Made for the first wait with a limit. Only the thread that waits makes it.
    timer: OnceLock<Deadline>,
}

/// An event on one descriptor.
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

/// A buffer for the events of one wait.
pub(crate) struct Events {
    events: Vec<Event>,
    /// The most events of one wait.
    most: usize,
}

impl Events {
    /// Creates a buffer for `most` events. The first wait allocates it.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            events: Vec::new(),
            most: most.max(1),
        }
    }

    /// Allocates the buffer now, for a thread that must not wait for memory later.
    pub(crate) fn reserve(mut self) -> Self {
        self.room();
        self
    }

    /// Empties the buffer, and returns where the kernel may write events, and how many.
    fn room(&mut self) -> (*mut libc::epoll_event, libc::c_int) {
        self.events.clear();
        self.events.reserve(self.most);
        let room = self.events.capacity().try_into();
        (
            self.events.as_mut_ptr().cast(),
            room.unwrap_or(libc::c_int::MAX),
        )
    }

    /// Returns the events of the last wait.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(|event| event.token() != TIMER)
    }

    pub(crate) fn clear(&mut self) {
        self.events.clear();
    }

    /// Returns whether the buffer had room for no more events, so that more may be pending.
    pub(crate) fn is_full(&self) -> bool {
        self.events.len() >= self.most
    }

    fn has_timer(&self) -> bool {
        self.events.iter().any(|event| event.token() == TIMER)
    }
}

/// Converts to milliseconds, rounded up.
fn millis(duration: Duration) -> libc::c_int {
    let millis = duration.as_nanos().div_ceil(1_000_000);
    millis.try_into().unwrap_or(libc::c_int::MAX)
}

impl AsRawFd for Epoll {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

impl Epoll {
    /// Creates an instance.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call takes no pointers. The result is checked before it becomes an `OwnedFd`.
        let fd = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        Ok(Self {
            // SAFETY: nothing else owns this new descriptor.
            fd: unsafe { OwnedFd::from_raw_fd(fd) },
            timer: OnceLock::new(),
        })
    }

    /// Returns the timerfd of the waits, and makes it if there is none. Only the thread that waits
    /// calls this, or a thread that nothing else shares the instance with.
    pub(crate) fn make_timer(&self) -> io::Result<()> {
        self.timer().map(drop)
    }

    fn timer(&self) -> io::Result<&Deadline> {
        if let Some(timer) = self.timer.get() {
            return Ok(timer);
        }
        let timer = Deadline::new()?;
        self.add(timer.as_raw_fd(), TIMER, READABLE)?;
        Ok(self.timer.get_or_init(|| timer))
    }

    /// Watches `fd` for `conditions`, edge-triggered. Closing `fd` ends the watch, unless it has
    /// been duplicated.
    pub(crate) fn add(&self, fd: RawFd, token: u64, conditions: u32) -> io::Result<()> {
        self.watch(fd, token, conditions | EDGE)
    }

    /// Watches a descriptor that several instances watch, for reading. An event does not wake all
    /// threads that wait.
    pub(crate) fn add_shared(&self, fd: RawFd, token: u64) -> io::Result<()> {
        const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
        self.watch(fd, token, READABLE | EDGE | EXCLUSIVE)
    }

    fn watch(&self, fd: RawFd, token: u64, events: u32) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: `event` is valid during the call.
        check(unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &mut event)
        })?;
        Ok(())
    }

    /// Stops watching `fd`.
    pub(crate) fn remove(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: a removal takes no event (since Linux 2.6.9).
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

    /// Sets the timerfd for a wait of `timeout`, never less. [`wait`](Self::wait) waits.
    pub(crate) fn prepare(&self, timeout: Timeout) -> Prepared {
        let millis = match timeout {
            Timeout::Zero => 0,
            Timeout::Until { left, .. } if left.is_zero() => 0,
            Timeout::Until { deadline, left } => {
                let set = self.timer().and_then(|timer| timer.set(deadline, left));
                match set {
                    Ok(()) => -1,
                    // The last resort is late by up to 1 ms, but never early.
                    Err(_) => millis(left),
                }
            }
            Timeout::None => {
                // If disarming the timerfd fails, the wait ends early once, which callers tolerate.
                let _ = self.timer.get().map(Deadline::unset);
                -1
            }
        };
        Prepared { millis }
    }

    /// Waits for events as prepared. A signal ends the wait early, without events.
    pub(crate) fn wait(&self, events: &mut Events, prepared: Prepared) -> io::Result<()> {
        let (buffer, room) = events.room();
        // SAFETY: `buffer` has room for `room` events.
        let count = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), buffer, room, prepared.millis) };
        // SAFETY: `count` is the kernel's result for the buffer of `events`.
        unsafe { self.set_events(events, count) }?;
        if let Some(timer) = self.timer.get().filter(|_| events.has_timer()) {
            timer.expired();
        }
        Ok(())
    }

    /// Takes events on behalf of the worker that waits here, without waiting. Returns whether the
    /// worker must be woken: its timer is among them, which will not fire again.
    pub(crate) fn take(&self, events: &mut Events) -> io::Result<bool> {
        let (buffer, room) = events.room();
        // SAFETY: `buffer` has room for `room` events.
        let count = unsafe { libc::epoll_wait(self.fd.as_raw_fd(), buffer, room, 0) };
        // SAFETY: `count` is the kernel's result for the buffer of `events`.
        unsafe { self.set_events(events, count) }?;
        let timer = self.timer.get().filter(|_| events.has_timer());
        Ok(timer.map(Deadline::taken).is_some())
    }

    /// Sets the length of `events` to the result of a wait.
    ///
    /// # Safety
    ///
    /// If `count` is not negative, the kernel has written this many events into the buffer of
    /// `events`.
    unsafe fn set_events(&self, events: &mut Events, count: libc::c_int) -> io::Result<()> {
        match check(count) {
            // SAFETY: by the contract, `count` events are initialized. `Event` is a transparent
            // wrapper.
            Ok(count) => unsafe { events.events.set_len(count as usize) },
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Waits without a limit until events are pending, and does not take them. A signal ends the
    /// wait early.
    pub(crate) fn wait_ready(&self) -> io::Result<()> {
        self.poll(-1).map(drop)
    }

    /// Returns whether events are pending for the thread that waits here, and does not take them.
    /// Any thread may call this. An error counts as no events: a wait on such an instance would not
    /// see any, either.
    pub(crate) fn has_events(&self) -> bool {
        self.poll(0).unwrap_or(false)
    }

    /// Waits for at most `millis` (−1: without a limit) until events are pending. Returns whether
    /// there are any.
    fn poll(&self, millis: libc::c_int) -> io::Result<bool> {
        let mut fd = libc::pollfd {
            fd: self.fd.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: `fd` is one valid pollfd.
        match check(unsafe { libc::poll(&mut fd, 1, millis) }) {
            Ok(ready) => Ok(ready > 0),
            // A signal interrupts only a call that found no events.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::sys::eventfd::EventFd;

    fn wait(epoll: &Epoll, events: &mut Events, timeout: Timeout) {
        let prepared = epoll.prepare(timeout);
        epoll.wait(events, prepared).unwrap();
    }

    #[test]
    fn waits_no_less_than_asked() {
        let epoll = Epoll::new().unwrap();
        let mut events = Events::new(4);
        for (deadline, micros) in (1..).zip([1, 50, 700, 3_000, 12_000, 20, 15_000]) {
            let left = Duration::from_micros(micros);
            let start = Instant::now();
            wait(&epoll, &mut events, Timeout::Until { deadline, left });
            assert!(start.elapsed() >= left);
            assert_eq!(events.iter().count(), 0);
        }
        wait(&epoll, &mut events, Timeout::Zero);
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
        let epoll = Epoll::new().unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::new(4);
        eventfd.write();
        let left = Duration::from_millis(20);
        wait(&epoll, &mut events, Timeout::Until { deadline: 1, left });
        assert_eq!(events.iter().count(), 1, "the event came first");
        let (left, start) = (Duration::from_millis(60), Instant::now());
        wait(&epoll, &mut events, Timeout::Until { deadline: 2, left });
        assert!(start.elapsed() >= left, "the first deadline is void");
    }

    #[test]
    fn events_can_be_seen_from_outside_until_they_are_taken() {
        let epoll = Epoll::new().unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::new(4);
        for _ in 0..3 {
            assert!(!epoll.has_events());
            eventfd.write();
            for _ in 0..2 {
                epoll.wait_ready().unwrap();
                assert!(epoll.has_events());
            }
            wait(&epoll, &mut events, Timeout::Zero);
            assert_eq!(events.iter().count(), 1);
        }
        assert!(!epoll.has_events());
    }

    #[test]
    fn each_write_is_an_edge_though_nobody_reads() {
        let epoll = Epoll::new().unwrap();
        let eventfd = EventFd::new().unwrap();
        epoll.add(eventfd.as_raw_fd(), 7, READABLE).unwrap();
        let mut events = Events::new(4);
        for _ in 0..3 {
            eventfd.write();
            wait(&epoll, &mut events, Timeout::None);
            assert_eq!(events.iter().map(Event::token).collect::<Vec<_>>(), [7]);
            wait(&epoll, &mut events, Timeout::Zero);
            assert_eq!(events.iter().count(), 0);
        }
    }
}
