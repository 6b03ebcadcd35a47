//! Arms timers without options.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::{self as shards, Outcome, Shard, Status};

use crate::{
    clock::instant::Instant,
    engine::{
        context::placement::{Choice, HomeError, with_home},
        core::{TimerOwner, WorkerShard},
    },
    error::ArmError,
    timer::{Timer, clock::TimerClock},
    util::nanos::nanos,
};

impl From<HomeError> for ArmError {
    fn from(error: HomeError) -> Self {
        match error {
            HomeError::NoRuntime => ArmError::NoRuntime,
            HomeError::Shutdown => ArmError::Shutdown,
        }
    }
}

/// Arms the timer that `make` makes on `home`. If `bounded`, the runtime has to have room for it,
/// and to be running.
#[inline]
pub(crate) fn arm<O: TimerOwner, C: TimerClock<Owner = O>>(
    home: &Arc<Shard<O>>,
    bounded: bool,
    make: impl FnOnce(&Arc<Shard<O>>) -> shards::Timer<O>,
) -> Result<Timer<C>, ArmError> {
    home.owner().shared().admit_timer(bounded)?;
    let timer = make(home);
    if bounded && timer.status() == Status::Over(Outcome::Shutdown) {
        return Err(ArmError::Shutdown);
    }
    Ok(Timer(Some(timer)))
}

/// What the ways to start that cannot refuse make of an error. It is no argument of
/// `unwrap_or_else`, so that a panic names the caller's line.
#[inline]
#[track_caller]
pub(crate) fn or_refused<C: TimerClock>(armed: Result<Timer<C>, ArmError>) -> Timer<C> {
    match armed {
        Ok(timer) => timer,
        Err(error) => refused(error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn refused<C: TimerClock>(error: ArmError) -> Timer<C> {
    match error {
        ArmError::Shutdown => Timer::refused(error),
        error => panic!("{error}"),
    }
}

/// The delay of a shorter timer counts from the exact present, also if the thread arms many in a
/// row.
const SHORT: Duration = Duration::from_micros(100);

/// Returns the deadline that is `wait` from now, and the wait, in ns. Both end with the time
/// itself.
#[inline]
fn from_now(home: &WorkerShard, wait: Duration) -> (u64, u64) {
    let clock = &home.owner().shared.clock;
    let now = if wait >= SHORT {
        clock.now_for_deadline()
    } else {
        clock.now()
    };
    let wait = nanos(wait).min(shards::NEVER - now);
    (now + wait, wait)
}

#[inline]
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

#[inline]
pub(crate) fn arm_at<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    deadline: Instant,
    bounded: bool,
    f: F,
) -> Result<Timer, ArmError> {
    let clock = &home.owner().shared.clock;
    let deadline = clock.nanos(deadline);
    let wait = deadline.saturating_sub(clock.not_after_now());
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

/// Arming on the runtime that the calling thread is in, and on its own shard, if it is a worker.
pub mod here {
    use super::*;
    use crate::timer::arm::or_refused;

    /// Runs `f` once, `delay` from now, on the runtime that the calling thread is in: on its own
    /// shard, if it is a worker. See [`Handle::after`](crate::runtime::Handle::after).
    ///
    /// # Panics
    ///
    /// If the thread is in no runtime; see [`try_after`].
    #[track_caller]
    pub fn after<F>(delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        or_refused(at_home(|home| arm_after(home, delay, false, f)))
    }

    /// Runs `f` once, not before `deadline`, on the runtime that the calling thread is in: on its
    /// own shard, if it is a worker. See [`Handle::at`](crate::runtime::Handle::at).
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
        or_refused(at_home(|home| arm_at(home, deadline, false, f)))
    }

    /// Runs `f` every `period`, on the runtime that the calling thread is in: on its own shard, if
    /// it is a worker. See [`Handle::every`](crate::runtime::Handle::every).
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
        or_refused(at_home(|home| arm_every(home, period, false, f)))
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

    #[inline]
    fn at_home(
        arm: impl FnOnce(&Arc<WorkerShard>) -> Result<Timer, ArmError>,
    ) -> Result<Timer, ArmError> {
        with_home(Choice::Stay, arm)?
    }
}
