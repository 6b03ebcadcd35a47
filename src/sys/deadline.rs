//! The timerfd that ends an epoll instance's long waits.
//!
//! Setting a timerfd is a system call, so it is set only to another deadline. Where deadlines change
//! at each wait and none of them comes, as with the timeouts of a server, it is left at an earlier
//! one. Then it ends one wait for nothing, and is set exactly again.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use super::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    timerfd::{Clock, TimerFd},
};

/// The timerfd is not set.
const UNSET: u64 = u64::MAX - 1;
/// It is unknown what the timerfd is set to. Later than everything, so it is never left there.
const UNKNOWN: u64 = u64::MAX;

/// The timerfd is left at an earlier deadline after so many settings without expiry. So of as many
/// waits and one, at most one ends for nothing.
const SETTINGS: u32 = 16;
/// Shorter waits are ended exactly.
const LONG: Duration = Duration::from_millis(10);

/// A timerfd that knows what it is set to.
#[derive(Debug)]
pub(super) struct Deadline {
    timer: TimerFd,
    /// What the timerfd is set to, in ns, or [`UNSET`] or [`UNKNOWN`]. Written by the thread that
    /// waits, and by one that takes its events.
    set: AtomicU64,
    /// How often the timerfd was set since it last expired. Written by the thread that waits.
    settings: AtomicU32,
}

impl Deadline {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            timer: TimerFd::new(Clock::Monotonic)?,
            set: AtomicU64::new(UNSET),
            settings: AtomicU32::new(0),
        })
    }

    /// Sets the timerfd to expire at `deadline`, in ns, which is `left` from now. It may expire
    /// earlier, once. Called by the thread that waits.
    pub(super) fn set(&self, deadline: u64, left: Duration) -> io::Result<()> {
        self.apply(deadline, left, |timer| timer.set(left))
    }

    /// Unsets the timerfd. It may still expire, once. Called by the thread that waits.
    pub(super) fn unset(&self) -> io::Result<()> {
        self.apply(UNSET, Duration::MAX, TimerFd::unset)
    }

    /// Records that the timerfd has expired, and that the thread that waits has taken its event.
    pub(super) fn expired(&self) {
        self.set.store(UNSET, Ordering::Relaxed);
        self.settings.store(0, Ordering::Relaxed);
    }

    /// Records that another thread has taken the timerfd's event. That thread then wakes the one
    /// that waits, which sets the timerfd again, whatever the deadline is.
    pub(super) fn taken(&self) {
        self.set.store(UNKNOWN, Ordering::Relaxed);
    }

    fn apply(
        &self,
        at: u64,
        left: Duration,
        set: impl FnOnce(&TimerFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let is_set = self.set.load(Ordering::Relaxed);
        let settings = self.settings.load(Ordering::Relaxed);
        // If another thread takes the event of an earlier expiry now, it wakes this one: see `taken`.
        if is_set == at || (is_set < at && settings >= SETTINGS && left > LONG) {
            return Ok(());
        }
        self.settings
            .store(settings.saturating_add(1), Ordering::Relaxed);
        // Stored before the call: `taken` may follow at once, and its value is to stay.
        self.set.store(at, Ordering::Relaxed);
        set(&self.timer).inspect_err(|_| self.set.store(UNKNOWN, Ordering::Relaxed))
    }
}

impl AsRawFd for Deadline {
    fn as_raw_fd(&self) -> RawFd {
        self.timer.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAR: Duration = Duration::from_secs(3_600);

    fn is_set_to(deadline: &Deadline) -> u64 {
        deadline.set.load(Ordering::Relaxed)
    }

    /// Returns one that was set [`SETTINGS`] times, lastly to 1,000.
    fn set_often() -> Deadline {
        let deadline = Deadline::new().unwrap();
        for at in 1_001 - u64::from(SETTINGS)..=1_000 {
            deadline.set(at, FAR).unwrap();
            assert_eq!(is_set_to(&deadline), at, "exactly");
        }
        deadline
    }

    #[test]
    fn after_many_settings_it_is_left_at_an_earlier_deadline() {
        let deadline = set_often();
        for later in [1_001, 5_000, 1_000] {
            deadline.set(later, FAR).unwrap();
            assert_eq!(is_set_to(&deadline), 1_000);
        }
        deadline.unset().unwrap();
        assert_eq!(is_set_to(&deadline), 1_000);
        deadline.set(500, FAR).unwrap();
        assert_eq!(is_set_to(&deadline), 500, "that is earlier");
    }

    #[test]
    fn a_short_wait_is_ended_exactly() {
        let deadline = set_often();
        deadline.set(2_000, LONG).unwrap();
        assert_eq!(is_set_to(&deadline), 2_000);
    }

    #[test]
    fn once_it_has_expired_it_is_set_exactly_and_unset() {
        let deadline = set_often();
        deadline.expired();
        for at in [3_000, 4_000] {
            deadline.set(at, FAR).unwrap();
            assert_eq!(is_set_to(&deadline), at);
        }
        deadline.unset().unwrap();
        assert_eq!(is_set_to(&deadline), UNSET);
    }

    #[test]
    fn after_another_thread_took_the_event_any_deadline_is_set_again() {
        let deadline = set_often();
        deadline.taken();
        deadline.set(1_000, FAR).unwrap();
        assert_eq!(is_set_to(&deadline), 1_000);
        deadline.taken();
        deadline.unset().unwrap();
        assert_eq!(is_set_to(&deadline), UNSET);
    }
}
