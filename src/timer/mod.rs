//! Timers that run callbacks.

pub(crate) mod arm;
pub(crate) mod builder;
pub(crate) mod clock;
pub(crate) mod home;
pub(crate) mod look;
pub(crate) mod schedule;
pub(crate) mod start;
pub(crate) mod wait;

use std::{
    fmt,
    panic::{RefUnwindSafe, UnwindSafe},
    time::Duration,
};

use tourbillon_shards as shards;
pub use tourbillon_shards::{Cancel, Outcome, Reset, Started, Status};

pub use crate::timer::{
    builder::TimerBuilder,
    clock::{Boot, BootTimer, Monotonic, TimerClock, Wall, WallTimer},
    look::{TimerCounts, Timers},
    schedule::{Every, OnStep, Once, Schedule},
    wait::WaitError,
};
use crate::{engine::core::TimerOwner as _, error::ArmError, util::nanos::nanos};

/// A callback that waits for its deadline, or did.
///
/// Made by `after`, `at` and `every` of [`Handle`](crate::runtime::Handle), of [`Runtime`](crate::runtime::Runtime), and of the
/// [crate] (for the runtime that the calling thread is in). The callback runs on a worker: on the
/// one whose shard holds the timer, or on one that stole it when it came due. It never runs before
/// its deadline.
///
/// Every method may be called from any thread, and none waits. Their answers are exact: of expiry,
/// cancellation and shutdown one wins, and everybody is told the same.
///
/// Dropping a `Timer` detaches it: the callback still runs. See
/// [`cancel_on_drop`](Timer::cancel_on_drop).
///
/// ```
/// use std::time::Duration;
/// use tourbillon::{Cancel, Runtime};
///
/// let runtime = Runtime::new().unwrap();
/// let timer = runtime.after(Duration::from_secs(60), || unreachable!());
/// assert!(timer.is_pending());
/// timer.reset(Duration::from_secs(30));
/// assert_eq!(timer.cancel(), Cancel::Cancelled);
/// assert_eq!(timer.cancel(), Cancel::Over);
/// ```
///
/// With options, and on other clocks: see [`TimerBuilder`].
pub struct Timer<C: TimerClock = Monotonic>(
    /// None: the runtime had been shut down when it was armed.
    Option<shards::Timer<C::Owner>>,
);

// Each method is one step of the claim word. What the callback captures belongs to the workers.
impl<C: TimerClock> UnwindSafe for Timer<C> {}
impl<C: TimerClock> RefUnwindSafe for Timer<C> {}

impl<C: TimerClock> Timer<C> {
    /// What the calls have that cannot refuse: a timer that is over, for a runtime that is.
    pub(crate) fn refused(error: ArmError) -> Self {
        debug_assert_eq!(error, ArmError::Shutdown);
        Self(None)
    }

    /// Starts a timer that was [built](TimerBuilder) and has not been started. Its delay begins now.
    ///
    /// One that was cancelled meanwhile is over; if its callback takes an outcome, it is told now, on
    /// a worker.
    pub fn start(&self) -> Started {
        self.0
            .as_ref()
            .map_or(Started::TooLate, |timer| timer.start(now::<C>(timer)))
    }

    /// Cancels the timer, or says why it was too late. If this call is what ended it, the callback
    /// is dropped before it returns; one that takes an outcome is not, and told on a worker.
    ///
    /// If the callback's destructor panics, that is caught, reported and
    /// [counted](crate::metrics::counters::Counts::panics), as a callback's panic is; the timer is cancelled
    /// all the same.
    #[inline]
    pub fn cancel(&self) -> Cancel {
        self.0.as_ref().map_or(Cancel::Over, shards::Timer::cancel)
    }

    #[inline]
    fn reset_with(&self, f: impl FnOnce(&shards::Timer<C::Owner>) -> Reset) -> Reset {
        self.0.as_ref().map_or(Reset::TooLate, f)
    }

    /// Begins the wait anew: the timer is due its delay, or period, from now.
    ///
    /// This is the keep-alive: for a pending timer it is one atomic operation, from any thread,
    /// without a message to the timer's shard. (And a reading of the clock, for which
    /// [`reset_at`](Timer::reset_at) has no need.) It undoes no other: a deadline that another
    /// thread's start or refresh has set meanwhile, by a later reading, stays.
    #[inline]
    pub fn refresh(&self) -> Reset {
        self.reset_with(|timer| timer.refresh(now::<C>(timer)))
    }

