//! Waiting for a moment.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use tourbillon_shards as shards;

use super::{Instant, clock};
use crate::{
    error::NO_RUNTIME,
    runtime::{Choice, Core, HomeError, WorkerShard, note_woken, with_home},
    task::budget,
};

/// Waits until `duration` has passed. One that is too long for the clock never ends.
///
/// The time counts from this call. (Made outside of any runtime, while there is one whose clock is or
/// was [paused](super::pause), from the first poll: only then is it known which clock it means.)
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
    let now = if duration >= FRESH {
        Instant::not_before_now()
    } else {
        Instant::now()
    };
    if Instant::is_adrift() {
        return adrift(duration);
    }
    let mut sleep = sleep_until(now.saturating_add(duration));
    if duration >= FRESH {
        sleep.timer = Err(Idle::Fresh);
    }
    sleep
}

#[cold]
fn adrift(duration: Duration) -> Sleep {
    Sleep {
        moment: Instant::ZERO.saturating_add(duration),
        timer: Err(Idle::Adrift),
    }
}

/// A sleep for so long is not over when it is polled as soon as it was made, as most are: that need not
/// be asked of the clock, which is a third of what it costs to arm it. And some microseconds more are little for it.
const FRESH: Duration = Duration::from_micros(100);

/// Waits until `deadline`, exact to the nanosecond and never less.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        moment: deadline,
        timer: Err(Idle::Unpolled),
    }
}

/// The future of [`sleep`] and [`sleep_until`].
///
/// It arms its timer when it is polled for the first time, on the shard of the worker that polls
/// it; one that is never polled costs nothing. (One of [`sleep`] is then pending, even if its deadline has
/// passed meanwhile, unless it was for less than 100 µs; and ends as soon as the worker gets to it.) If its runtime is shut down it ends at once, since
/// waiting for ever would be no better: [`is_elapsed`](Sleep::is_elapsed) tells.
///
/// # Panics
///
/// When polled for the first time outside of a runtime, before its deadline.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    /// The deadline; of one that is adrift, that of one that was polled when the clock began.
    moment: Instant,
    /// The timer that waits, or is over; or else how it stands.
    timer: Result<shards::Sleep<Core>, Idle>,
}

/// How a sleep stands that has no timer.
#[derive(Clone, Copy)]
enum Idle {
    /// Not polled.
    Unpolled,
    /// Not polled, and not over when it was made. If it is by now, its timer is due as soon as it is armed.
    Fresh,
    /// Not polled, and so long from when it is.
    Adrift,
    /// The deadline had passed when it was polled.
    Elapsed,
    /// There was nothing to wait on any more when it was polled.
    Shutdown,
}

impl Sleep {
    /// The moment that this waits for. (Of one whose time counts from its first poll, and which was not polled: the
    /// one that it would wait for if it were polled now.)
    pub fn deadline(&self) -> Instant {
        match self.timer {
            Err(Idle::Adrift) => self.if_polled_now(),
            _ => self.moment,
        }
    }

    /// The deadline of one that is adrift and polled now.
    #[cold]
    fn if_polled_now(&self) -> Instant {
        Instant::now().saturating_add(self.moment.duration_since(Instant::ZERO))
    }

    /// Whether a timer is armed for it, which may wake a task.
    pub(crate) fn is_waiting(&self) -> bool {
        self.timer
            .as_ref()
            .is_ok_and(|timer| timer.outcome().is_none())
    }

    /// Whether this has ended because its deadline passed.
    pub fn is_elapsed(&self) -> bool {
        match &self.timer {
            Ok(timer) => timer.outcome() == Some(shards::Outcome::Fired),
            Err(idle) => matches!(idle, Idle::Elapsed),
        }
    }

    /// Waits for another moment, also if this has ended. Takes no `poll` to be in force.
    ///
    /// Moving a pending sleep later is one atomic operation.
    #[inline]
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().set_deadline(deadline);
    }

    #[inline]
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.moment = deadline;
        let moved = self.timer.as_mut().is_ok_and(|timer| {
            let nanos = timer.home().owner().shared.clock.nanos(deadline);
            timer.reset_waiting(nanos)
        });
        if !moved {
            self.reset_any(deadline);
        }
    }

    /// The same of a sleep that may not wait.
    #[cold]
    #[inline(never)]
    fn reset_any(&mut self, deadline: Instant) {
        match &mut self.timer {
            // Its runtime is gone; the next poll may find another.
            Ok(timer) if timer.outcome() == Some(shards::Outcome::Shutdown) => {
                self.timer = Err(Idle::Unpolled);
            }
            Ok(timer) => {
                let nanos = timer.home().owner().shared.clock.nanos(deadline);
                timer.reset(nanos);
            }
            Err(_) => self.timer = Err(Idle::Unpolled),
        }
    }

    /// The first poll, or the first one after it was moved: arms the timer.
    fn arm(&mut self, idle: Idle, cx: &mut Context<'_>) -> Poll<()> {
        if let Idle::Adrift = idle {
            self.set_deadline(self.if_polled_now());
        }
        // By a clock that goes by hand it may be over long before it is polled.
        let may_be_over = !matches!(idle, Idle::Fresh) || clock::any_warped();
        if may_be_over && Instant::now() >= self.moment {
            // Over also if it has to give way: asked again it is ready whatever is left, so that a
            // neighbour in a `select` that is greedy at each poll does not keep it waiting for ever.
            self.timer = Err(Idle::Elapsed);
            ready!(budget::check(cx));
            budget::spend();
            return Poll::Ready(());
        }
        let deadline = self.moment;
        let arm = |home: &Arc<WorkerShard>| {
            let nanos = home.owner().shared.clock.nanos(deadline);
            shards::Sleep::with_waker(home, nanos, cx.waker())
        };
        match with_home(Choice::Stay, arm) {
            Ok(timer) => {
                let poll = match timer.outcome() {
                    // It has the waker.
                    None => Poll::Pending,
                    Some(_) => self.poll_armed(&timer, cx),
                };
                self.timer = Ok(timer);
                poll
            }
            Err(HomeError::Shutdown) => {
                self.timer = Err(Idle::Shutdown);
                Poll::Ready(())
            }
            Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
        }
    }

    fn poll_armed(&self, timer: &shards::Sleep<Core>, cx: &mut Context<'_>) -> Poll<()> {
        // Not checked before: it has given way once, when it was armed.
        timer.poll(cx.waker()).map(|how| {
            if how == shards::Outcome::Fired {
                note_woken(timer, self.moment);
            }
            budget::spend();
        })
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match &self.timer {
            Ok(timer) => self.poll_armed(timer, cx),
            Err(Idle::Elapsed | Idle::Shutdown) => Poll::Ready(()),
            &Err(idle) => self.arm(idle, cx),
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
        assert_eq!(size_of::<Sleep>(), 24);
    }
}
