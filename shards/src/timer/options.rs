//! [`Options`], which few timers have: tolerance, jitter, name, condition, outcomes.

use std::num::NonZeroU64;

use crate::{
    answer::Outcome, names::Name, node::extras::Extras, owner::Owner, tolerance::Tolerance,
};

/// Options of a timer, for [`Timer::build`](crate::Timer::build).
///
/// ```
/// # use std::sync::Arc;
/// # use tourbillon_shards::{Flow, Options, Owner, Shard, Timer, Tolerance};
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
///     tolerance: Tolerance::new(100 * MS),
///     condition: Some(Box::new(move || weak.strong_count() > 0)),
///     ..Options::default()
/// };
/// let timer = Timer::build(&shard, 1_000 * MS, options, |_| Flow::Continue(()));
/// timer.start(0);
///
/// let wakes = shard.next_deadline();
/// assert!((1_000 * MS..=1_100 * MS).contains(&wakes));
/// shard.close();
/// ```
pub struct Options<O: Owner> {
    /// Until when the timer waits first, in place of its wait.
    pub deadline: Option<u64>,
    /// Whether the timer runs repeatedly. Its wait is the period.
    pub recurring: bool,
    /// Whether the callback takes outcomes: it is also called with the outcome when the timer ends
    /// without a run or, if it recurs, after its runs. The thread that runs the
    /// [`Notice`](crate::Notice) makes that call.
    pub outcome: bool,
    /// How late the timer may run, to share a wake-up with others.
    ///
    /// The timer waits for the roundest moment from its deadline to `tolerance` later: the one
    /// whose binary number ends in the most zeros. If it is the next timer of the shard and the
    /// owner checks the shard after the deadline, it runs then.
    pub tolerance: Tolerance,
    /// Upper bound of a random delay, in ns, that is added to the first deadline and to those on
    /// the grid of a recurring timer. [`Owner::random`] draws it anew for each deadline.
    pub jitter: u64,
    /// Any number. [`Due::tag`](crate::Due::tag) and [`Notice::tag`](crate::Notice::tag) return it.
    pub tag: u32,
    /// Number that says where the timer comes from. [`Due::origin`](crate::Due::origin) returns it.
    pub origin: Option<NonZeroU64>,
    /// Name under which [`Names`](crate::Names) finds the timer.
    pub name: Option<Name<O>>,
    /// Condition under which the timer runs. If it returns false, the timer ends as cancelled. Once
    /// it has returned false, it must never return true again.
    ///
    /// The shard calls it, and may drop it, with its lock held. So neither it nor its destructor
    /// may call into this crate, or block: until they return, no timer of the shard comes due, and
    /// its owner and each thread that closes the shard or [settles](crate::Shard::settle) it wait.
    /// If the condition panics, it counts as gone. A panic of its destructor goes on in the thread
    /// that drops it, and the shard stays usable.
    pub condition: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    /// Asked after a run of a recurring timer panicked: returns the outcome if that run was the
    /// last one. By default a panic ends no recurring timer. It is not called under the lock, but
    /// may be dropped there: its destructor has the restrictions of `condition`. If it panics, that
    /// run was not the last one.
    pub spent: Option<Box<dyn Fn() -> Option<Outcome> + Send + Sync>>,
}

impl<O: Owner> Default for Options<O> {
    fn default() -> Self {
        Self {
            deadline: None,
            recurring: false,
            outcome: false,
            tolerance: Tolerance::EXACT,
            jitter: 0,
            tag: 0,
            origin: None,
            name: None,
            condition: None,
            spent: None,
        }
    }
}

impl<O: Owner> std::fmt::Debug for Options<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("deadline", &self.deadline)
            .field("recurring", &self.recurring)
            .field("outcome", &self.outcome)
            .field("tolerance", &self.tolerance)
            .field("jitter", &self.jitter)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl<O: Owner> Options<O> {
    /// Splits the options into the parts that the node keeps.
    pub(super) fn into_parts(self) -> (Extras, Option<Name<O>>) {
        let extras = Extras::new(
            self.jitter,
            self.tag,
            self.origin,
            self.condition,
            self.spent,
        );
        (extras, self.name)
    }
}
