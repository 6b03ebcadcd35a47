//! Arming of timers without options, and the free functions `after`, `at` and `every`.

use std::{num::NonZeroU64, sync::Arc, time::Duration};

use tourbillon_shards::{self as shards, Flow, Options, Owner};

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    clock::instant::Instant,
    engine::{
        context::{
            group,
            placement::{Choice, HomeError, with_home},
        },
        core::{Core, WorkerShard},
        groups::GroupId,
        telemetry::current_span,
    },
    error::ArmError,
    sys::sync::atomic::Ordering,
    timer::{
        Timer,
        callback::{Runs, called_once, called_repeatedly},
        clock::TimerClock,
    },
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

/// Arms a timer of the callback `f`, which `plain` creates on `home`; or `in_group`, with a tag, if
/// the calling thread is in a group. If the runtime is full, the timer is over instead.
#[inline]
fn arm<F>(
    home: &Arc<WorkerShard>,
    f: F,
    plain: impl FnOnce(&Arc<WorkerShard>, F) -> shards::Timer<Core>,
    in_group: impl FnOnce(&Arc<WorkerShard>, u32, F) -> shards::Timer<Core>,
) -> Timer {
    // A call in tail position, so that the usual path saves no registers.
    if home.owner().shared.arms_by_rules.load(Ordering::Relaxed) {
        return arm_by_rules(home, f, plain, in_group);
    }
    Timer::of(plain(home, f))
}

/// Arms a timer as [`arm`] does, on a runtime that has a bound or groups.
#[cold]
#[inline(never)]
fn arm_by_rules<F>(
    home: &Arc<WorkerShard>,
    f: F,
    plain: impl FnOnce(&Arc<WorkerShard>, F) -> shards::Timer<Core>,
    in_group: impl FnOnce(&Arc<WorkerShard>, u32, F) -> shards::Timer<Core>,
) -> Timer {
    let shared = &home.owner().shared;
    // Count the timer before it exists: as soon as it is in the shard, another thread may end it
    // and count it out.
    let timer = match (shared.admit_timer(true), group::current(shared)) {
        (Ok(()), GroupId::DEFAULT) => plain(home, f),
        (Ok(()), group) => in_group(home, group.tag(), f),
        (Err(_), _) => {
            home.owner().contain(|| drop(f));
            shards::Timer::refused(home)
        }
    };
    Timer::of(timer)
}

/// Arms a timer whose callback, of type `N`, is in the group of this tag. `f` wraps the callback.
fn arm_tagged<N, F>(
    home: &Arc<WorkerShard>,
    (deadline, wait): (u64, u64),
    recurring: bool,
    tag: u32,
    origin: Option<NonZeroU64>,
    f: F,
) -> shards::Timer<Core>
where
    N: 'static,
    F: FnMut(shards::Outcome) -> Flow + Send + 'static,
{
    let owner = home.owner();
    owner.note_armed(deadline);
    let options = Options {
        deadline: Some(deadline),
        recurring,
        tolerance: owner.tolerance(),
        tag,
        origin,
        ..Options::default()
    };
    let timer = shards::Timer::build_as::<N, F>(home, wait, options, f);
    timer.start(owner.shared.clock.now());
    timer
}

/// Converts errors for functions that cannot return them: a shutdown gives a timer that is over,
/// all other errors panic.
///
/// It is not an argument of `unwrap_or_else`, so that a panic names the caller's line.
#[inline]
#[track_caller]
pub(crate) fn or_over<C: TimerClock>(armed: Result<Timer<C>, ArmError>) -> Timer<C> {
    match armed {
        Ok(timer) => timer,
        Err(error) => over(error),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn over<C: TimerClock>(error: ArmError) -> Timer<C> {
    match error {
        ArmError::Shutdown => Timer::over(error),
        error => panic!("{error}"),
    }
}

/// The delay of a shorter timer counts from the exact present. The cheap clock for deadlines may be
/// some microseconds ahead, if the thread arms many timers in a row.
const SHORT: Duration = Duration::from_micros(100);

/// Returns the deadline that is `wait` from now, and the wait, in ns. Both are limited to the
/// largest time.
#[inline]
fn from_now(home: &WorkerShard, wait: Duration) -> (u64, u64) {
    let clock = &home.owner().shared.clock;
    // The cheap reading is never before the present, so a deadline that counts from it is not
    // early.
    let now = if wait >= SHORT {
        clock.now_for_deadline()
    } else {
        clock.now()
    };
    // The sum must fit into the deadline bits of the claim word.
    let wait = nanos(wait).min(shards::NEVER - now);
    (now + wait, wait)
}

/// Arms a timer that is due `delay` from now.
#[inline]
pub(crate) fn arm_after<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    delay: Duration,
    f: F,
) -> Timer {
    let (deadline, wait) = from_now(home, delay);
    arm_once(home, deadline, wait, f)
}

/// Arms a timer that is due at `deadline`.
#[inline]
pub(crate) fn arm_at<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    deadline: Instant,
    f: F,
) -> Timer {
    let clock = &home.owner().shared.clock;
    let deadline = clock.nanos(deadline);
    // A later `refresh` waits for this long again. Counted from a moment that is not after the
    // present, the wait is not shorter than what the caller asked for.
    let wait = deadline.saturating_sub(clock.not_after_now());
    arm_once(home, deadline, wait, f)
}

