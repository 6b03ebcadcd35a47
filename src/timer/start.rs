//! The ways to start a timer, for each kind of callback.
//!
//! A callback may run once or repeatedly, take an outcome or not, and take an `Arc` or not. Each
//! combination is wrapped into one kind (`callback.rs`).

use std::sync::{Arc, Weak};

use super::{
    Every, Monotonic, Once, Outcome, Timer, TimerBuilder, TimerClock,
    arm::or_over,
    builder::{Asks, Mode},
    callback::{Condition, Runs, ask, called_once, called_repeatedly},
};
use crate::error::ArmError;

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
        self.arm::<N, _>(mode, asks, called_once(condition, f))
    }
}

impl<W: Condition> TimerBuilder<Every, W> {
    /// Arms a timer that runs repeatedly; see `once`.
    fn every<N: 'static>(
        self,
        mode: Mode,
        f: impl FnMut(Outcome, Option<W::Alive>) + Send + 'static,
    ) -> Result<Timer, ArmError> {
        let condition = self.condition.clone();
        let runs = Runs::new(self.schedule.times, mode.told && W::CAN_END);
        let asks = runs.asks(condition.clone());
        self.arm::<N, _>(mode, asks, called_repeatedly(condition, runs, f))
    }
}
