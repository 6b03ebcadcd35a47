//! Sleeps: futures that wait until a deadline.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use tourbillon_shards as shards;

use crate::{
    clock::{instant::Instant, runtime_clock as clock},
    engine::{
        context::placement::{Choice, HomeError, with_home},
        core::{Core, WorkerShard},
        telemetry::{lateness::note_woken, polls},
    },
    error::NO_RUNTIME,
    time::armed::{Armed, Idle},
    util::budget,
};

/// Waits until `duration` has passed. A duration that is too long for the clock never ends.
///
/// The time counts from this call. There is one exception: outside of any runtime, while a runtime
/// exists whose clock is or was [paused](crate::time::pause), it counts from the first poll. Only
/// the first poll shows which runtime's clock applies.
///
/// ```
/// use std::time::Duration;
/// use tourbillon::time::{Instant, sleep};
///
/// # tourbillon::Runtime::new().unwrap().block_on(async {
/// let start = Instant::now();
/// sleep(Duration::from_millis(2)).await;
/// assert!(start.elapsed() >= Duration::from_millis(2));
/// # });
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    let now = now_for(duration);
    // This thread cannot know the clock that the sleep will use. The sleep counts from its first
    // poll instead.
    if Instant::is_adrift() {
        return adrift(duration);
    }
    let mut sleep = sleep_until(now.saturating_add(duration));
    if duration >= FRESH {
        sleep.timer = Armed::not(Idle::Fresh);
    }
    sleep
}

/// Returns a sleep whose time counts from its first poll.
#[cold]
fn adrift(duration: Duration) -> Sleep {
    Sleep {
        moment: Instant::ZERO.saturating_add(duration),
        timer: Armed::not(Idle::Adrift),
    }
}

/// From this duration on, a sleep arms its timer at its first poll without reading the clock. The
/// reading would be a third of the cost of arming. Most sleeps are polled as soon as they are made,
/// and are not over then.
const FRESH: Duration = Duration::from_micros(100);

/// Returns the moment from which a wait of this duration counts. The cheap reading of the clock may
/// be some µs ahead, which matters only to a short wait.
#[inline]
pub(super) fn now_for(duration: Duration) -> Instant {
    if duration >= FRESH {
        Instant::now_for_deadline()
    } else {
        Instant::now()
    }
}

/// Waits until `deadline`. Deadlines have nanosecond resolution; a sleep never ends early.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        moment: deadline,
        timer: Armed::not(Idle::Unpolled),
    }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// Its first poll arms its timer, on the shard of the worker that polls it. A sleep that is never
/// polled costs nothing. The first poll of a [`sleep`] for 100 µs or more is pending, even if the
/// deadline has passed meanwhile; the sleep then ends as soon as the worker gets to it. So is the
/// first poll of a [`sleep_until`] whose deadline has passed during a job that has held the worker
/// for over a millisecond before.
///
/// If its runtime is shut down, a sleep ends at once. [`is_elapsed`](Sleep::is_elapsed) then
/// returns `false`.
///
/// # Panics
///
/// Panics when it is polled for the first time outside of a runtime, before its deadline.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    /// The deadline. In state [`Idle::Adrift`], the deadline that the sleep would have if it were
    /// polled at the zero of the clock.
    moment: Instant,
    /// The timer, which waits or is over. Without a timer, the state of the sleep.
    timer: Armed,
}

impl Sleep {
    /// Returns a sleep until a deadline that has passed, by a reading of the clock by the caller.
    pub(crate) fn passed(deadline: Instant) -> Self {
        Self {
            moment: deadline,
            // The sleep may be polled in a runtime with another clock, if there is one.
            timer: Armed::not(match clock::any_warped() {
                true => Idle::Unpolled,
                false => Idle::Passed,
            }),
        }
    }

    /// Returns the deadline. If the time counts from the first poll, and there was none yet, this
    /// is the deadline that a poll at this moment would set.
    pub fn deadline(&self) -> Instant {
        match self.timer.get() {
            Err(Idle::Adrift) => self.if_polled_now(),
            _ => self.moment,
        }
    }

    /// Returns the deadline of a sleep in state [`Idle::Adrift`] that is polled now.
    #[cold]
    fn if_polled_now(&self) -> Instant {
        Instant::now().saturating_add(self.moment.duration_since(Instant::ZERO))
    }

