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
    let mut sleep = sleep_until(Instant::now().saturating_add(duration));
    if Instant::is_adrift() {
        sleep.state = State::Adrift(duration);
    } else if duration >= FRESH {
        sleep.state = State::Fresh;
    }
    sleep
}

/// A sleep for so long is not over when it is polled as soon as it was made, as most are: that need not
/// be asked of the clock, which is a third of what it costs to arm it.
const FRESH: Duration = Duration::from_micros(100);

/// Waits until `deadline`, exact to the nanosecond and never less.
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep {
        deadline,
        state: State::Idle,
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
    deadline: Instant,
    state: State,
}

enum State {
    /// Not polled.
    Idle,
    /// Not polled, and not over when it was made. If it is by now, its timer is due as soon as it is armed.
    Fresh,
    /// Not polled, and so long from when it is.
    Adrift(Duration),
    /// A timer waits, or is over.
    Armed(shards::Sleep<Core>),
    /// The deadline had passed when it was polled, or there was nothing to wait on any more.
    Over { elapsed: bool },
}

impl Sleep {
    /// The moment that this waits for.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether this has ended because its deadline passed.
    pub fn is_elapsed(&self) -> bool {
        match &self.state {
            State::Idle | State::Fresh | State::Adrift(_) => false,
            State::Armed(timer) => timer.outcome() == Some(shards::Outcome::Fired),
            State::Over { elapsed } => *elapsed,
        }
    }

    /// Waits for another moment, also if this has ended. Takes no `poll` to be in force.
    ///
    /// Moving a pending sleep later is one atomic operation.
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.get_mut().set_deadline(deadline);
    }

    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.deadline = deadline;
        match &mut self.state {
            // Its runtime is gone; the next poll may find another.
            State::Armed(timer) if timer.outcome() == Some(shards::Outcome::Shutdown) => {
                self.state = State::Idle;
            }
            State::Armed(timer) => {
                let nanos = timer.home().owner().shared.clock.nanos(deadline);
                timer.reset(nanos);
            }
            state => *state = State::Idle,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if let State::Adrift(duration) = this.state {
            this.set_deadline(Instant::now().saturating_add(duration));
        }
        if let State::Idle | State::Fresh = this.state {
            // By a clock that goes by hand it may be over long before it is polled.
            let may_be_over = matches!(this.state, State::Idle) || clock::any_warped();
            if may_be_over && Instant::now() >= this.deadline {
                // Over also if it has to give way: asked again it is ready whatever is left, so that a
                // neighbour in a `select` that is greedy at each poll does not keep it waiting for ever.
                this.state = State::Over { elapsed: true };
                ready!(budget::check(cx));
                budget::spend();
                return Poll::Ready(());
            }
            let deadline = this.deadline;
            let arm = |home: &Arc<WorkerShard>| {
                let nanos = home.owner().shared.clock.nanos(deadline);
                shards::Sleep::with_waker(home, nanos, cx.waker())
            };
            this.state = match with_home(Choice::NotAwake, arm) {
                // It has the waker.
                Ok(timer) if timer.outcome().is_none() => {
                    this.state = State::Armed(timer);
                    return Poll::Pending;
                }
                Ok(timer) => State::Armed(timer),
                Err(HomeError::Shutdown) => State::Over { elapsed: false },
                Err(HomeError::NoRuntime) => panic!("{NO_RUNTIME}"),
            };
        }
        match &this.state {
            // Not checked before: it has given way once, when it was armed.
            State::Armed(timer) => timer.poll(cx.waker()).map(|how| {
                if how == shards::Outcome::Fired {
                    note_woken(timer, this.deadline);
                }
                budget::spend();
            }),
            State::Over { .. } => Poll::Ready(()),
            State::Idle | State::Fresh | State::Adrift(_) => unreachable!("it was armed above"),
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .field("is_elapsed", &self.is_elapsed())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_small() {
        assert!(size_of::<Sleep>() <= 24);
    }
}
