//! The ways to start a built timer, for each kind of callback.
//!
//! A callback may run once or repeatedly, take an outcome or not, and take an `Arc` or not. Each
//! combination is wrapped into the one kind of callback that a shard calls: it takes an [`Outcome`]
//! and returns whether the timer goes on.

use std::sync::{Arc, Weak};

use tourbillon_shards::{self as shards, Flow};

use super::{
    Every, Monotonic, Once, Outcome, Timer, TimerBuilder, TimerClock,
    arm::or_refused,
    builder::{Ask, Asks, Mode},
};
use crate::{
    error::ArmError,
    sys::sync::atomic::{AtomicBool, AtomicU64, Ordering},
    util::contained::contained,
};

/// Defines the public methods that start a timer, for one kind of callback and condition.
///
/// `plain` wraps a callback without an outcome and arms the timer. `told` does that for a callback
/// that takes outcomes.
macro_rules! starters {
    ($clock:ty, [$($plain:tt)*], [$($told:tt)*]) => {
        /// Starts the timer: `f` runs when it is due. If the runtime has been shut down, `f` is
        /// dropped and the returned timer is over.
        ///
        /// # Panics
        ///
        /// Panics if the thread is in no runtime and none was given, or if there is no such worker.
        /// See [`try_start`](Self::try_start).
        #[track_caller]
        pub fn start<F: $($plain)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            // These methods cannot fail, so the bound on the number of timers does not hold for
            // them.
            or_refused(self.plain(false, true, f))
        }

        /// Starts the timer: `f` is called with its outcome. If the runtime has been shut down, the
        /// calling thread calls `f` with [`Shutdown`](Outcome::Shutdown) at once.
        ///
        /// There is one exception. If a callback that is called like that starts another timer on a
        /// runtime that has been shut down, that timer's callback is dropped. Otherwise such
        /// callbacks could go on for ever.
        ///
        /// # Panics
        ///
        /// Panics in the cases in which [`start`](Self::start) panics.
        #[track_caller]
        pub fn start_with<F: $($told)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.told(false, true, f))
        }

        /// Starts the timer like [`start`](Self::start). Fails if there is no runtime, or it is
        /// full.
        ///
        /// # Errors
        ///
        /// See [`ArmError`]. `f` is dropped.
        pub fn try_start<F: $($plain)* + Send + 'static>(
            self,
            f: F,
        ) -> Result<Timer<$clock>, ArmError> {
            self.plain(true, true, f)
        }

        /// Starts the timer like [`start_with`](Self::start_with). Fails if there is no runtime, or
        /// it is full.
        ///
        /// # Errors
        ///
        /// See [`ArmError`]. `f` is dropped without a call.
        pub fn try_start_with<F: $($told)* + Send + 'static>(
            self,
            f: F,
        ) -> Result<Timer<$clock>, ArmError> {
            self.told(true, true, f)
        }

        /// Returns the timer without starting it. It belongs to the given runtime or to the one
        /// that the calling thread is in, and counts towards its limit.
        ///
        /// # Panics
        ///
        /// Panics in the cases in which [`start`](Self::start) panics.
        #[track_caller]
        pub fn build<F: $($plain)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.plain(false, false, f))
        }

        /// Returns the timer without starting it. `f` is called with the outcome once the timer has
        /// been started.
        ///
        /// # Panics
        ///
        /// Panics in the cases in which [`start`](Self::start) panics.
        #[track_caller]
        pub fn build_with<F: $($told)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.told(false, false, f))
        }
    };
}

fn mode(outcome: bool, bounded: bool, start: bool) -> Mode {
    Mode {
        outcome,
        bounded,
        start,
    }
}

/// Calls a callback that takes outcomes with `Shutdown`, if it was not armed because its runtime
/// has been shut down.
fn told<C: TimerClock, F: FnMut(shards::Outcome) -> Flow>(
    armed: Result<Timer<C>, (ArmError, Option<F>)>,
    bounded: bool,
) -> Result<Timer<C>, ArmError> {
    armed.map_err(|(error, f)| {
        // No worker is left to call `f`, so this thread does. The caller of a `try_` method gets
        // the error instead.
        if let Some(mut f) = f.filter(|_| error == ArmError::Shutdown && !bounded) {
            // As on a worker, a panic of `f` does not reach the caller.
            contained(|| shards::tell_of_shutdown(|how| _ = f(how)));
        }
        error
    })
}

