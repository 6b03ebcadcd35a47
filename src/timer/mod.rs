//! Timers that run callbacks: the [`Timer`] handle and its methods.
//!
//! # The rule
//!
//! Each way to arm a timer answers alike if its runtime cannot take the timer:
//!
//! | the runtime | `after`, `at`, `every`, `…_many`, `start`, `start_with` | `try_start`, `try_start_with` |
//! |---|---|---|
//! | none is given, and the thread is in none | panic | [`ArmError::NoRuntime`] |
//! | has been shut down | timer that is over: [`Outcome::Shutdown`] | [`ArmError::Shutdown`] |
//! | is full: [`max_timers`] | timer that is over: [`Outcome::Refused`] | [`ArmError::Full`] |
//!
//! The callback of a timer that is over at once is dropped. If the callback takes an outcome, a
//! worker calls it with this outcome and then drops it. A runtime that has ended has no workers:
//! there the calling thread does that. With an error, the callback is dropped without a call.
//!
//! A runtime counts as shut down as soon as its workers are told to end. While a shutdown is under
//! way, a [manual](TimerBuilder::manual) timer without an error is over only from its start.
//!
//! [`max_timers`]: crate::runtime::Builder::max_timers

// Where things are:
//
// - `builder`: `TimerBuilder`, the options of a timer
// - `start`: the last steps of the builder
// - `callback`: what the shard calls
// - `arm`: the free functions `after`, `at` and `every`, and arming without options
// - `many`: arming of many timers at once
// - `handle`: the same as methods of `Handle`, and timers by their names
// - `home`: which shard a timer goes to
// - `clock`, `schedule`: by which clock, and when, a timer is due
// - `wait`: cancelling and waiting for the callback's end
// - `answer`: what the methods of a timer answer
// - `look`: a snapshot of a runtime's timers

pub(crate) mod answer;
pub(crate) mod arm;
pub(crate) mod builder;
mod callback;
pub(crate) mod clock;
mod handle;
pub(crate) mod home;
pub(crate) mod look;
pub(crate) mod many;
pub(crate) mod schedule;
pub(crate) mod start;
pub(crate) mod wait;

use std::{
    fmt,
    marker::PhantomData,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

use tourbillon_shards as shards;

pub use crate::timer::{
    answer::{Cancel, Outcome, Reset, Started, Status},
    builder::TimerBuilder,
    clock::{Boot, BootTimer, Monotonic, TimerClock, Wall, WallTimer},
    look::{TimerCounts, Timers},
    schedule::{Every, OnStep, Once, Schedule},
    wait::WaitError,
};
use crate::{
    clock::instant::Instant, engine::core::Core, error::ArmError, sys, util::nanos::nanos,
};

/// A handle to a timer, which runs a callback at its deadline.
///
/// Timers are made by `after`, `at` and `every` of [`Handle`](crate::runtime::Handle), and of the
/// [crate] for the runtime that the calling thread is in. For options, for other clocks and for an
/// error in place of a panic see [`TimerBuilder`].
///
/// The callback runs on a worker: on the one whose shard holds the timer, or on one that stole the
/// job when the timer was due. It never runs before its deadline.
///
/// All methods may be called from any thread, and none blocks. Their answers are exact: of expiry,
/// cancellation and shutdown exactly one wins, and all callers get consistent answers.
///
/// Dropping a `Timer` detaches it: the callback still runs. To change that, see
/// [`cancel_on_drop`](Timer::cancel_on_drop).
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Runtime, timer::Cancel};
///
/// let runtime = Runtime::new().unwrap();
/// let timer = runtime.handle().after(Duration::from_secs(60), || unreachable!());
/// assert!(timer.is_pending());
/// timer.reset_after(Duration::from_secs(30));
/// assert_eq!(timer.cancel(), Cancel::Cancelled);
/// assert_eq!(timer.cancel(), Cancel::Over);
/// ```
pub struct Timer<C: TimerClock = Monotonic>(
    /// `None` if the runtime had been shut down when the timer was armed.
    Option<shards::Timer<Core>>,
    PhantomData<C>,
);

