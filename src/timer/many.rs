//! Arming of many timers at once: `after_many` and `at_many`.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::{NEVER, NewTimers};

use crate::{
    clock::{instant::Instant, runtime_clock::Clock},
    engine::{
        context::{group, placement::Choice, spread},
        core::WorkerShard,
        groups::GroupId,
        handle::Handle,
        telemetry::current_span,
    },
    error::{ArmError, NoRuntime},
    timer::{Timer, arm::arm_once},
    util::{contained::contained, nanos::nanos},
};

/// How many timers are armed together. The lock of a shard is held for as many at most, and as many
/// may wait for the next pair of a slow iterator.
const TOGETHER: usize = 128;

impl Handle {
    /// Arms a timer for each pair of a delay and a callback, at a lower cost than
    /// [`after`](Handle::after) has. Returns the timers in the order of the pairs.
    ///
    /// All delays count from the moment of this call. Each timer is as one of `after` in all else,
    /// also if the runtime has been shut down, or is full: then those that it cannot take are over,
    /// and the others are armed. See [the rule](crate::timer).
    ///
    /// The timers are armed 128 at a time, in between of which the iterator is asked for pairs. So
    /// some may run before this call returns. And one may be late if the iterator takes long for
    /// the pairs that follow: it should not block. It may arm timers itself. If it panics, the
    /// timers of the pairs before that are armed, and the panic goes on.
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use tourbillon::{Runtime, timer::Cancel};
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let (sender, fired) = mpsc::channel();
    /// let timers = runtime.handle().after_many((1..=3).map(|i| {
    ///     let sender = sender.clone();
    ///     (Duration::from_millis(20 * i), move || sender.send(i).unwrap())
    /// }));
    /// if timers[1].cancel() == Cancel::Cancelled {
    ///     drop(sender);
    ///     assert_eq!(fired.iter().collect::<Vec<_>>(), [1, 3]);
    /// }
    /// ```
    pub fn after_many<F>(&self, timers: impl IntoIterator<Item = (Duration, F)>) -> Vec<Timer>
    where
        F: FnOnce() + Send + 'static,
    {
        // Exact, so that it serves the shortest delays.
        let now = self.shared().clock.now();
        self.arm_many(timers, |_, delay| {
            let wait = nanos(delay).min(NEVER - now);
            (now + wait, wait)
        })
    }

    /// Arms a timer for each pair of a deadline and a callback, at a lower cost than
    /// [`at`](Handle::at) has: see [`after_many`](Handle::after_many).
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use tourbillon::Runtime;
    ///
    /// let runtime = Runtime::new().unwrap();
    /// let start = Instant::now();
    /// let minutes = (1..=60).map(|i| (start + Duration::from_secs(60 * i), || ()));
    /// let timers = runtime.handle().at_many(minutes);
    /// assert_eq!(timers.len(), 60);
    /// ```
    pub fn at_many<I, F>(&self, timers: impl IntoIterator<Item = (I, F)>) -> Vec<Timer>
    where
        I: Into<Instant>,
        F: FnOnce() + Send + 'static,
    {
        // As in `at`: a wait that counts from here is not shorter than what the caller asked for.
        let now = self.shared().clock.not_after_now();
        self.arm_many(timers, |clock, deadline| {
            let deadline = clock.nanos(deadline.into());
            (deadline, deadline.saturating_sub(now))
        })
    }

    /// Arms a timer for each pair. `when` returns its deadline and its wait, in ns.
    fn arm_many<T, F>(
        &self,
        timers: impl IntoIterator<Item = (T, F)>,
        when: impl Fn(&Clock, T) -> (u64, u64),
    ) -> Vec<Timer>
    where
        F: FnOnce() + Send + 'static,
    {
        let mut pairs = timers.into_iter();
        if group::current(self.shared()) != GroupId::DEFAULT {
            // One at a time: their nodes have options.
            let arm = |(due, f)| {
                let (deadline, wait) = when(&self.shared().clock, due);
                self.arm(|home| arm_once(home, deadline, wait, f))
            };
            return pairs.map(arm).collect();
        }
        let mut armed = Vec::with_capacity(pairs.size_hint().0);
        // The subscriber is user code, so ask it before a timer is counted.
        let span = current_span();
        loop {
            // The iterator is user code, which may arm timers or block, so nothing is locked here
            // and no shard is chosen for longer than it takes to arm these.
            let home = self.with_home(Choice::Stay, Arc::clone);
            let Ok(home) = home else {
                let over = |(_, f)| {
                    contained(|| drop(f));
                    Timer::over(ArmError::Shutdown)
                };
                armed.extend(pairs.map(over));
                return armed;
            };
            let most = pairs.size_hint().1.unwrap_or(TOGETHER);
            let mut new = NewTimers::new(&home, most.min(TOGETHER));
            for (due, f) in pairs.by_ref().take(TOGETHER) {
                let (deadline, wait) = when(&home.owner().shared.clock, due);
                if is_admitted(&home) {
                    home.owner().note_armed(deadline);
                    new.once(deadline, wait, span, f);
                } else {
                    home.owner().contain(|| drop(f));
                    new.refused();
                }
            }
            let new = new.arm();
            let is_last = new.len() < TOGETHER;
            spread::stay_for(new.len());
            armed.extend(new.into_iter().map(Timer::of));
            if is_last {
                return armed;
            }
        }
    }
}

/// Counts a new timer, before it exists: as soon as it is in the shard, another thread may end it
/// and count it out. Returns whether the runtime has room for it.
#[inline]
fn is_admitted(home: &WorkerShard) -> bool {
    home.owner().shared.admit_timer(true).is_ok()
}

/// The free functions: they arm on the runtime that the calling thread is in.
pub mod here {
    use super::*;

    /// Arms a timer for each pair of a delay and a callback, on the runtime that the calling thread
    /// is in. See [`Handle::after_many`].
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime: see [the rule](crate::timer).
    #[track_caller]
    pub fn after_many<F>(timers: impl IntoIterator<Item = (Duration, F)>) -> Vec<Timer>
    where
        F: FnOnce() + Send + 'static,
    {
        let (handle, timers) = with_current(timers);
        handle.after_many(timers)
    }

    /// Arms a timer for each pair of a deadline and a callback, on the runtime that the calling
    /// thread is in. See [`Handle::at_many`].
    ///
    /// # Panics
    ///
    /// Panics if the thread is in no runtime: see [the rule](crate::timer).
    #[track_caller]
    pub fn at_many<I, F>(timers: impl IntoIterator<Item = (I, F)>) -> Vec<Timer>
    where
        I: Into<Instant>,
        F: FnOnce() + Send + 'static,
    {
        let (handle, timers) = with_current(timers);
        handle.at_many(timers)
    }

    /// Returns a handle to the runtime that the calling thread is in, and `timers`. If there is no
    /// runtime, drops `timers` before the panic: its destructor may panic, too.
    #[track_caller]
    fn with_current<T>(timers: T) -> (Handle, T) {
        match Handle::try_current() {
            Ok(handle) => (handle, timers),
            Err(NoRuntime) => {
                contained(|| drop(timers));
                panic!("{NoRuntime}")
            }
        }
    }
}
