//! The part of a timer's options that few nodes keep: tag, origin, jitter, condition.
//!
//! Timers without options have a smaller node. All fields but two atomic words are constant while
//! the timer lives.

use std::num::NonZeroU64;

use crate::{
    answer::Outcome,
    foreign::contained,
    node::claim::NEVER,
    owner::Owner,
    sync::{AtomicU32, AtomicU64, Ordering},
};

/// Index of a timer that is in no list of a name. A timer that has left its list never gets into
/// one again.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Part of the options that the node keeps.
pub(crate) struct Extras {
    pub(crate) tag: u32,
    pub(crate) origin: Option<NonZeroU64>,
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
        jitter: u64,
        tag: u32,
        origin: Option<NonZeroU64>,
        condition: Option<Condition>,
        spent: Option<Spent>,
    ) -> Self {
        Self {
            tag,
            origin,
            place: AtomicU32::new(NOWHERE),
            jitter,
            offset: AtomicU64::new(0),
            condition,
            spent,
        }
    }

    /// Returns whether the condition no longer holds. A condition that panics counts as gone: its
    /// timer would otherwise stay the first one of the store, and no other one would come due.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        let Some(alive) = &self.condition else {
            return false;
        };
        let mut is_alive = false;
        contained(|| is_alive = alive());
        !is_alive
    }

    /// Returns the outcome if a run that panicked was the last one.
    #[inline]
    pub(crate) fn spent(&self) -> Option<Outcome> {
        let spent = self.spent.as_ref()?;
        let mut outcome = None;
        contained(|| outcome = spent());
        outcome
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