impl<C: TimerClock> TimerBuilder<Once<C>>
where
    C::Instant: Copy,
{
    starters!(C, [FnOnce()], [FnOnce(Outcome)]);

    fn plain<F: FnOnce() + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        f: F,
    ) -> Result<Timer<C>, ArmError> {
        // The shard calls an `FnMut`. The callback itself can be called once.
        let mut f = Some(f);
        let run = move |_| {
            if let Some(f) = f.take() {
                f();
            }
            Flow::Continue(())
        };
        self.arm::<F, _>(mode(false, bounded, start), Asks::default(), run)
            .map_err(|(error, _)| error)
    }

    fn told<F: FnOnce(Outcome) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        f: F,
    ) -> Result<Timer<C>, ArmError> {
        let mut f = Some(f);
        // The first outcome is the only one: a timer that has ended gets no other.
        let run = move |how| {
            if let Some(f) = f.take() {
                f(Outcome::of(how));
            }
            Flow::Continue(())
        };
        told(
            self.arm::<F, _>(mode(true, bounded, start), Asks::default(), run),
            bounded,
        )
    }
}

impl<C: TimerClock, T: ?Sized + Send + Sync + 'static> TimerBuilder<Once<C>, Weak<T>>
where
    C::Instant: Copy,
{
    starters!(C, [FnOnce(Arc<T>)], [FnOnce(Outcome, Option<Arc<T>>)]);

    fn plain<F: FnOnce(Arc<T>) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        f: F,
    ) -> Result<Timer<C>, ArmError> {
        let weak = self.condition.clone();
        let asks = Asks::condition(alive(&weak));
        let mut f = Some(f);
        // The `Arc` may have been dropped after the shard asked for the condition.
        let run = move |_| {
            let Some(alive) = weak.upgrade() else {
                return Flow::Break(shards::Outcome::Cancelled);
            };
            if let Some(f) = f.take() {
                f(alive);
            }
            Flow::Continue(())
        };
        self.arm::<F, _>(mode(false, bounded, start), asks, run)
            .map_err(|(error, _)| error)
    }

    fn told<F: FnOnce(Outcome, Option<Arc<T>>) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        f: F,
    ) -> Result<Timer<C>, ArmError> {
        let weak = self.condition.clone();
        let asks = Asks::condition(alive(&weak));
        let mut f = Some(f);
        // Likewise: without an `Arc` the timer did not fire, but was cancelled.
        let run = move |how| {
            let alive = weak.upgrade();
            let how = match how {
                shards::Outcome::Fired if alive.is_none() => shards::Outcome::Cancelled,
                how => how,
            };
            if let Some(f) = f.take() {
                f(Outcome::of(how), alive);
            }
            // This outcome may differ from the one that the shard passed. It becomes the timer's.
            Flow::Break(how)
        };
        told(
            self.arm::<F, _>(mode(true, bounded, start), asks, run),
            bounded,
        )
    }
}

/// How many runs a recurring timer has left. `None` if there is no limit.
#[derive(Clone)]
struct Runs(Option<Arc<AtomicU64>>);

impl Runs {
    fn new(times: Option<u64>) -> Self {
        Self(times.map(|times| Arc::new(AtomicU64::new(times))))
    }

    /// Counts a run that begins, and returns whether the timer goes on after it. Only the run
    /// itself calls this.
    fn count(&self) -> Flow {
        match &self.0 {
            Some(left) if left.fetch_sub(1, Ordering::Relaxed) <= 1 => {
                Flow::Break(shards::Outcome::Fired)
            }
            _ => Flow::Continue(()),
        }
    }

    /// Returns the questions for a timer with this many runs, and with the condition `alive`.
    fn asks(&self, alive: Option<Ask>) -> Asks {
        // Without a limit of runs, only the condition can end the timer.
        let Some(left) = self.0.clone() else {
            return Asks::condition(alive);
        };
        let spent = left.clone();
        Asks {
            condition: Some(Box::new(move || {
                // A limit of zero: the timer ends at its first deadline, as cancelled.
                left.load(Ordering::Relaxed) > 0 && alive.as_ref().is_none_or(|alive| alive())
            })),
            spent: Some(Box::new(move || {
                // A run that panics does not tell the shard that it was the last one. So the shard
                // asks.
                (spent.load(Ordering::Relaxed) == 0).then_some(shards::Outcome::Fired)
            })),
        }
    }
}

