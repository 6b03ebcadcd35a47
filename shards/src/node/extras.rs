//! The part of a timer's options that its node keeps: tolerance, tag, jitter, condition.
//!
//! Timers without options have a smaller node. All fields but two atomic words are constant while
//! the timer lives.

use crate::{
    answer::Outcome,
    node::claim::NEVER,
    owner::Owner,
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// Index of a timer that is in no list of a name. A timer that has left its list never gets into
/// one again.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Part of the options that the node keeps.
pub(crate) struct Extras {
    pub(crate) tolerance: u64,
    pub(crate) tag: u32,
    /// Index of the node in the list of its name, or [`NOWHERE`]. `names/mod.rs` writes it.
    pub(crate) place: AtomicU32,
    jitter: u64,
    /// Jitter that the present deadline contains, in ns.
    offset: AtomicU64,
    condition: Option<Condition>,
    spent: Option<Spent>,
}

/// Returns whether the timer may still run.
pub(crate) type Condition = Box<dyn Fn() -> bool + Send + Sync>;

/// Returns the outcome if a run that panicked was the last one.
pub(crate) type Spent = Box<dyn Fn() -> Option<Outcome> + Send + Sync>;

impl Extras {
    pub(crate) fn new(
        tolerance: u64,
        jitter: u64,
        tag: u32,
        condition: Option<Condition>,
        spent: Option<Spent>,
    ) -> Self {
        Self {
            tolerance,
            tag,
            place: AtomicU32::new(NOWHERE),
            jitter,
            offset: AtomicU64::new(0),
            condition,
            spent,
        }
    }

    /// Returns whether the condition no longer holds.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.condition.as_ref().is_some_and(|alive| !alive())
    }

    /// Returns the outcome if a run that panicked was the last one.
    #[inline]
    pub(crate) fn spent(&self) -> Option<Outcome> {
        self.spent.as_ref().and_then(|spent| spent())
    }

    /// Returns the deadline without its jitter.
    #[inline]
    pub(crate) fn on_grid(&self, deadline: u64) -> u64 {
        deadline.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    /// Adds jitter to a deadline, and notes how much it is.
    pub(crate) fn jittered(&self, deadline: u64, owner: &impl Owner) -> u64 {
        if self.jitter == 0 {
            return deadline;
        }
        if deadline == NEVER {
            self.offset.store(0, Ordering::Relaxed);
            return deadline;
        }
        // The bias of the remainder is at most jitter / 2^64, which is negligible.
        let jitter = owner.random() % self.jitter.saturating_add(1).max(1);
        let jittered = deadline.saturating_add(jitter).min(NEVER - 1);
        // Near the end of time the deadline has less jitter than was drawn.
        self.offset.store(jittered - deadline, Ordering::Relaxed);
        jittered
    }

    /// Notes that the deadline was set to an exact moment, so it has no jitter. Returns the jitter
    /// it had.
    #[inline]
    pub(crate) fn set_on_grid(&self) -> u64 {
        if self.jitter == 0 {
            return 0;
        }
        self.offset.swap(0, Ordering::Relaxed)
    }
}

/// Returns the moment in `deadline ..= deadline + tolerance` whose binary number ends in the most
/// zeros.
///
/// Timers of about the same tolerance get the same moment without any coordination, as with Linux's
/// timer slack (`apply_slack`) and systemd's accuracy.
pub(crate) fn coalesced(deadline: u64, tolerance: u64) -> u64 {
    if tolerance == 0 || deadline == 0 || deadline == NEVER {
        return deadline;
    }
    let last = deadline.saturating_add(tolerance).min(NEVER - 1);
    // In the highest bit in which `deadline - 1` and `last` differ, `last` has a one. That is the
    // lowest one bit that the result needs.
    let differ = (deadline - 1) ^ last;
    let below = (1_u64 << (63 - differ.leading_zeros())) - 1;
    last & !below
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn coalescing_picks_the_roundest_moment_of_the_window() {
        assert_eq!(coalesced(1_000, 0), 1_000);
        assert_eq!(coalesced(1_000, 24), 1_024);
        assert_eq!(coalesced(1_000, 23), 1_008);
        assert_eq!(coalesced(1_024, 1_000), 1_024);
        assert_eq!(coalesced(1_025, 1_023), 2_048);
        assert_eq!(coalesced(0, 5), 0);
        assert_eq!(coalesced(1, 0), 1);
        assert_eq!(coalesced(NEVER, 5), NEVER, "NEVER is not moved");
        assert!(coalesced(NEVER - 3, u64::MAX) < NEVER, "still below NEVER");
    }

    #[test]
    fn coalescing_agrees_with_a_search_through_the_window() {
        for deadline in 1..200_u64 {
            for tolerance in 0..80 {
                let best = (deadline..=deadline + tolerance)
                    .max_by_key(|at| at.trailing_zeros())
                    .expect("the window is not empty");
                let found = coalesced(deadline, tolerance);
                assert!((deadline..=deadline + tolerance).contains(&found));
                assert_eq!(found.trailing_zeros(), best.trailing_zeros());
            }
        }
    }
}