/// Arms a timer that runs once. If a subscriber is interested, its origin is the present span.
#[inline]
pub(crate) fn arm_once<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    deadline: u64,
    wait: u64,
    f: F,
) -> Timer {
    // A call in tail position, so that the usual path saves no registers.
    #[cfg(feature = "tracing")]
    if trace::is_on() {
        return arm_in_span(home, deadline, wait, f);
    }
    let plain = |home: &Arc<WorkerShard>, f| {
        home.owner().note_armed(deadline);
        shards::Timer::once(home, deadline, wait, f)
    };
    let in_group =
        |home: &Arc<WorkerShard>, tag, f| arm_tagged_once(home, (deadline, wait), tag, None, f);
    arm(home, f, plain, in_group)
}

#[cfg(feature = "tracing")]
#[cold]
#[inline(never)]
fn arm_in_span<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    deadline: u64,
    wait: u64,
    f: F,
) -> Timer {
    // The subscriber is user code, so ask it before the timer is counted.
    let span = current_span();
    let plain = |home: &Arc<WorkerShard>, f| {
        home.owner().note_armed(deadline);
        match span {
            Some(span) => shards::Timer::once_from(home, deadline, wait, span, f),
            None => shards::Timer::once(home, deadline, wait, f),
        }
    };
    let in_group =
        |home: &Arc<WorkerShard>, tag, f| arm_tagged_once(home, (deadline, wait), tag, span, f);
    arm(home, f, plain, in_group)
}

/// Arms a timer that runs once, in the group of this tag.
fn arm_tagged_once<F: FnOnce() + Send + 'static>(
    home: &Arc<WorkerShard>,
    when: (u64, u64),
    tag: u32,
    origin: Option<NonZeroU64>,
    f: F,
) -> shards::Timer<Core> {
    let run = called_once((), |_, _| f());
    arm_tagged::<F, _>(home, when, false, tag, origin, run)
}

/// Arms a recurring timer that is first due `period` from now.
pub(crate) fn arm_every<F: FnMut() + Send + 'static>(
    home: &Arc<WorkerShard>,
    period: Duration,
    f: F,
) -> Timer {
    let (deadline, period) = from_now(home, period);
    let span = current_span();
    let plain = |home: &Arc<WorkerShard>, f| {
        home.owner().note_armed(deadline);
        match span {
            Some(span) => shards::Timer::recurring_from(home, deadline, period, span, f),
            None => shards::Timer::recurring(home, deadline, period, f),
        }
    };
    let in_group = |home: &Arc<WorkerShard>, tag, mut f: F| {
        let run = called_repeatedly((), Runs::new(None, false), move |_, _| f());
        arm_tagged::<F, _>(home, (deadline, period), true, tag, span, run)
    };
    arm(home, f, plain, in_group)
}

/// The free functions: they arm on the runtime that the calling thread is in.
pub mod here {
    use super::*;

    /// Runs `f` once, `delay` from now, on the runtime that the calling thread is in. On a worker
    /// the timer goes to its own shard. See [`Handle::after`](crate::runtime::Handle::after).
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime: see [the rule](crate::timer).
    #[track_caller]
    pub fn after<F>(delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        or_over(at_home(|home| arm_after(home, delay, f)))
    }

    /// Runs `f` once, not before `deadline`, on the runtime that the calling thread is in. On a
    /// worker the timer goes to its own shard. See [`Handle::at`](crate::runtime::Handle::at).
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime: see [the rule](crate::timer).
    #[track_caller]
    pub fn at<F>(deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        let deadline = deadline.into();
        or_over(at_home(|home| arm_at(home, deadline, f)))
    }

    /// Runs `f` every `period`, on the runtime that the calling thread is in. On a worker the timer
    /// goes to its own shard. See [`Handle::every`](crate::runtime::Handle::every).
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime: see [the rule](crate::timer).
    #[track_caller]
    pub fn every<F>(period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        // This function cannot return an error for a period of zero, as `try_start` does.
        let period = period.max(Duration::from_nanos(1));
        or_over(at_home(|home| arm_every(home, period, f)))
    }

    /// Calls `arm` with the shard for timers of this thread.
    #[inline]
    fn at_home(arm: impl FnOnce(&Arc<WorkerShard>) -> Timer) -> Result<Timer, ArmError> {
        // Threads without a worker arm many timers in a row: a run of them goes to one worker.
        Ok(with_home(Choice::Stay, arm)?)
    }
}
