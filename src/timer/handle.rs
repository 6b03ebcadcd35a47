//! Timers by a handle.

use std::{sync::Arc, time::Duration};

use crate::{
    clock::instant::Instant,
    engine::{context::placement::Choice, core::WorkerShard, handle::Handle},
    timer::{
        Timer,
        arm::{arm_after, arm_at, arm_every},
    },
};

impl Handle {
    /// Arms a timer by `f`, on the shard that [`with_home`](Handle::with_home) selects for timers.
    pub(super) fn arm(&self, f: impl FnOnce(&Arc<WorkerShard>) -> Timer) -> Timer {
        self.with_home(Choice::Stay, f)
            .unwrap_or_else(|error| Timer::over(error.into()))
    }

    /// Runs `f` once on a worker, `delay` from now: see [`Timer`].
    ///
    /// A delay of zero, or one shorter than the clock's resolution, means as soon as possible, but
    /// never on the caller's stack. A delay of more than 73 years means never. On a runtime that
    /// has been shut down, or is full, `f` is dropped and the timer is over: see [the
    /// rule](crate::timer). For options, for other clocks and for a form that returns an error, see
    /// [`TimerBuilder`](crate::timer::TimerBuilder).
    ///
    /// *Now* may be up to 3 µs later than the true time, but never earlier: a thread that arms or
    /// resets several timers within 2 µs asks the kernel for the time only once, if the processor
    /// has a reliable counter. For delays of less than 100 µs *now* is exact.
    pub fn after<F>(&self, delay: Duration, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_after(home, delay, f))
    }

    /// Runs `f` once on a worker, not before `deadline`, or as soon as possible if `deadline` has
    /// passed.
    pub fn at<F>(&self, deadline: impl Into<Instant>, f: F) -> Timer
    where
        F: FnOnce() + Send + 'static,
    {
        self.arm(|home| arm_at(home, deadline.into(), f))
    }

    /// Runs `f` on a worker every `period`. The first run is one period from now.
    ///
    /// Deadlines are exact multiples of the period from the first one on, even if a run is late: a
    /// recurring timer does not drift. Deadlines that pass while `f` runs or waits for a worker are
    /// skipped. `f` never runs twice at once. If `f` panics, it runs again at the next deadline.
    ///
    /// A period of zero counts as 1 ns: `f` runs again as soon as the worker has checked everything
    /// else that it has to do. With a period of more than 73 years, such as `Duration::MAX`, the
    /// first deadline never comes.
    pub fn every<F>(&self, period: Duration, f: F) -> Timer
    where
        F: FnMut() + Send + 'static,
    {
        let period = period.max(Duration::from_nanos(1));
        self.arm(|home| arm_every(home, period, f))
    }

    /// Cancels the `max` oldest timers of this name, and returns how many this call cancelled. See
    /// [`TimerBuilder::name`](crate::timer::builder::TimerBuilder::name).
    ///
    /// Timers of the monotonic clock come first, and then those of other clocks; each the oldest
    /// first, which is the one that was given its name first. Timers that are given this name
    /// during the call may be left.
    ///
    /// Finding each timer takes constant time, for any number of timers and names. A destructor
    /// that panics is caught, as in [`Timer::cancel`](crate::timer::Timer::cancel); the remaining
    /// timers are still cancelled and counted.
    pub fn cancel_named(&self, name: &str, max: usize) -> usize {
        let cancelled = self.shared().names.cancel(name, max);
        // The timers of other clocks have a table of their own, with the same names.
        cancelled + self.shared().clocks.names.cancel(name, max - cancelled)
    }

    /// Cancels all timers of this name, as [`cancel_named`](Handle::cancel_named) does.
    pub fn cancel_all_named(&self, name: &str) -> usize {
        self.cancel_named(name, usize::MAX)
    }

    /// Refreshes all timers of this name, as [`Timer::refresh`](crate::timer::Timer::refresh) does,
    /// and returns how many were refreshed in time.
    ///
    /// Timers of the wall clock and of the boot-time clock stay unchanged, since most of them wait
    /// for a moment and not for a delay. Timers that were not started stay unchanged, too.
    ///
    /// Each timer's delay counts from the moment at which this call reaches that timer. If another
    /// thread starts or refreshes a timer meanwhile, this call does not make its deadline earlier.
    pub fn refresh_named(&self, name: &str) -> usize {
        let clock = &self.shared().clock;
        self.shared()
            .names
            .refresh(name, || clock.now_for_deadline())
    }

    /// Returns how many timers have this name: those that were built and can still be cancelled.
    pub fn count_named(&self, name: &str) -> usize {
        self.shared().names.count(name) + self.shared().clocks.names.count(name)
    }
}
