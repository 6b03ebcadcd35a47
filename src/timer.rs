//! Timers that run callbacks.

use std::{fmt, sync::Arc, time::Duration};

use tourbillon_shards as shards;
pub use tourbillon_shards::{Cancel, Outcome, Reset, Status};

use crate::{
    error::ArmError,
    runtime::{Choice, Core, HomeError, WorkerShard, with_home},
    time::Instant,
};

/// A callback that waits for its deadline, or did.
///
/// Made by `after`, `at` and `every` of [`Handle`](crate::Handle), of [`Runtime`](crate::Runtime), and of the
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
pub struct Timer(
    /// None: the runtime had been shut down when it was armed.
    Option<shards::Timer<Core>>,
);

impl Timer {
    /// What the calls have that cannot refuse: a timer that is over, for a runtime that is.
    pub(crate) fn refused(error: ArmError) -> Self {
        debug_assert_eq!(error, ArmError::Shutdown);
        Self(None)
    }

    /// Cancels the timer, or says why it was too late. If this call is what ended it, the callback
    /// is dropped before it returns.
    pub fn cancel(&self) -> Cancel {
        self.0.as_ref().map_or(Cancel::Over, shards::Timer::cancel)
    }

    fn reset_with(&self, f: impl FnOnce(&shards::Timer<Core>) -> Reset) -> Reset {
        self.0.as_ref().map_or(Reset::TooLate, f)
    }

    /// Begins the wait anew: the timer is due its delay, or period, from now.
    ///
    /// This is the keep-alive: for a pending timer it is one atomic operation, from any thread,
    /// without a message to the timer's shard. (And a reading of the clock, for which
    /// [`reset_at`](Timer::reset_at) has no need.)
    pub fn refresh(&self) -> Reset {
        self.reset_with(|timer| timer.refresh(now(timer)))
    }

    /// Moves the timer to `delay` from now, which becomes its delay, or period.
    pub fn reset(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset(now(timer), nanos(delay)))
    }

    /// Moves the timer to `delay` from when its present wait began, which becomes its delay, or
    /// period. If that has passed, it is due at once.
    pub fn reset_from_start(&self, delay: Duration) -> Reset {
        self.reset_with(|timer| timer.reset_from_start(nanos(delay)))
    }

    /// Moves the timer to `deadline`. Its delay, or period, stays.
    pub fn reset_at(&self, deadline: impl Into<Instant>) -> Reset {
        self.reset_with(|timer| {
            let clock = &timer.home().owner().shared.clock;
            timer.reset_at(clock.nanos(deadline.into()))
        })
    }

    /// When the timer is due, or was, if it is running. `None` if it is over, or will be when it
    /// has run, and if it is never due.
    pub fn deadline(&self) -> Option<Instant> {
        let timer = self.0.as_ref()?;
        let deadline = timer
            .deadline()
            .filter(|&deadline| deadline != shards::NEVER)?;
        Some(timer.home().owner().shared.clock.instant(deadline))
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
    pub fn cancel_on_drop(self) -> CancelOnDrop {
        CancelOnDrop(Some(self))
    }
}

impl fmt::Debug for Timer {
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
pub struct CancelOnDrop(
    /// Taken by `detach` alone.
    Option<Timer>,
);

impl CancelOnDrop {
    /// Gives the timer back: it is not cancelled.
    pub fn detach(mut self) -> Timer {
        self.0
            .take()
            .expect("only a consuming method takes the timer")
    }
}

impl std::ops::Deref for CancelOnDrop {
    type Target = Timer;

    fn deref(&self) -> &Timer {
        self.0
            .as_ref()
            .expect("only a consuming method takes the timer")
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(timer) = self.0.take() {
            timer.cancel();
        }
    }
}

/// A duration in ns; longer than 584 years saturates.
fn nanos(duration: Duration) -> u64 {
    duration.as_nanos().try_into().unwrap_or(u64::MAX)
}

fn now(timer: &shards::Timer<Core>) -> u64 {
    timer.home().owner().shared.clock.now()
}

impl From<HomeError> for ArmError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::NoRuntime => ArmError::NoRuntime,
            HomeError::Shutdown => ArmError::Shutdown,
        }
    }
}

/// Arms a timer on `home`, if the runtime has room (unless `bounded` is false) and is running.
fn arm(
    home: &Arc<WorkerShard>,
    bounded: bool,
    make: impl FnOnce(&Arc<WorkerShard>) -> shards::Timer<Core>,
) -> Result<Timer, ArmError> {
    let core = home.owner();
    core.shared.admit_timer(bounded)?;
    core.count(|counters| &counters.armed);
    let timer = make(home);
    if bounded && timer.status() == Status::Over(Outcome::Shutdown) {
        return Err(ArmError::Shutdown);
    }
    Ok(Timer(Some(timer)))
}

