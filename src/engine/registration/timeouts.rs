//! Time limits on how long operations on a descriptor may wait.
//!
//! Poll functions, one task per direction, share one timer per direction. The first operation that
//! has to wait arms it; each later one that has to wait moves it. An operation that completes does
//! not touch it. When the timer fires, it wakes the waiting task, whose next poll finds that its
//! time is over.
//!
//! A poll function cannot tell that the caller gave up the operation. So if no poll follows soon
//! after the timer fires, nothing waits any more, and the next operation that has to wait arms the
//! timer anew.
//!
//! Operations that are futures know when they begin and when they are dropped. Any number of them
//! may wait, and each has its own timer while it waits.

use std::{
    io,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker, ready},
    time::Duration,
};

use tourbillon_shards::{NEVER, Outcome, Sleep};

use crate::{
    engine::core::{Core, WorkerShard},
    reactor::bits::{Direction, Directions},
    sys::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    util::{contained::Drops, lock::lock, nanos::nanos},
};

/// The time, in ns, within which a woken task is expected to poll after the timer fires. It is
/// longer than a woken task takes to run. A task that takes even longer waits for the limit once
/// more.
const POLL_GRACE: u64 = 1_000_000_000;

/// The time limits of a descriptor. Allocated when the first limit is set.
#[derive(Default)]
pub(super) struct Timeouts(OnceLock<Box<[Limit; 2]>>);

/// The time limit of one direction.
#[derive(Default)]
struct Limit {
    /// Set while the timer runs for a poll function, which the caller may have given up since.
    counts: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: Option<Duration>,
    /// Incremented each time the limit is set.
    version: u64,
    /// The deadline of the timer.
    deadline: u64,
    timer: Option<Timer>,
}

/// The timer of the poll functions.
struct Timer {
    sleep: Sleep<Core>,
    bell: Arc<Bell>,
    /// Wakes the bell. The sleep stores this waker, whatever task waits.
    waker: Waker,
}

/// The caller must clone its waker and call again.
struct NotCloned;

/// Wakes the waiting task when the timer fires, and records the time.
struct Bell {
    home: Arc<WorkerShard>,
    fired_at: AtomicU64,
    waiting: Mutex<Option<Waker>>,
}