// Each method is one step of the claim word, so a panic leaves no broken state. The callback's
// captures belong to the workers.
impl<C: TimerClock> UnwindSafe for Timer<C> {}
impl<C: TimerClock> RefUnwindSafe for Timer<C> {}

impl<C: TimerClock> Timer<C> {
    /// Returns a timer that is over, for a call that cannot return an error: the runtime has been
    /// shut down.
    pub(crate) fn over(error: ArmError) -> Self {
        // All other errors are mistakes of the caller, and panic.
        debug_assert_eq!(error, ArmError::Shutdown);
        Self(None, PhantomData)
    }

    #[inline]
    pub(crate) fn of(timer: shards::Timer<Core>) -> Self {
        Self(Some(timer), PhantomData)
    }

    /// Starts a timer that is [manual](TimerBuilder::manual). Its delay counts from this call.
    ///
    /// If the timer was cancelled before, it is over. A callback that takes an outcome then gets
    /// `Cancelled`, on a worker.
    pub fn start(&self) -> Started {
        self.0.as_ref().map_or(Started::Shutdown, |timer| {
            Started::of(timer.start(now::<C>(timer)))
        })
    }

    /// Cancels the timer, or returns why it is too late.
    ///
    /// If this call ends the timer, it drops the callback before it returns. A callback that takes
    /// an outcome is not dropped: a worker calls it with `Cancelled`.
    ///
    /// If the callback's destructor panics, the panic is caught, reported and
    /// [counted](crate::metrics::counters::Counts::panics), like a panic of a callback. The timer
    /// is cancelled all the same.
    #[inline]
    pub fn cancel(&self) -> Cancel {
        self.0
            .as_ref()
            .map_or(Cancel::Over, |timer| Cancel::of(timer.cancel()))
    }

    #[inline]
    fn reset_with(&self, f: impl FnOnce(&shards::Timer<Core>) -> shards::Reset) -> Reset {
        self.0
            .as_ref()
            .map_or(Reset::TooLate, |timer| Reset::of(f(timer)))
    }

    /// Restarts the wait: the timer is due its delay, or period, from now.
    ///
    /// This is the keep-alive operation. For a pending timer it is one atomic operation, from any
    /// thread, without a message to the timer's shard, plus a reading of the clock.
    /// ([`reset_at`](Timer::reset_at) needs no such reading.) A refresh never makes the deadline
    /// earlier than one that a concurrent start or refresh has set by a later reading of the clock.
    #[inline]
    pub fn refresh(&self) -> Reset {
        self.reset_with(|timer| timer.refresh(now::<C>(timer)))
    }