/// The deadline that is `wait` from now, and the wait, which may be no longer than time lasts.
fn from_now(home: &WorkerShard, wait: Duration) -> (u64, u64) {
    let now = home.owner().shared.clock.now();
    let wait = nanos(wait).min(shards::NEVER - now);
    (now + wait, wait)
}

pub(crate) fn arm_after<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    delay: Duration,
    bounded: bool,
    f: F,
) -> Result<Timer, ArmError> {
    let (deadline, wait) = from_now(home, delay);
    arm(home, bounded, |home| {
        shards::Timer::once(home, deadline, wait, f)
    })
}

pub(crate) fn arm_at<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    deadline: Instant,
    bounded: bool,
    f: F,
) -> Result<Timer, ArmError> {
    let clock = &home.owner().shared.clock;
    let deadline = clock.nanos(deadline);
    let wait = deadline.saturating_sub(clock.now());
    arm(home, bounded, |home| {
        shards::Timer::once(home, deadline, wait, f)
    })
}

pub(crate) fn arm_every<F: FnMut() + Send + 'static>(
    home: &Arc<WorkerShard>,
    period: Duration,
    bounded: bool,
    f: F,
) -> Result<Timer, ArmError> {
    let (deadline, period) = from_now(home, period);
    arm(home, bounded, |home| {
        shards::Timer::recurring(home, deadline, period, f)
    })
}

/// The runtime that the calling thread is in, with the worker that it is where it is one.
pub(crate) mod here {
    use super::*;

    fn outside(error: ArmError) -> Timer {
        assert!(error != ArmError::NoRuntime, "{error}");
        Timer::refused(error)
    }

    /// Runs `f` once, `delay` from now, on the runtime that the calling thread is in: on its own
    /// shard, if it is a worker. See [`Handle::after`](crate::Handle::after).
    ///
    /// # Panics
    ///
    /// If the thread is in no runtime; see [`try_after`].
    #[track_caller]
    pub fn after<F>(delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        at_home(|home| arm_after(home, delay, false, f)).unwrap_or_else(outside)
    }

    /// Runs `f` once, not before `deadline`, on the runtime that the calling thread is in: on its
    /// own shard, if it is a worker. See [`Handle::at`](crate::Handle::at).
    ///
    /// # Panics
    ///
    /// If the thread is in no runtime; see [`try_at`].
    #[track_caller]
    pub fn at<F>(deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        let deadline = deadline.into();
        at_home(|home| arm_at(home, deadline, false, f)).unwrap_or_else(outside)
    }

    /// Runs `f` every `period`, on the runtime that the calling thread is in: on its own shard, if
    /// it is a worker. See [`Handle::every`](crate::Handle::every).
    ///
    /// # Panics
    ///
    /// If the thread is in no runtime; see [`try_every`].
    #[track_caller]
    pub fn every<F>(period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        let period = period.max(Duration::from_nanos(1));
        at_home(|home| arm_every(home, period, false, f)).unwrap_or_else(outside)
    }

    /// As [`after`], if there is a runtime and it has room.
    ///
    /// # Errors
    ///
    /// See [`ArmError`].
    pub fn try_after<F>(delay: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        at_home(|home| arm_after(home, delay, true, f))
    }

    /// As [`at`], if there is a runtime and it has room.
    ///
    /// # Errors
    ///
    /// See [`ArmError`].
    pub fn try_at<F>(deadline: impl Into<Instant>, f: F) -> Result<Timer, ArmError>
    where
        F: FnOnce() + Send + 'static,
    {
        let deadline = deadline.into();
        at_home(|home| arm_at(home, deadline, true, f))
    }

    /// As [`every`], if there is a runtime and it has room, and the period is not zero.
    ///
    /// # Errors
    ///
    /// See [`ArmError`].
    pub fn try_every<F>(period: Duration, f: F) -> Result<Timer, ArmError>
    where
        F: FnMut() + Send + 'static,
    {
        if period.is_zero() {
            return Err(ArmError::ZeroPeriod);
        }
        at_home(|home| arm_every(home, period, true, f))
    }

    fn at_home(
        arm: impl FnOnce(&Arc<WorkerShard>) -> Result<Timer, ArmError>,
    ) -> Result<Timer, ArmError> {
        with_home(Choice::NotAwake, arm)?
    }
}
