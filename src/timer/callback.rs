//! The callbacks that a shard calls.
//!
//! Each of a user's callbacks is wrapped into one kind: it takes an outcome, and returns whether
//! the timer goes on.

use std::sync::{Arc, Weak};

use tourbillon_shards::{self as shards, Flow};

use super::{
    Outcome,
    builder::{Ask, Asks},
};
use crate::sys::sync::atomic::{AtomicU64, Ordering};

/// Returns the callback of a timer that runs once. `f` gets the outcome, and what the condition
/// keeps alive.
pub(super) fn called_once<W: Condition>(
    condition: W,
    f: impl FnOnce(Outcome, Option<W::Alive>) + Send + 'static,
) -> impl FnMut(shards::Outcome) -> Flow + Send + 'static {
    // The shard calls an `FnMut`. The callback itself can be called once: the first outcome is the
    // only one.
    let mut f = Some(f);
    move |how| {
        let (how, alive) = condition.check(how);
        if let Some(f) = f.take() {
            f(Outcome::of(how), alive);
        }
        // This outcome may differ from the one that the shard passed. It becomes the timer's.
        Flow::Break(how)
    }
}

/// Returns the callback of a recurring timer; see [`called_once`].
pub(super) fn called_repeatedly<W: Condition>(
    condition: W,
    runs: Runs,
    mut f: impl FnMut(Outcome, Option<W::Alive>) + Send + 'static,
) -> impl FnMut(shards::Outcome) -> Flow + Send + 'static {
    move |how| {
        let (how, alive) = condition.check(how);
        // Before the call: a callback that panics has used up its run, or got its outcome.
        let flow = runs.begin(how);
        f(Outcome::of(how), alive);
        flow
    }
}

/// The condition on which a timer runs: none, or that a `Weak` can be upgraded.
pub trait Condition: Clone + Send + Sync + 'static {
    /// What the callback gets.
    type Alive;

    /// Whether the condition can end the timer.
    const CAN_END: bool;

    /// Returns whether the timer may run.
    fn is_alive(&self) -> bool;

    /// Returns what the callback gets. `None` if the timer may not run.
    fn alive(&self) -> Option<Self::Alive>;

    /// Returns the outcome of a timer that ends by `how` or is due, and what its callback gets.
    fn check(&self, how: shards::Outcome) -> (shards::Outcome, Option<Self::Alive>) {
        match (how, self.alive()) {
            // Due, but the last `Arc` was dropped after the shard asked: this is the end, and not a
            // run.
            (shards::Outcome::Fired, None) => (shards::Outcome::Cancelled, None),
            (how, alive) => (how, alive),
        }
    }
}

impl Condition for () {
    type Alive = ();
    const CAN_END: bool = false;

    fn is_alive(&self) -> bool {
        true
    }

    fn alive(&self) -> Option<()> {
        Some(())
    }
}

impl<T: ?Sized + Send + Sync + 'static> Condition for Weak<T> {
    type Alive = Arc<T>;
    const CAN_END: bool = true;

    fn is_alive(&self) -> bool {
        self.strong_count() > 0
    }

    fn alive(&self) -> Option<Arc<T>> {
        self.upgrade()
    }
}

/// Returns the question whether a timer may run, if it may be that it does not.
pub(super) fn ask<W: Condition>(condition: W) -> Option<Ask> {
    W::CAN_END.then(|| -> Ask { Box::new(move || condition.is_alive()) })
}

/// How many runs a recurring timer has left, or [`ENDED`]. `None` if nothing needs to know.
#[derive(Clone)]
pub(super) struct Runs(Option<Arc<AtomicU64>>);

/// Stands for the runs that are left, when the callback has got its last outcome.
const ENDED: u64 = u64::MAX;

impl Runs {
    /// Without a limit, the word only says whether the timer has ended, if `can_end`.
    pub(super) fn new(times: Option<u64>, can_end: bool) -> Self {
        let left = match times {
            Some(times) => Some(times.min(ENDED - 1)),
            None => can_end.then_some(ENDED - 1),
        };
        Self(left.map(|left| Arc::new(AtomicU64::new(left))))
    }

    /// Notes a call that begins, and returns whether the timer goes on after it. Only the call
    /// itself does this.
    fn begin(&self, how: shards::Outcome) -> Flow {
        let Some(left) = &self.0 else {
            return match how {
                shards::Outcome::Fired => Flow::Continue(()),
                // Any other outcome is the end, and not a run.
                how => Flow::Break(how),
            };
        };
        match how {
            shards::Outcome::Fired if left.fetch_sub(1, Ordering::Relaxed) > 1 => {
                Flow::Continue(())
            }
            shards::Outcome::Fired => Flow::Break(how),
            how => {
                left.store(ENDED, Ordering::Relaxed);
                Flow::Break(how)
            }
        }
    }

    /// Returns the questions for a timer with this many runs, and with this condition.
    pub(super) fn asks<W: Condition>(&self, condition: W) -> Asks {
        // Without a word, only the condition can end the timer.
        let Some(left) = self.0.clone() else {
            return Asks::condition(ask(condition));
        };
        let spent = left.clone();
        Asks {
            condition: Some(Box::new(move || {
                // A limit of zero: the timer ends at its first deadline, as cancelled.
                left.load(Ordering::Relaxed) > 0 && condition.is_alive()
            })),
            // A call that panics does not tell the shard that it was the last one. So the shard
            // asks.
            spent: Some(Box::new(move || match spent.load(Ordering::Relaxed) {
                0 => Some(shards::Outcome::Fired),
                ENDED => Some(shards::Outcome::Cancelled),
                _ => None,
            })),
        }
    }
}