impl Timer {
    fn new(home: &Arc<WorkerShard>, deadline: u64) -> Self {
        let bell = Arc::new(Bell {
            home: home.clone(),
            fired_at: AtomicU64::new(0),
            waiting: Mutex::default(),
        });
        Self {
            // It is armed on the worker of the descriptor, wherever the task runs.
            sleep: Sleep::new(home, deadline),
            waker: bell.clone().into(),
            bell,
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let now = self.home.owner().shared.clock.now();
        // Record the time first: the woken task reads it.
        self.fired_at.store(now, Ordering::Relaxed);
        let waiting = lock(&self.waiting).take();
        // Wake after unlocking: wakers are user code.
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// The timer of an operation that is a future, with the version of the limits that it was armed
/// for.
pub(super) type OwnTimer = Option<(u64, Option<(Sleep<Core>, Duration)>)>;

/// Returns the deadline of a wait that begins at this moment.
fn deadline(home: &WorkerShard, limit: Duration) -> u64 {
    let now = home.owner().shared.clock.now();
    now.saturating_add(nanos(limit)).min(NEVER)
}

impl Timeouts {
    pub(super) fn get(&self, direction: Direction) -> Option<Duration> {
        lock(&self.0.get()?[direction as usize].state).limit
    }

    /// Sets or removes a limit. The caller then wakes the tasks that wait, which start their wait
    /// anew.
    pub(super) fn set(&self, direction: Direction, limit: Option<Duration>) {
        // Without a limit so far, do not allocate for its removal.
        if limit.is_none() && self.0.get().is_none() {
            return;
        }
        let this = &self.0.get_or_init(Box::default)[direction as usize];
        let mut state = lock(&this.state);
        state.limit = limit;
        // An operation with a timer of its own compares versions, and arms a timer for the new
        // limit.
        state.version += 1;
        // A poll function that waits begins its time anew.
        this.counts.store(false, Ordering::Relaxed);
        let unused = state.timer.take_if(|_| limit.is_none());
        // The timer holds a waker, which is user code: drop after unlocking.
        drop(state);
        drop(unused);
    }

    /// Ends the current waits: the next operation that waits gets the full time.
    #[inline]
    pub(super) fn end_wait(&self, directions: Directions) {
        // No limit was ever set. This is the common case, and costs one load.
        let Some(limits) = self.0.get() else { return };
        for direction in [Direction::Read, Direction::Write] {
            if directions.has(direction) {
                // The timer itself stays armed: the next operation that waits moves it.
                limits[direction as usize]
                    .counts
                    .store(false, Ordering::Relaxed);
            }
        }
    }

    /// Returns an error if the waiting operation of a poll function has exceeded its limit.
    pub(super) fn poll<R>(
        &self,
        cx: &Context<'_>,
        direction: Direction,
        home: &Arc<WorkerShard>,
    ) -> Poll<io::Result<R>> {
        let Some(limits) = self.0.get() else {
            return Poll::Pending;
        };
        limits[direction as usize].poll(cx, home).map(Err)
    }

    /// Returns an error if an operation with its own timer has exceeded its limit.
    pub(super) fn poll_own<R>(
        &self,
        own: &mut OwnTimer,
        cx: &Context<'_>,
        directions: Directions,
        home: &Arc<WorkerShard>,
    ) -> Poll<io::Result<R>> {
        let Some(limits) = self.0.get() else {
            return Poll::Pending;
        };
        // The shortest limit counts. The sum of the versions changes whenever a limit is set.
        let (mut version, mut least) = (0, None::<Duration>);
        for direction in [Direction::Read, Direction::Write] {
            if directions.has(direction) {
                let state = lock(&limits[direction as usize].state);
                version += state.version;
                let limit = state.limit.into_iter();
                least = limit.chain(least).min();
            }
        }
        // First wait, or a limit was set since: arm a timer anew.
        if own
            .as_ref()
            .is_none_or(|(armed_for, _)| *armed_for != version)
        {
            let arm = |limit| (Sleep::new(home, deadline(home, limit)), limit);
            *own = Some((version, least.map(arm)));
        }
        match own {
            Some((_, Some((timer, limit)))) => match ready!(timer.poll(cx.waker())) {
                Outcome::Fired => Poll::Ready(Err(timed_out(*limit))),
                // The runtime is shut down. The reactor reports this.
                _ => Poll::Pending,
            },
            _ => Poll::Pending,
        }
    }
}

impl Limit {
    fn poll(&self, cx: &Context<'_>, home: &Arc<WorkerShard>) -> Poll<io::Error> {
        // Wakers are user code: clone before locking, drop after unlocking.
        let mut replaced = Drops(Vec::new());
        let mut cloned = None;
        let mut state = lock(&self.state);
        loop {
            let Some(limit) = state.limit else {
                return Poll::Pending;
            };
            // A new operation waits: start its time.
            if !self.counts.swap(true, Ordering::Relaxed) {
                state.start_wait(home, limit);
            }
            let Some(timer) = &state.timer else {
                return Poll::Pending;
            };
            // Store the waker before polling the timer, so that a timer that fires meanwhile wakes
            // this task.
            match timer.bell.wakes(cx.waker(), &mut cloned) {
                Ok(before) => replaced.0.extend(before),
                Err(NotCloned) => {
                    drop(state);
                    cloned = Some(cx.waker().clone());
                    state = lock(&self.state);
                    continue;
                }
            }
            match ready!(timer.sleep.poll(&timer.waker)) {
                Outcome::Fired => {}
                // The runtime is shut down. The reactor reports this.
                _ => return Poll::Pending,
            }
            self.counts.store(false, Ordering::Relaxed);
            // If the timer fired long ago, the operation that it ran for was given up: start anew.
            if !timer.bell.rang_long_ago(state.deadline) {
                return Poll::Ready(timed_out(limit));
            }
        }
    }
}

impl State {
    /// Starts the time of an operation: arms the timer, or moves it.
    fn start_wait(&mut self, home: &Arc<WorkerShard>, limit: Duration) {
        self.deadline = deadline(home, limit);
        match &mut self.timer {
            // Keep the timer of the last operation: moving it allocates nothing.
            Some(timer) => timer.sleep.reset(self.deadline),
            none => *none = Some(Timer::new(home, self.deadline)),
        }
    }
}

impl Bell {
    /// Replaces the waker of the waiting task by `cloned`. Returns the old waker, for the caller to
    /// drop after unlocking.
    fn wakes(&self, waker: &Waker, cloned: &mut Option<Waker>) -> Result<Option<Waker>, NotCloned> {
        let mut waiting = lock(&self.waiting);
        // A task that polls again with the same waker clones nothing.
        match &*waiting {
            Some(there) if there.will_wake(waker) => Ok(None),
            _ => {
                let cloned = cloned.take().ok_or(NotCloned)?;
                Ok(waiting.replace(cloned))
            }
        }
    }

    /// Returns whether it rang for `deadline`, and no poll followed soon after.
    fn rang_long_ago(&self, deadline: u64) -> bool {
        let fired_at = self.fired_at.load(Ordering::Relaxed);
        // If `fired_at` is before the deadline, the bell has not recorded its time yet.
        fired_at >= deadline
            && self
                .home
                .owner()
                .shared
                .clock
                .now()
                .saturating_sub(fired_at)
                >= POLL_GRACE
    }
}

#[cold]
fn timed_out(limit: Duration) -> io::Error {
    let what = format!("the descriptor was not ready within {limit:?}, its timeout");
    io::Error::new(io::ErrorKind::TimedOut, what)
}