/// Returns a question whose answer is whether `weak` can still be upgraded.
fn alive<T: ?Sized + Send + Sync + 'static>(weak: &Weak<T>) -> Option<Ask> {
    let weak = weak.clone();
    Some(Box::new(move || weak.strong_count() > 0))
}

impl TimerBuilder<Every> {
    starters!(Monotonic, [FnMut()], [FnMut(Outcome)]);

    fn plain<F: FnMut() + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        mut f: F,
    ) -> Result<Timer, ArmError> {
        let runs = Runs::new(self.times_left());
        let asks = runs.asks(None);
        let run = move |_| {
            // Count before the call: a callback that panics has used up its run.
            let flow = runs.count();
            f();
            flow
        };
        self.arm::<F, _>(mode(false, bounded, start), asks, run)
            .map_err(|(error, _)| error)
    }

    fn told<F: FnMut(Outcome) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        mut f: F,
    ) -> Result<Timer, ArmError> {
        let runs = Runs::new(self.times_left());
        let asks = runs.asks(None);
        let run = move |how| {
            // Any outcome but `Fired` is the end, and not a run.
            let flow = match how {
                shards::Outcome::Fired => runs.count(),
                _ => Flow::Break(how),
            };
            f(Outcome::of(how));
            flow
        };
        told(
            self.arm::<F, _>(mode(true, bounded, start), asks, run),
            bounded,
        )
    }
}

impl<T: ?Sized + Send + Sync + 'static> TimerBuilder<Every, Weak<T>> {
    starters!(Monotonic, [FnMut(Arc<T>)], [FnMut(Outcome, Option<Arc<T>>)]);

    fn plain<F: FnMut(Arc<T>) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        mut f: F,
    ) -> Result<Timer, ArmError> {
        let weak = self.condition.clone();
        let runs = Runs::new(self.times_left());
        let asks = runs.asks(alive(&weak));
        let run = move |_| {
            // The `Arc` may have been dropped after the shard asked for the condition.
            let Some(alive) = weak.upgrade() else {
                return Flow::Break(shards::Outcome::Cancelled);
            };
            // Counted before the call, as above.
            let flow = runs.count();
            f(alive);
            flow
        };
        self.arm::<F, _>(mode(false, bounded, start), asks, run)
            .map_err(|(error, _)| error)
    }

    fn told<F: FnMut(Outcome, Option<Arc<T>>) + Send + 'static>(
        self,
        bounded: bool,
        start: bool,
        mut f: F,
    ) -> Result<Timer, ArmError> {
        let weak = self.condition.clone();
        let runs = Runs::new(self.times_left());
        let mut asks = runs.asks(alive(&weak));
        // Set when the callback gets its last outcome. If it panics then, it must not get another.
        let ended = Arc::new(AtomicBool::new(false));
        // Ask this first, and then whether the runs are used up.
        let (spent, told) = (asks.spent.take(), ended.clone());
        asks.spent = Some(Box::new(move || {
            let ended = told
                .load(Ordering::Relaxed)
                .then_some(shards::Outcome::Cancelled);
            ended.or_else(|| spent.as_ref().and_then(|spent| spent()))
        }));
        let run = move |how| {
            let alive = weak.upgrade();
            let (how, flow) = match how {
                // Due, but the last `Arc` was dropped: this call is the end, and not a run.
                shards::Outcome::Fired if alive.is_none() => (
                    shards::Outcome::Cancelled,
                    Flow::Break(shards::Outcome::Cancelled),
                ),
                shards::Outcome::Fired => (how, runs.count()),
                how => (how, Flow::Break(how)),
            };
            // Before the call, which may panic.
            ended.store(how != shards::Outcome::Fired, Ordering::Relaxed);
            f(Outcome::of(how), alive);
            flow
        };
        self::told(
            self.arm::<F, _>(mode(true, bounded, start), asks, run),
            bounded,
        )
    }
}

impl<W> TimerBuilder<Every, W> {
    /// Returns the limit of runs, if there is one.
    fn times_left(&self) -> Option<u64> {
        self.schedule.times
    }
}