    /// Moves the timer to `delay` from now. `delay` becomes its delay or period, and its wait
    /// restarts.
    ///
    /// The first such move of a timer to another delay allocates 16 bytes, which are freed with the
    /// timer.
    ///
    /// If a recurring timer ends during this call, its last runs may have used the new period
    /// although the answer is [`TooLate`](Reset::TooLate).
    pub fn reset_after(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset_after(now::<C>(timer), nanos(delay)))
    }

    /// Moves the timer to `delay` after the start of its present wait. `delay` becomes its delay or
    /// period. If that moment has passed, the timer is due at once.
    ///
    /// A wait starts when the timer is [started](Timer::start), [refreshed](Timer::refresh) or
    /// [reset](Timer::reset_after). For a recurring timer it also starts at each deadline. After
    /// [`reset_at`](Timer::reset_at) it counts as started one delay before the new deadline. This
    /// method does not change the start.
    ///
    /// The first such move of a timer allocates 16 bytes, which are freed with the timer.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Runtime;
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let before = Instant::now();
    /// let timer = runtime.handle().after(Duration::from_secs(10), || ());
    /// timer.reset_from_start(Duration::from_secs(5));
    /// assert!(timer.deadline().unwrap().into_std() >= before + Duration::from_secs(5));
    /// # timer.cancel();
    /// ```
    pub fn reset_from_start(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset_from_start(nanos(delay)))
    }

    /// Moves the timer to `deadline`. Its delay or period stays, and its wait counts as started one
    /// delay before `deadline`: see [`reset_from_start`](Timer::reset_from_start).
    #[inline]
    pub fn reset_at(&self, deadline: impl Into<C::Instant>) -> Reset {
        self.reset_with(|timer| {
            // By the clock of the timer's own runtime, whatever runtime this thread is in.
            let shared = &timer.home().owner().shared;
            timer.reset_at(C::nanos(shared, deadline.into()))
        })
    }

    /// Returns when the timer is due; while its callback runs, when it was due.
    ///
    /// Returns `None` if the timer is not started, is over, is never due, or was cancelled so that
    /// only its present run is left.
    pub fn deadline(&self) -> Option<C::Instant> {
        let timer = self.0.as_ref()?;
        let deadline = timer
            .deadline()
            // To a shard, `NEVER` is a deadline like any other. To the user it is none.
            .filter(|&deadline| deadline != shards::NEVER)?;
        Some(C::instant(&timer.home().owner().shared, deadline))
    }

    /// Returns the present status of the timer.
    pub fn status(&self) -> Status {
        self.0
            .as_ref()
            .map_or(Status::Over(Outcome::Shutdown), |timer| {
                Status::of(timer.status())
            })
    }

    /// Returns whether the callback will run, for the first time or again.
    pub fn is_pending(&self) -> bool {
        matches!(
            self.status(),
            Status::Pending | Status::Running { last: false }
        )
    }

    /// Returns a guard that cancels the timer when it is dropped.
    pub fn cancel_on_drop(self) -> CancelOnDrop<C> {
        CancelOnDrop(Some(self))
    }
}

/// Returns the present time of the timer's clock, in ns, to compute a new deadline from.
#[inline]
fn now<C: TimerClock>(timer: &shards::Timer<Core>) -> u64 {
    if C::OTHER.is_some() {
        return timer.home().owner().now();
    }
    // The timer knows its runtime, and may not be in the cache. Prefetch it while the time is read:
    // reading the kernel's clock waits for all loads, but not for a prefetch.
    timer.prefetch();
    let read = Instant::from_kernel(sys::ticks::now_for_deadline());
    let clock = &timer.home().owner().shared.clock;
    clock.present(clock.nanos(read))
}

impl<C: TimerClock> fmt::Debug for Timer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("status", &self.status())
            .field("deadline", &self.deadline())
            .finish()
    }
}

/// A guard that cancels its [`Timer`] when it is dropped. See [`Timer::cancel_on_drop`].
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Runtime;
///
/// let runtime = Runtime::new().unwrap();
/// {
///     let slow = runtime.handle().after(Duration::from_secs(5), || eprintln!("slow"));
///     let guard = slow.cancel_on_drop();
///     // … something that should take less than five seconds …
///     assert!(guard.is_pending());
/// }
/// assert_eq!(runtime.metrics().total().cancelled(), 1);
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard cancels the timer"]
pub struct CancelOnDrop<C: TimerClock = Monotonic>(
    /// `None` after `detach` only.
    Option<Timer<C>>,
);

impl<C: TimerClock> CancelOnDrop<C> {
    /// Returns the timer without cancelling it.
    pub fn detach(mut self) -> Timer<C> {
        self.0
            .take()
            .expect("only a consuming method takes the timer")
    }
}

impl<C: TimerClock> std::ops::Deref for CancelOnDrop<C> {
    type Target = Timer<C>;

    fn deref(&self) -> &Timer<C> {
        self.0
            .as_ref()
            .expect("only a consuming method takes the timer")
    }
}

impl<C: TimerClock> Drop for CancelOnDrop<C> {
    fn drop(&mut self) {
        // `detach` has taken the timer, so it is not cancelled.
        if let Some(timer) = self.0.take() {
            timer.cancel();
        }
    }
}
