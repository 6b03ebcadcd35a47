//! How a built timer is started: with what callback, and what the callback is called with.

use std::sync::{Arc, Weak};

use tourbillon_shards::{self as shards, Flow, Outcome};

use super::{
    Every, Monotonic, Once, Timer, TimerBuilder, TimerClock,
    arm::or_refused,
    builder::{Ask, Asks, Mode},
    home::Homes,
};
use crate::{
    error::ArmError,
    sys::sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// The ways to start a timer, for one sort of callback and of condition.
///
/// `plain` and `told` make of a callback of the one or the other sort the one that a shard calls.
macro_rules! starters {
    ($clock:ty, [$($plain:tt)*], [$($told:tt)*]) => {
        /// Starts the timer: `f` runs when it is due. On a runtime that has been shut down `f` is
        /// dropped, and the timer over.
        ///
        /// # Panics
        ///
        /// If the thread is in no runtime and none was given, and if there is no such worker: see
        /// [`try_start`](Self::try_start).
        #[track_caller]
        pub fn start<F: $($plain)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.plain(false, true, f))
        }

        /// Starts the timer: `f` is told how it ended. On a runtime that has been shut down `f` is told
        /// so at once, by the calling thread.
        ///
        /// A callback that is told [`Shutdown`](Outcome::Shutdown) and starts another timer in answer
        /// would never come to an end: of what it starts on a runtime that is shut down, callbacks are
        /// dropped, and not told.
        ///
        /// # Panics
        ///
        /// As [`start`](Self::start).
        #[track_caller]
        pub fn start_with<F: $($told)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.told(false, true, f))
        }

        /// As [`start`](Self::start), if there is a runtime and it has room.
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

        /// As [`start_with`](Self::start_with), if there is a runtime and it has room.
        ///
        /// # Errors
        ///
        /// See [`ArmError`]. `f` is dropped, and not told.
        pub fn try_start_with<F: $($told)* + Send + 'static>(
            self,
            f: F,
        ) -> Result<Timer<$clock>, ArmError> {
            self.told(true, true, f)
        }

        /// The timer, not started. It lives on the runtime that the calling thread is in, or that was
        /// given, and counts there.
        ///
        /// # Panics
        ///
        /// As [`start`](Self::start).
        #[track_caller]
        pub fn build<F: $($plain)* + Send + 'static>(self, f: F) -> Timer<$clock> {
            or_refused(self.plain(false, false, f))
        }

        /// The timer, not started, whose callback will be told how it ended, if it is started.
        ///
        /// # Panics
        ///
        /// As [`start`](Self::start).
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

/// Tells a callback that takes outcomes, and was not armed because its runtime has been shut down.
fn told<C: TimerClock, F: FnMut(Outcome) -> Flow>(
    armed: Result<Timer<C>, (ArmError, Option<F>)>,
    bounded: bool,
) -> Result<Timer<C>, ArmError> {
    armed.map_err(|(error, f)| {
        if let Some(mut f) = f.filter(|_| error == ArmError::Shutdown && !bounded) {
            shards::tell_of_shutdown(|how| _ = f(how));
        }
        error
    })
}

impl<C: Homes> TimerBuilder<Once<C>>
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
        let run = move |how| {
            if let Some(f) = f.take() {
                f(how);
            }
            Flow::Continue(())
        };
        told(
            self.arm::<F, _>(mode(true, bounded, start), Asks::default(), run),
            bounded,
        )
    }
}

impl<C: Homes, T: ?Sized + Send + Sync + 'static> TimerBuilder<Once<C>, Weak<T>>
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
        let run = move |_| {
            let Some(alive) = weak.upgrade() else {
                return Flow::Break(Outcome::Cancelled);
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
        let run = move |how| {
            let alive = weak.upgrade();
            let how = match how {
                Outcome::Fired if alive.is_none() => Outcome::Cancelled,
                how => how,
            };
            if let Some(f) = f.take() {
                f(how, alive);
            }
            Flow::Break(how)
        };
        told(
            self.arm::<F, _>(mode(true, bounded, start), asks, run),
            bounded,
        )
    }
}

/// How many runs a recurring timer has left.
#[derive(Clone)]
struct Runs(Option<Arc<AtomicU64>>);

impl Runs {
    fn new(times: Option<u64>) -> Self {
        Self(times.map(|times| Arc::new(AtomicU64::new(times))))
    }

    /// Counts a run that begins, and answers what comes after it. Only the run itself counts.
    fn count(&self) -> Flow {
        match &self.0 {
            Some(left) if left.fetch_sub(1, Ordering::Relaxed) <= 1 => Flow::Break(Outcome::Fired),
            _ => Flow::Continue(()),
        }
    }

    /// What asks whether there is a run left, and for another condition, if there is one.
    fn asks(&self, alive: Option<Ask>) -> Asks {
        let Some(left) = self.0.clone() else {
            return Asks::condition(alive);
        };
        let spent = left.clone();
        Asks {
            condition: Some(Box::new(move || {
                left.load(Ordering::Relaxed) > 0 && alive.as_ref().is_none_or(|alive| alive())
            })),
            spent: Some(Box::new(move || {
                (spent.load(Ordering::Relaxed) == 0).then_some(Outcome::Fired)
            })),
        }
    }
}

/// What asks whether there is still something to upgrade to.
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
            let flow = match how {
                Outcome::Fired => runs.count(),
                _ => Flow::Break(how),
            };
            f(how);
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
            let Some(alive) = weak.upgrade() else {
                return Flow::Break(Outcome::Cancelled);
            };
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
        // Whether it has been told the last: if it panics at that, it is not to be told again.
        let ended = Arc::new(AtomicBool::new(false));
        let (spent, told) = (asks.spent.take(), ended.clone());
        asks.spent = Some(Box::new(move || {
            let ended = told.load(Ordering::Relaxed).then_some(Outcome::Cancelled);
            ended.or_else(|| spent.as_ref().and_then(|spent| spent()))
        }));
        let run = move |how| {
            let alive = weak.upgrade();
            let (how, flow) = match how {
                Outcome::Fired if alive.is_none() => {
                    (Outcome::Cancelled, Flow::Break(Outcome::Cancelled))
                }
                Outcome::Fired => (how, runs.count()),
                how => (how, Flow::Break(how)),
            };
            ended.store(how != Outcome::Fired, Ordering::Relaxed);
            f(how, alive);
            flow
        };
        self::told(
            self.arm::<F, _>(mode(true, bounded, start), asks, run),
            bounded,
        )
    }
}

impl<W> TimerBuilder<Every, W> {
    /// How often it runs, if that is bounded.
    fn times_left(&self) -> Option<u64> {
        self.schedule.times
    }
}
