//! Options of a timer that few timers use: tolerance, jitter, name, condition, outcomes.
//!
//! Timers without options have a smaller node. All fields but two atomic words are constant while
//! the timer lives.

use crate::{
    claim::{NEVER, Outcome},
    names::Name,
    owner::Owner,
    sync::{AtomicU64, Ordering},
};

/// Options of a timer, for [`Timer::build`](crate::Timer::build).
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Flow, Options, Owner, Shard, Timer};
/// # struct Loop;
/// # impl Owner for Loop { fn wake(&self) {} fn is_current(&self) -> bool { true } }
/// const MS: u64 = 1_000_000;
///
/// let shard = Arc::new(Shard::new(Loop));
/// // Polls every second while the connection is in use. A poll may be up to 100 ms late, to share
/// // a wake-up with other timers.
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
    /// Whether the timer runs repeatedly. Its wait is the period.
    pub recurring: bool,
    /// Whether the callback takes outcomes: it is also called with the outcome when the timer ends
    /// without a run or, if it recurs, after its runs. The thread that runs the
    /// [`Notice`](crate::Notice) makes that call.
    pub outcome: bool,
    /// How late the timer may run, in ns, to share a wake-up with others.
    ///
    /// The timer waits for the roundest moment from its deadline to `tolerance` later: the one
    /// whose binary number ends in the most zeros. If it is the next timer of the shard and the
    /// owner checks the shard after the deadline, it runs then.
    pub tolerance: u64,
    /// Upper bound of a random delay, in ns, that is added to the first deadline and to those on
    /// the grid of a recurring timer. [`Owner::random`] draws it anew for each deadline.
    pub jitter: u64,
    /// Any number. [`Due::tag`](crate::Due::tag) returns it.
    pub tag: u32,
    /// Name under which [`Names`](crate::Names) finds the timer.
    pub name: Option<Name<O>>,
    /// Condition under which the timer runs. If it returns false, the timer ends as cancelled. Once
    /// it has returned false, it must never return true again.
    ///
    /// The shard calls it, and may drop it, with its lock held. So neither it nor its destructor
    /// may call into this crate or panic.
    pub condition: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Asked after a run of a recurring timer panicked: returns the outcome if that run was the
    /// last one. By default a panic ends no recurring timer. The restrictions are those of
    /// `condition`.
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

/// Part of the options that the node keeps.
pub(crate) struct Extras<O: Owner> {
    pub(crate) tolerance: u64,
    pub(crate) tag: u32,
    jitter: u64,
    /// Jitter that the present deadline contains, in ns.
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

    /// Returns whether the condition no longer holds.
    pub(crate) fn is_dead(&self) -> bool {
        self.condition.as_ref().is_some_and(|alive| !alive())
    }

    /// Returns the outcome if a run that panicked was the last one.
    pub(crate) fn spent(&self) -> Option<Outcome> {
        self.spent.as_ref().and_then(|spent| spent())
    }

    /// Returns the deadline without its jitter.
    pub(crate) fn on_grid(&self, deadline: u64) -> u64 {
        deadline.saturating_sub(self.offset.load(Ordering::Relaxed))
    }

    /// Adds jitter to a deadline, and notes how much it is.
    pub(crate) fn jittered(&self, deadline: u64, owner: &O) -> u64 {
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
