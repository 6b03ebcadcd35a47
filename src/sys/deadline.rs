//! The timerfd that ends an epoll instance's long waits.
//!
//! It is set again only when the deadline is another; and not even then where one deadline follows another and none of them
//! comes, as with the timeouts of a server, of which the first is cancelled all the time. It stays at an earlier one then,
//! goes off once for nothing, and is set anew. What is left of the wait is as precise as any.

use std::{
    io,
    os::fd::{AsRawFd, RawFd},
    time::Duration,
};

use super::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    timerfd::{Clock, TimerFd},
};

/// No deadline: what the timerfd is set to when it is not.
const UNSET: u64 = u64::MAX;
/// No deadline either: what it is set to is not known. Later than all that it might be left for.
const UNKNOWN: u64 = u64::MAX - 1;

/// So often in a row it was to be set to something else before it went off, and it is left where it is, if that is
/// earlier. So of as many waits, and one, one ends for nothing at most.
const CHANGES: u32 = 16;
/// No wait that is shorter is ended before its time.
const LONG: Duration = Duration::from_millis(10);
/// It is set so much before the deadline then, in ns: later ones find it early enough.
const LEAD: u64 = 2_000_000;
/// It is left if it goes off so much before the deadline, in ns, or more: whoever it wakes has time to go to sleep again.
const LEFT: u64 = LEAD / 2;

/// A timerfd that knows what it is set to.
#[derive(Debug)]
pub(super) struct Deadline {
    timer: TimerFd,
    /// The deadline that it is set to.
    set: AtomicU64,
    /// How often it was to be set to something else since it last went off. Written by the one who waits.
    changes: AtomicU32,
}

impl Deadline {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            timer: TimerFd::new(Clock::Monotonic)?,
            set: AtomicU64::new(UNSET),
            changes: AtomicU32::new(0),
        })
    }

    /// Has it go off at `deadline`, which is `left` from now; or before, at times. For the one who waits.
    pub(super) fn set(&self, deadline: u64, left: Duration) -> io::Result<()> {
        if self.is_at(deadline) {
            return Ok(());
        }
        // What is near is met as well as can be.
        if self.is_set_in_vain() && left > LONG {
            if self.is_before(deadline) {
                return Ok(());
            }
            let early = deadline.saturating_sub(LEAD);
            return self.apply(early, |timer| timer.set(left - Duration::from_nanos(LEAD)));
        }
        self.apply(deadline, |timer| timer.set(left))
    }

    /// Has it not go off; or once, at times. For the one who waits.
    pub(super) fn unset(&self) -> io::Result<()> {
        if self.is_at(UNSET) || (self.is_set_in_vain() && self.is_before(UNSET)) {
            return Ok(());
        }
        self.apply(UNSET, TimerFd::unset)
    }

    /// It went off, and the one who waits has seen it.
    pub(super) fn went_off(&self) {
        self.set.store(UNSET, Ordering::Relaxed);
        self.changes.store(0, Ordering::Relaxed);
    }

    /// It went off, and another thread has seen it, which wakes the one who waits after this.
    pub(super) fn was_taken(&self) {
        self.set.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Whether it is set to this; otherwise that is another change.
    fn is_at(&self, deadline: u64) -> bool {
        let same = self.set.load(Ordering::Relaxed) == deadline;
        if !same {
            let changes = self.changes.load(Ordering::Relaxed);
            self.changes
                .store(changes.saturating_add(1), Ordering::Relaxed);
        }
        same
    }

    fn is_set_in_vain(&self) -> bool {
        self.changes.load(Ordering::Relaxed) > CHANGES
    }

    /// Whether it goes off early enough before that. (If another thread takes that at this moment, see
    /// [`was_taken`](Deadline::was_taken).)
    fn is_before(&self, deadline: u64) -> bool {
        self.set.load(Ordering::Relaxed) <= deadline.saturating_sub(LEFT)
    }

    fn apply(&self, at: u64, set: impl FnOnce(&TimerFd) -> io::Result<()>) -> io::Result<()> {
        self.set.store(at, Ordering::Relaxed);
        // What it is set to is unknown then.
        set(&self.timer).inspect_err(|_| self.was_taken())
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

    const MS: u64 = 1_000_000;
    const FAR: Duration = Duration::from_secs(3_600);

    fn set(deadline: &Deadline) -> u64 {
        deadline.set.load(Ordering::Relaxed)
    }

    /// One that was set as often as it takes, lastly to 1,000 ms.
    fn set_in_vain() -> Deadline {
        let deadline = Deadline::new().unwrap();
        for at in 1_000 * MS - u64::from(CHANGES) + 1..=1_000 * MS {
            deadline.set(at, FAR).unwrap();
            assert_eq!(set(&deadline), at, "exactly");
        }
        deadline
    }

    #[test]
    fn one_that_is_set_in_vain_all_the_time_is_left_at_what_is_earlier() {
        let deadline = set_in_vain();
        let set_to = |at| {
            deadline.set(at, FAR).unwrap();
            set(&deadline)
        };
        // There is not time enough between the two; and then there is.
        assert_eq!(set_to(1_000 * MS + LEFT - 1), 1_000 * MS + LEFT - 1 - LEAD);
        for at in [1_000 * MS, 1_001 * MS, 1_500 * MS, 1_000 * MS] {
            assert_eq!(set_to(at), 1_000 * MS + LEFT - 1 - LEAD);
        }
        deadline.unset().unwrap();
        assert_eq!(
            set(&deadline),
            1_000 * MS + LEFT - 1 - LEAD,
            "once for nothing"
        );
        assert_eq!(set_to(500 * MS), 500 * MS - LEAD, "that is earlier");
    }

    #[test]
    fn what_is_near_is_met_exactly() {
        let deadline = set_in_vain();
        deadline.set(2_000 * MS, LONG).unwrap();
        assert_eq!(set(&deadline), 2_000 * MS);
    }

    #[test]
    fn once_it_has_gone_off_it_is_set_exactly_and_unset() {
        let deadline = set_in_vain();
        deadline.went_off();
        for at in [3_000 * MS, 4_000 * MS] {
            deadline.set(at, FAR).unwrap();
            assert_eq!(set(&deadline), at);
        }
        deadline.unset().unwrap();
        assert_eq!(set(&deadline), UNSET);
    }

    #[test]
    fn one_that_another_thread_has_taken_is_set_or_unset_in_any_case() {
        let deadline = set_in_vain();
        deadline.was_taken();
        deadline.set(3_000 * MS, FAR).unwrap();
        assert_eq!(set(&deadline), 3_000 * MS - LEAD);
        deadline.was_taken();
        deadline.unset().unwrap();
        assert_eq!(set(&deadline), UNSET);
    }
}
