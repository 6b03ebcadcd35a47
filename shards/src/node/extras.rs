//! The part of a timer's options that few nodes keep: tag, origin, jitter, condition.
//!
//! Timers without options have a smaller node. All fields but two atomic words are constant while
//! the timer lives.

use std::num::NonZeroU64;

use tourbillon_sync::{AtomicU32, AtomicU64, Ordering, foreign::contained};

use crate::{answer::Outcome, node::claim::NEVER, owner::Owner};

/// Index of a timer that is in no list of a name. A timer that has left its list never gets into
/// one again.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Bit of `offset` that says that the condition was found gone. A jitter is shorter than
/// [`NEVER`], which has 61 bits.
const GONE: u64 = 1 << 63;

/// Part of the options that the node keeps.
pub(crate) struct Extras {
    pub(crate) tag: u32,
    pub(crate) origin: Option<NonZeroU64>,
    /// Index of the node in the list of its name, or [`NOWHERE`]. `names/mod.rs` writes it.
    pub(crate) place: AtomicU32,
    jitter: u64,
    /// Jitter that the present deadline contains, in ns, and [`GONE`].
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
    ///
    /// Once a condition was found gone, it is not asked again: a timer that was moved may have been
    /// taken out before its new deadline for that, and must not run.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        let Some(alive) = &self.condition else {
            return false;
        };
        if self.offset.load(Ordering::Relaxed) & GONE != 0 {
            return true;
        }
        let mut is_alive = false;
        contained(|| is_alive = alive());
        if !is_alive {
            // Before the claim that makes the timer due, so that the thread that runs it finds
            // this.
            self.offset.fetch_or(GONE, Ordering::Relaxed);
        }
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
        deadline.saturating_sub(self.offset.load(Ordering::Relaxed) & !GONE)
    }

    /// Adds jitter to a deadline, and notes how much it is.
    pub(crate) fn jittered(&self, deadline: u64, owner: &impl Owner) -> u64 {
        if self.jitter == 0 {
            return deadline;
        }
        if deadline == NEVER {
            self.set_offset(0);
            return deadline;
        }
        // The bias of the remainder is at most jitter / 2^64, which is negligible.
        let jitter = owner.random() % self.jitter.saturating_add(1).max(1);
        let jittered = deadline.saturating_add(jitter).min(NEVER - 1);
        // Near the end of time the deadline has less jitter than was drawn.
        self.set_offset(jittered - deadline);
        jittered
    }

    /// Sets the jitter that the deadline contains, and returns what it contained. [`GONE`] stays.
    fn set_offset(&self, offset: u64) -> u64 {
        let mut was = self.offset.load(Ordering::Relaxed);
        loop {
            let next = was & GONE | offset;
            match (self.offset).compare_exchange_weak(
                was,
                next,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return was & !GONE,
                Err(now) => was = now,
            }
        }
    }

    /// Notes that the deadline was set to an exact moment, so it has no jitter. Returns the jitter
    /// it had.
    #[inline]
    pub(crate) fn set_on_grid(&self) -> u64 {
        if self.jitter == 0 {
            return 0;
        }
        self.set_offset(0)
    }
}
