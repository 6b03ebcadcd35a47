//! The timerfd that ends an epoll instance's long waits.
//!
//! Setting a timerfd is a system call, so the timerfd is set only if the deadline has changed. Some
//! programs have another deadline at each wait, and none of them expires, as with the timeouts of a
//! server. Then the timerfd is left at an earlier deadline. It ends one wait too early, and is then
//! set exactly again.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use super::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    timerfd::{Clock, TimerFd},
};

/// The value of `set` while the timerfd is not set.
const UNSET: u64 = u64::MAX - 1;
/// The value of `set` while the timerfd's state is unknown. It is later than all deadlines, so the
/// timerfd is always set again.
const UNKNOWN: u64 = u64::MAX;

/// After this many settings without expiry, the timerfd is left at an earlier deadline. So at most
/// one of `SETTINGS + 1` waits ends too early.
const SETTINGS: u32 = 16;
/// Waits that are not longer than this always end exactly.
const LONG: Duration = Duration::from_millis(10);
/// The timerfd is left only at a deadline that is earlier by this, in ns. A wait that ends only a
/// little too early looks like one of low wake-up latency, and would teach a wrong latency.
const LEAD: u64 = 1_000_000;

/// A timerfd, with the deadline that it is set to.
#[derive(Debug)]
pub(super) struct Deadline {
    timer: TimerFd,
    /// The deadline that the timerfd is set to, in ns, or [`UNSET`] or [`UNKNOWN`]. It is written
    /// by the thread that waits, and by a thread that takes the events in its place.
    set: AtomicU64,
    /// How often the timerfd was set since it last expired. Only the thread that waits writes it.
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

    /// Sets the timerfd to expire at `deadline`, in ns, which is `left` from now. It may expire too
    /// early once. Only the thread that waits calls this.
    pub(super) fn set(&self, deadline: u64, left: Duration) -> io::Result<()> {
        self.apply(deadline, left, |timer| timer.set(left))
    }

    /// Unsets the timerfd. It may still expire once. Only the thread that waits calls this.
    pub(super) fn unset(&self) -> io::Result<()> {
        self.apply(UNSET, Duration::MAX, TimerFd::unset)
    }

    /// Records that the timerfd has expired, and that the thread that waits has taken its event.
    pub(super) fn expired(&self) {
        self.set.store(UNSET, Ordering::Relaxed);
        self.settings.store(0, Ordering::Relaxed);
    }

    /// Records that another thread has taken the timerfd's event. That thread then wakes the thread
    /// that waits, which sets the timerfd again, even to the deadline that it had.
    pub(super) fn taken(&self) {
        self.set.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Sets the timerfd by `set`, unless it is set to `at` already or may be left at an earlier
    /// deadline.
    fn apply(
        &self,
        at: u64,
        left: Duration,
        set: impl FnOnce(&TimerFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let is_set = self.set.load(Ordering::Relaxed);
        let settings = self.settings.load(Ordering::Relaxed);
        // Another thread may take the event of an earlier expiry at this moment. Then it also wakes
        // this thread: see `taken`.
        let is_earlier = is_set.saturating_add(LEAD) <= at;
        if is_set == at || (is_earlier && settings >= SETTINGS && left > LONG) {
            return Ok(());
        }
        self.settings
            .store(settings.saturating_add(1), Ordering::Relaxed);
        // Store before the call. `taken` may follow the call at once, and its value must stay.
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

    /// Returns a timerfd that was set [`SETTINGS`] times, the last time to 1,000.
    fn set_often() -> Deadline {
        let deadline = Deadline::new().unwrap();
        for at in 1_001 - u64::from(SETTINGS)..=1_000 {
            deadline.set(at, FAR).unwrap();
            assert_eq!(is_set_to(&deadline), at, "set exactly");
        }
        deadline
    }

    #[test]
    fn after_many_settings_the_timerfd_stays_at_an_earlier_deadline() {
        let deadline = set_often();
        for later in [1_000 + LEAD, 5 * LEAD, 1_000] {
            deadline.set(later, FAR).unwrap();
            assert_eq!(is_set_to(&deadline), 1_000);
        }
        deadline.unset().unwrap();
        assert_eq!(is_set_to(&deadline), 1_000);
        deadline.set(500, FAR).unwrap();
        assert_eq!(is_set_to(&deadline), 500, "an earlier deadline is set");
    }

    #[test]
    fn a_short_wait_ends_exactly() {
        let deadline = set_often();
        deadline.set(2 * LEAD, LONG).unwrap();
        assert_eq!(is_set_to(&deadline), 2 * LEAD);
    }

    #[test]
    fn a_deadline_a_little_later_is_set_exactly() {
        let deadline = set_often();
        deadline.set(999 + LEAD, FAR).unwrap();
        assert_eq!(is_set_to(&deadline), 999 + LEAD);
    }

    #[test]
    fn after_an_expiry_the_timerfd_is_set_exactly() {
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
    fn after_another_thread_took_the_event_the_timerfd_is_set_again() {
        let deadline = set_often();
        deadline.taken();
        deadline.set(1_000, FAR).unwrap();
        assert_eq!(is_set_to(&deadline), 1_000);
        deadline.taken();
        deadline.unset().unwrap();
        assert_eq!(is_set_to(&deadline), UNSET);
    }
}