    /// Returns whether a timer is armed for this sleep, which may wake a task.
    pub(crate) fn is_waiting(&self) -> bool {
        let timer = self.timer.get();
        timer.is_ok_and(|timer| timer.outcome().is_none())
    }

    /// Returns how late the sleep may be woken, if its timer is armed.
    pub(crate) fn tolerance(&self) -> Duration {
        let timer = self.timer.get();
        timer.map_or(Duration::ZERO, |timer| {
            Duration::from_nanos(timer.tolerance().ns())
        })
    }

    /// Returns whether this has ended because its deadline passed.
    pub fn is_elapsed(&self) -> bool {
        match self.timer.get() {
            Ok(timer) => timer.outcome() == Some(shards::Outcome::Fired),
            Err(idle) => matches!(idle, Idle::Passed | Idle::Elapsed),
        }
    }

    /// Moves the deadline, even if the sleep has ended or was never polled. This takes effect at
    /// once, without a poll: if the deadline is moved to a moment that has passed, the sleep ends
    /// in this call. There are two exceptions, in which the sleep ends as soon as its worker gets
    /// to it: a sleep that waits is moved *later*, to a moment that has passed nevertheless; or the
    /// moment has passed during a job that has held the calling worker for over a millisecond
    /// before.
    ///
    /// Moving a pending sleep later is one atomic operation.
    #[inline]
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().set_deadline(deadline);
    }

    /// Implements [`reset`](Sleep::reset).
    #[inline]
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        // A later deadline has rarely passed, and no clock need be read for it.
        let has_passed = deadline < self.moment && deadline.has_passed();
        if !self.move_waiting(deadline, has_passed) {
            self.reset_slow(deadline, false);
        }
    }

    /// Moves the deadline as [`reset`](Sleep::reset) does, to a moment that is later than a reading
    /// of the clock by the caller.
    #[inline]
    pub(crate) fn set_ahead(&mut self, deadline: Instant) {
        if !self.move_waiting(deadline, false) {
            self.reset_slow(deadline, true);
        }
    }

    /// Notes the deadline, and moves a timer that waits in place, unless the deadline may have
    /// passed. Returns whether the timer was moved. [`reset_slow`](Sleep::reset_slow) sees to all
    /// other cases.
    #[inline]
    fn move_waiting(&mut self, deadline: Instant, has_passed: bool) -> bool {
        self.moment = deadline;
        // A clock that is advanced by hand may have passed any moment.
        !has_passed
            && !clock::any_warped()
            && self.timer.get_mut().is_ok_and(|timer| {
                let nanos = timer.home().owner().shared.clock.nanos(deadline);
                timer.try_reset(nanos)
            })
    }

    /// Slow path of [`set_deadline`](Sleep::set_deadline): the sleep does not wait, or it may end
    /// at once. `is_ahead`: the caller has read the clock, and the deadline is later.
    #[cold]
    #[inline(never)]
    fn reset_slow(&mut self, deadline: Instant, is_ahead: bool) {
        // The caller may have read the clock of another runtime. If no clock was ever paused, all
        // of them are one.
        let is_ahead = is_ahead && !clock::any_warped();
        let Ok(timer) = self.timer.get_mut() else {
            return self.move_idle(deadline, is_ahead);
        };
        // The runtime is gone. The next poll may find another one.
        if timer.outcome() == Some(shards::Outcome::Shutdown) {
            return self.move_idle(deadline, is_ahead);
        }
        let clock = &timer.home().owner().shared.clock;
        if !is_ahead && clock.has_passed(deadline) {
            return self.elapse();
        }
        let nanos = clock.nanos(deadline);
        timer.reset(nanos);
    }

    /// Moves the deadline of a sleep without a timer.
    fn move_idle(&mut self, deadline: Instant, is_ahead: bool) {
        // Outside of any runtime, only the next poll may show which clock applies.
        let is_past = !is_ahead && !Instant::is_adrift() && deadline.has_passed();
        self.timer = Armed::not(match is_past {
            true => Idle::Passed,
            false => Idle::Unpolled,
        });
    }

    /// Ends a sleep that has a timer, and wakes its task if it waits.
    fn elapse(&mut self) {
        let waker = self.timer.get().ok().and_then(shards::Sleep::take_waker);
        self.timer = Armed::not(Idle::Passed);
        if let Some(waker) = waker {
            // Last, as it is user code.
            waker.wake();
        }
    }

    /// Returns whether the thread is now in another runtime than that of this sleep, which ended
    /// because its runtime was shut down. Then the next poll arms it in this one.
    pub(crate) fn goes_elsewhere(&mut self) -> bool {
        let id = |home: &Arc<WorkerShard>| home.owner().shared.id;
        let timer = self.timer.get().ok();
        let there = timer.map(|timer| timer.home().owner().shared.id);
        let goes = with_home(Choice::Stay, id).is_ok_and(|here| Some(here) != there);
        if goes {
            self.timer = Armed::not(Idle::Unpolled);
        }
        goes
    }

    /// Arms the timer, at the first poll or at the first poll after the deadline was moved.
    fn arm(&mut self, idle: Idle, cx: &mut Context<'_>) -> Poll<()> {
        // 1. The time counts from here.
        if let Idle::Adrift = idle {
            self.set_deadline(self.if_polled_now());
        }
        // 2. Without a timer the sleep is over if its deadline has passed. No clock need be read
        //    for a fresh sleep, except one that is advanced by hand: it may end the sleep long
        //    before the poll.
        let may_be_over = !matches!(idle, Idle::Fresh) || clock::any_warped();
        let is_over = matches!(idle, Idle::Passed);
        if is_over || (may_be_over && self.moment.has_passed()) {
            // Store the state before the budget is checked. The next poll is then ready even if the
            // budget is spent. So a neighbour in a `select` that spends it all each time cannot
            // delay this sleep for ever.
            self.timer = Armed::not(Idle::Elapsed);
            ready!(budget::check(cx));
            budget::spend();
            return Poll::Ready(());
        }
        // 3. Arm the timer, on this worker's shard or on one of the entered runtime.
        let deadline = self.moment;
        let arm = |home: &Arc<WorkerShard>| {
            let core = home.owner();
            let nanos = core.shared.clock.nanos(deadline);
            // Both are calls in tail position, so the usual one saves no registers.
            if core.track.looks_at_jobs() {
                return arm_looking(home, nanos, cx.waker());
            }
            shards::Sleep::with_waker(home, nanos, cx.waker())
        };
        match with_home(Choice::Stay, arm) {
            Ok(timer) => {
                let poll = match timer.outcome() {
                    // The timer got the waker when it was made.
                    None => Poll::Pending,
                    // The runtime ends, and so does each sleep, at once. A task that sleeps in a
                    // loop comes back to its worker by the budget, and is dropped there.
                    Some(_) => match budget::check(cx) {
                        Poll::Ready(()) => self.poll_armed(&timer, cx),
                        Poll::Pending => Poll::Pending,
                    },
                };
                self.timer = Armed::with(timer);
                poll
            }
            Err(HomeError::Shutdown) => {
                self.timer = Armed::not(Idle::Shutdown);
                // As above.
                ready!(budget::check(cx));
                budget::spend();
                Poll::Ready(())
            }
            Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
        }
    }

    /// Polls the armed timer.
    #[inline]
    fn poll_armed(&self, timer: &shards::Sleep<Core>, cx: &mut Context<'_>) -> Poll<()> {
        // The budget is not checked: the task has yielded since the sleep was armed.
        timer.poll(cx.waker()).map(|how| {
            if how == shards::Outcome::Fired {
                note_woken(timer, self.moment);
            }
            budget::spend();
        })
    }
}

/// Arms a sleep. That is recorded, or a reader wants to know what tasks wait for.
#[cold]
#[inline(never)]
fn arm_looking(home: &Arc<WorkerShard>, deadline: u64, waker: &Waker) -> shards::Sleep<Core> {
    let core = home.owner();
    if core.track.notes_all() {
        core.shared.record_armed(deadline);
    }
    polls::arms(core, waker, deadline);
    shards::Sleep::with_waker(home, deadline, waker)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.timer.get() {
            Ok(timer) => self.poll_armed(timer, cx),
            Err(Idle::Elapsed | Idle::Shutdown) => Poll::Ready(()),
            Err(idle) => self.arm(idle, cx),
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline())
            .field("is_elapsed", &self.is_elapsed())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_small() {
        assert_eq!(size_of::<Sleep>(), 16);
    }
}
