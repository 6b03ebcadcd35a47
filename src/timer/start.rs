//! The ways to start a timer, for each kind of callback.
//!
//! A callback may run once or repeatedly, take an outcome or not, and take an `Arc` or not. Each
//! combination is wrapped into the one kind of callback that a shard calls: it takes an [`Outcome`]
//! and returns whether the timer goes on.

use std::sync::{Arc, Weak};

use tourbillon_shards::{self as shards, Flow};

use super::{
    Every, Monotonic, Once, Outcome, Timer, TimerBuilder, TimerClock,
    arm::or_over,
    builder::{Ask, Asks, Mode},
};
use crate::{
    error::ArmError,
    sys::sync::atomic::{AtomicU64, Ordering},
};

/// Defines the public methods that start a timer, for one kind of callback and condition.
///
/// `$f` is the user's callback. `$plain` and `$told` wrap one without and one with an outcome, for
/// the method `$arm`.
macro_rules! starters {
    (
        $clock:ty, $arm:ident, $f:ident,
        [$($plain:tt)*] $plainly:expr,
        [$($told:tt)*] $telling:expr $(,)?
    ) => {
        /// Arms the timer, and starts it unless it is [`manual`](Self::manual): `f` runs when it is
        /// due. [The rule](crate::timer) says what happens on a runtime that has been shut down, or
        /// is full.
        ///
        /// # Panics
        ///
        /// Panics if the thread is in no runtime and none was given, or if there is no such worker.
        /// See [`try_start`](Self::try_start).
        #[track_caller]
        pub fn start<F: $($plain)* + Send + 'static>(self, $f: F) -> Timer<$clock> {
            or_over(self.$arm::<F>(Mode::START, $plainly))
        }

        /// Arms the timer, and starts it unless it is [`manual`](Self::manual): `f` is called with
        /// its outcome, also that of [the rule](crate::timer).
        ///
        /// If a callback that is told [`Refused`](Outcome::Refused) starts another such timer,
        /// workers call one after the other without a pause, for as long as the runtime is full.
        ///
        /// There is one exception. If a callback that is told [`Shutdown`](Outcome::Shutdown)
        /// starts another timer on a runtime that has been shut down, that timer's callback is
        /// dropped. Otherwise such callbacks could go on for ever.
        ///
        /// # Panics
        ///
        /// Panics in the cases in which [`start`](Self::start) panics.
        #[track_caller]
        pub fn start_with<F: $($told)* + Send + 'static>(self, $f: F) -> Timer<$clock> {
            or_over(self.$arm::<F>(Mode::START_WITH, $telling))
        }

        /// Arms the timer like [`start`](Self::start), or returns an error.
        ///
        /// # Errors
        ///
        /// See [`ArmError`]. `f` is dropped.
        pub fn try_start<F: $($plain)* + Send + 'static>(
            self,
            $f: F,
        ) -> Result<Timer<$clock>, ArmError> {
            self.$arm::<F>(Mode::TRY_START, $plainly)
        }

        /// Arms the timer like [`start_with`](Self::start_with), or returns an error.
        ///
        /// # Errors
        ///
        /// See [`ArmError`]. `f` is dropped without a call.
        pub fn try_start_with<F: $($told)* + Send + 'static>(
            self,
            $f: F,
        ) -> Result<Timer<$clock>, ArmError> {
            self.$arm::<F>(Mode::TRY_START_WITH, $telling)
        }
    };
}

impl<C: TimerClock> TimerBuilder<Once<C>>
where
    C::Instant: Copy,
{
    starters!(
        C, once, f,
        [FnOnce()] move |_, _| f(),
        [FnOnce(Outcome)] move |how, _| f(how),
    );
}

impl<C: TimerClock, T: ?Sized + Send + Sync + 'static> TimerBuilder<Once<C>, Weak<T>>
where
    C::Instant: Copy,
{
    starters!(
        C, once, f,
        [FnOnce(Arc<T>)] move |_, alive| if let Some(alive) = alive { f(alive) },
        [FnOnce(Outcome, Option<Arc<T>>)] f,
    );
}

impl TimerBuilder<Every> {
    starters!(
        Monotonic, every, f,
        [FnMut()] { let mut f = f; move |_, _| f() },
        [FnMut(Outcome)] { let mut f = f; move |how, _| f(how) },
    );
}

impl<T: ?Sized + Send + Sync + 'static> TimerBuilder<Every, Weak<T>> {
    starters!(
        Monotonic, every, f,
        [FnMut(Arc<T>)] { let mut f = f; move |_, alive| if let Some(alive) = alive { f(alive) } },
        [FnMut(Outcome, Option<Arc<T>>)] f,
    );
}

impl<C: TimerClock, W: Condition> TimerBuilder<Once<C>, W>
where
    C::Instant: Copy,
{
    /// Arms a timer that runs once. `f` wraps the user's callback, whose type is `N`. It gets the
    /// outcome, and what the condition keeps alive.
    fn once<N: 'static>(
        self,
        mode: Mode,
        f: impl FnOnce(Outcome, Option<W::Alive>) + Send + 'static,
    ) -> Result<Timer<C>, ArmError> {
        let condition = self.condition.clone();
        let asks = Asks::condition(ask(condition.clone()));
        // The shard calls an `FnMut`. The callback itself can be called once: the first outcome is
        // the only one.
        let mut f = Some(f);
        let run = move |how| {
            let (how, alive) = condition.check(how);
            if let Some(f) = f.take() {
                f(Outcome::of(how), alive);
            }
            // This outcome may differ from the one that the shard passed. It becomes the timer's.
            Flow::Break(how)
        };
        self.arm::<N, _>(mode, asks, run)
    }
}

impl<W: Condition> TimerBuilder<Every, W> {
    /// Arms a timer that runs repeatedly; see `once`.
    fn every<N: 'static>(
        self,
        mode: Mode,
        mut f: impl FnMut(Outcome, Option<W::Alive>) + Send + 'static,
    ) -> Result<Timer, ArmError> {
        let condition = self.condition.clone();
        let runs = Runs::new(self.schedule.times, mode.told && W::CAN_END);
        let asks = runs.asks(condition.clone());
        let run = move |how| {
            let (how, alive) = condition.check(how);
            // Before the call: a callback that panics has used up its run, or got its outcome.
            let flow = runs.begin(how);
            f(Outcome::of(how), alive);
            flow
        };
        self.arm::<N, _>(mode, asks, run)
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
fn ask<W: Condition>(condition: W) -> Option<Ask> {
    W::CAN_END.then(|| -> Ask { Box::new(move || condition.is_alive()) })
}

/// How many runs a recurring timer has left, or [`ENDED`]. `None` if nothing needs to know.
#[derive(Clone)]
struct Runs(Option<Arc<AtomicU64>>);

/// Stands for the runs that are left, when the callback has got its last outcome.
const ENDED: u64 = u64::MAX;

impl Runs {
    /// Without a limit, the word only says whether the timer has ended, if `can_end`.
    fn new(times: Option<u64>, can_end: bool) -> Self {
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
    fn asks<W: Condition>(&self, condition: W) -> Asks {
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