    /// Moves the timer to `delay` from now, which becomes its delay, or period. Its wait begins
    /// anew.
    ///
    /// (If a recurring timer ends while this call is under way, its last runs may have gone by the new period, and the answer is that
    /// it was too late.)
    pub fn reset(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset(now::<C>(timer), nanos(delay)))
    }

    /// Moves the timer to `delay` from when its present wait began, which becomes its delay, or
    /// period. If that has passed, it is due at once.
    ///
    /// A wait begins when the timer is [started](Timer::start), [refreshed](Timer::refresh) or
    /// [reset](Timer::reset), and, if it recurs, with each of its deadlines.
    /// [`reset_at`](Timer::reset_at) and this leave the beginning as it is.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Runtime;
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let before = Instant::now();
    /// let timer = runtime.after(Duration::from_secs(10), || ());
    /// timer.reset_at(before + Duration::from_secs(1));
    /// timer.reset_from_start(Duration::from_secs(5));
    /// assert!(timer.deadline().unwrap().into_std() >= before + Duration::from_secs(5));
    /// # timer.cancel();
    /// ```
    pub fn reset_from_start(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset_from_start(nanos(delay)))
    }

    /// Moves the timer to `deadline`. Its delay, or period, stays, and so does the beginning of its
    /// wait. (The first such move of a timer allocates 16 bytes, which it has until it is freed.)
    #[inline]
    pub fn reset_at(&self, deadline: impl Into<C::Instant>) -> Reset {
        self.reset_with(|timer| {
            let shared = timer.home().owner().shared();
            timer.reset_at(C::nanos(shared, deadline.into()))
        })
    }

    /// When the timer is due, or was, if it is running. `None` if it is over, or will be when it
    /// has run, and if it is never due.
    pub fn deadline(&self) -> Option<C::Instant> {
        let timer = self.0.as_ref()?;
        let deadline = timer
            .deadline()
            .filter(|&deadline| deadline != shards::NEVER)?;
        Some(C::instant(timer.home().owner().shared(), deadline))
    }

    /// Where the timer stands.
    pub fn status(&self) -> Status {
        self.0
            .as_ref()
            .map_or(Status::Over(Outcome::Shutdown), shards::Timer::status)
    }

    /// Whether the callback has yet to start, for the first time or again.
    pub fn is_pending(&self) -> bool {
        matches!(
            self.status(),
            Status::Pending | Status::Running { last: false }
        )
    }

    /// Cancels the timer when the guard is dropped.
    pub fn cancel_on_drop(self) -> CancelOnDrop<C> {
        CancelOnDrop(Some(self))
    }
}

/// Returns the present by the clock of the timer, which the caller is about to move.
#[inline]
fn now<C: TimerClock>(timer: &shards::Timer<C::Owner>) -> u64 {
    // The timer says which clock it goes by, and may be cold. It is fetched while the time is read:
    // the kernel's clock waits for all loads, but not for a prefetch.
    timer.prefetch();
    let read = C::Owner::read();
    timer.home().owner().present(read)
}

impl<C: TimerClock> fmt::Debug for Timer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("status", &self.status())
            .field("deadline", &self.deadline())
            .finish()
    }
}

/// A [`Timer`] that is cancelled when this is dropped.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::Runtime;
///
/// let runtime = Runtime::new().unwrap();
/// {
///     let guard = runtime.after(Duration::from_secs(5), || eprintln!("slow")).cancel_on_drop();
///     // … something that should take less than five seconds …
///     assert!(guard.is_pending());
/// }
/// assert_eq!(runtime.metrics().total().cancelled, 1);
/// ```
#[derive(Debug)]
#[must_use = "dropping the guard cancels the timer"]
pub struct CancelOnDrop<C: TimerClock = Monotonic>(
    /// Taken by `detach` alone.
    Option<Timer<C>>,
);

impl<C: TimerClock> CancelOnDrop<C> {
    /// Gives the timer back: it is not cancelled.
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
        if let Some(timer) = self.0.take() {
            timer.cancel();
        }
    }
}
