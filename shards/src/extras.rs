//! What few timers have: a tolerance, a jitter, a name, a condition, an outcome to be told.
//!
//! Timers without any of these have a smaller node. What is here never changes while the timer
//! lives, but for two words.

use crate::{
    claim::{NEVER, Outcome},
    names::Name,
    owner::Owner,
    sync::{AtomicU64, Ordering},
};

/// The options of a timer: see [`Timer::build`](crate::Timer::build).
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Flow, Options, Owner, Shard, Timer};
/// # struct Loop;
/// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
/// const MS: u64 = 1_000_000;
///
/// let shard = Arc::new(Shard::new(Loop));
/// // A poll every second for as long as somebody has the connection, which can wait for others that
/// // wake the loop.
/// let connection = Arc::new(());
/// let weak = Arc::downgrade(&connection);
/// let options = Options {
///     recurring: true,
///     tolerance: 100 * MS,
///     condition: Some(Box::new(move || weak.strong_count() > 0)),
///     ..Options::default()
/// };
/// let timer = Timer::build(&shard, 1_000 * MS, None, options, |_| Flow::Continue(()));
/// timer.start(0);
///
/// let wakes = shard.next_deadline();
/// assert!((1_000 * MS..=1_100 * MS).contains(&wakes));
/// shard.close();
/// ```
pub struct Options<O: Owner> {
    /// Whether it runs again and again, its wait being the period.
    pub recurring: bool,
    /// Whether the callback is called with the outcome, too, if the timer ends without running, or
    /// (a recurring one) after its runs: then always by who runs [`Notice`](crate::Notice)s.
    pub outcome: bool,
    /// How late it may run, in ns, to share a wake-up with others. It waits for the roundest moment
    /// in that window: the one whose binary number ends in the most zeros. If it is the next to come,
    /// and the owner looks at its shard after its deadline, it runs then.
    pub tolerance: u64,
    /// Up to so many ns, drawn anew each time by [`Owner::random`], are added to its first deadline
    /// and to those on its grid.
    pub jitter: u64,
    /// Any number, which [`Due::tag`](crate::Due::tag) tells.
    pub tag: u32,
    /// The name by which it can be found.
    pub name: Option<Name<O>>,
    /// The condition on which it runs. Where it answers false the timer ends, as cancelled; once it
    /// has, it must never answer true again. It is asked, and perhaps dropped, with a lock of the
    /// shard held: it and its destructor may not call into this crate, nor panic.
    pub condition: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Of a recurring timer, asked after a run that panicked, and so has not answered: how the timer
    /// ended, if it was the last. By default none is. It is dropped as the condition is.
    pub spent: Option<Box<dyn Fn() -> Option<Outcome> + Send + Sync>>,
}

impl<O: Owner> Default for Options<O> {
    fn default() -> Self {
        Self {
            recurring: false,
            outcome: false,
            tolerance: 0,
            jitter: 0,
            tag: 0,
            name: None,
            condition: None,
            spent: None,
        }
    }
}

impl<O: Owner> std::fmt::Debug for Options<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("recurring", &self.recurring)
            .field("outcome", &self.outcome)
            .field("tolerance", &self.tolerance)
            .field("jitter", &self.jitter)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The part of the options that the node keeps.
pub(crate) struct Extras<O: Owner> {
    pub(crate) tolerance: u64,
    pub(crate) tag: u32,
    jitter: u64,
    /// How much jitter the present deadline has in it.
    offset: AtomicU64,
    pub(crate) name: Option<Name<O>>,
    condition: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    spent: Option<Box<dyn Fn() -> Option<Outcome> + Send + Sync>>,
}

impl<O: Owner> Extras<O> {
    pub(crate) fn new(options: Options<O>) -> Self {
        Self {
            tolerance: options.tolerance,
            tag: options.tag,
            jitter: options.jitter,
            offset: AtomicU64::new(0),
            name: options.name,
            condition: options.condition,
            spent: options.spent,
        }
    }

    /// Whether the condition has gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.condition.as_ref().is_some_and(|alive| !alive())
    }

    /// Whether a run that panicked was the last.
    pub(crate) fn spent(&self) -> Option<Outcome> {
        self.spent.as_ref().and_then(|spent| spent())
    }

    /// What the deadline would be without its jitter.
    pub(crate) fn on_grid(&self, deadline: u64) -> u64 {
        deadline.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    /// The deadline with jitter drawn for it.
    pub(crate) fn jittered(&self, deadline: u64, owner: &O) -> u64 {
        if self.jitter == 0 {
            return deadline;
        }
        if deadline == NEVER {
            self.offset.store(0, Ordering::Relaxed);
            return deadline;
        }
        // The remainder is uneven by one in 2^64 / jitter, which nobody will see.
        let jitter = owner.random() % self.jitter.saturating_add(1).max(1);
        let jittered = deadline.saturating_add(jitter).min(NEVER - 1);
        // What there was room for.
        self.offset.store(jittered - deadline, Ordering::Relaxed);
        jittered
    }

    /// The deadline is set to an exact moment; answers what jitter it had.
    pub(crate) fn set_on_grid(&self) -> u64 {
        if self.jitter == 0 {
            return 0;
        }
        self.offset.swap(0, Ordering::Relaxed)
    }
}

/// The moment in `deadline ..= deadline + tolerance` whose binary number ends in the most zeros.
///
/// Timers of about the same tolerance meet there without looking for each other, as in Linux's timer
/// slack (`apply_slack`) and systemd's accuracy.
pub(crate) fn coalesced(deadline: u64, tolerance: u64) -> u64 {
    if tolerance == 0 || deadline == 0 || deadline == NEVER {
        return deadline;
    }
    let last = deadline.saturating_add(tolerance).min(NEVER - 1);
    // The highest bit in which the two differ is set in `last`, and is the last that has to be.
    let differ = (deadline - 1) ^ last;
    let below = (1_u64 << (63 - differ.leading_zeros())) - 1;
    last & !below
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_roundest_moment_of_the_window() {
        assert_eq!(coalesced(1_000, 0), 1_000);
        assert_eq!(coalesced(1_000, 24), 1_024);
        assert_eq!(coalesced(1_000, 23), 1_008);
        assert_eq!(coalesced(1_024, 1_000), 1_024);
        assert_eq!(coalesced(1_025, 1_023), 2_048);
        assert_eq!(coalesced(0, 5), 0);
        assert_eq!(coalesced(1, 0), 1);
        assert_eq!(coalesced(NEVER, 5), NEVER, "never stays never");
        assert!(coalesced(NEVER - 3, u64::MAX) < NEVER, "and only that");
    }

    #[test]
    fn no_moment_of_the_window_is_rounder_by_search() {
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
