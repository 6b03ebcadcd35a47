//! How long operations on a descriptor may wait, where that has a limit.
//!
//! Those that poll, one task in each direction, share a timer for each direction. It is armed by the first
//! that has to wait, and from then on only moved, by the next that has to: an operation that ends leaves it
//! alone. When it fires, who waited for it is woken, and finds at its next poll that its time is over. A poll does
//! not tell that it was the last of an operation; so if none comes soon after it has fired, nobody waits any more,
//! and the next that has to arms it again.
//!
//! Operations that are futures of ours know when they begin and are given up. Of them any number may wait,
//! and each has a timer of its own, for as long as it waits.

use std::{
    io,
    sync::{Arc, OnceLock},
    task::{Context, Poll, Wake, Waker, ready},
    time::Duration,
};

use tourbillon_shards::{NEVER, Outcome, Sleep};

use crate::{
    engine::core::{Core, WorkerShard},
    reactor::readiness::{Direction, Directions},
    sys::sync::{
        Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    util::{lock::lock, nanos::nanos},
};

/// How long after the timer has fired, in ns, who waited is to have come. Longer than it takes a task that was
/// woken to run; should it take longer, it waits once more.
const SOON: u64 = 1_000_000_000;

/// The limits of a descriptor: nothing, until one is set.
#[derive(Default)]
pub(super) struct Timeouts(OnceLock<Box<[Limit; 2]>>);

/// What is known of one direction.
#[derive(Default)]
struct Limit {
    /// Whether the timer counts for an operation that polls, which may have been given up since.
    counts: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    limit: Option<Duration>,
    /// How often it was set.
    version: u64,
    /// When the timer is due.
    deadline: u64,
    timer: Option<Timer>,
}

/// The timer of those that poll.
struct Timer {
    sleep: Sleep<Core>,
    bell: Arc<Bell>,
    /// What the sleep wakes: the bell.
    waker: Waker,
}

/// A clone of the waker is needed.
struct NotCloned;

/// Wakes who waits, and remembers when that was.
struct Bell {
    home: Arc<WorkerShard>,
    rang: AtomicU64,
    waiting: Mutex<Option<Waker>>,
}

impl Timer {
    fn new(home: &Arc<WorkerShard>, deadline: u64) -> Self {
        let bell = Arc::new(Bell {
            home: home.clone(),
            rang: AtomicU64::new(0),
            waiting: Mutex::default(),
        });
        Self {
            sleep: Sleep::new(home, deadline),
            waker: bell.clone().into(),
            bell,
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let now = self.home.owner().shared.clock.now();
        self.rang.store(now, Ordering::Relaxed);
        let waiting = lock(&self.waiting).take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// The timer of an operation that is a future, and for which limits it was armed.
pub(super) type OwnTimer = Option<(u64, Option<(Sleep<Core>, Duration)>)>;

/// Until when who begins to wait now may wait.
fn deadline(home: &WorkerShard, limit: Duration) -> u64 {
    let now = home.owner().shared.clock.now();
    now.saturating_add(nanos(limit)).min(NEVER)
}

impl Timeouts {
    pub(super) fn get(&self, direction: Direction) -> Option<Duration> {
        lock(&self.0.get()?[direction as usize].state).limit
    }

    /// Sets a limit, or takes it away. Who waits is to be woken then, and begins to wait anew.
    pub(super) fn set(&self, direction: Direction, limit: Option<Duration>) {
        if limit.is_none() && self.0.get().is_none() {
            return;
        }
        let this = &self.0.get_or_init(Box::default)[direction as usize];
        let mut state = lock(&this.state);
        state.limit = limit;
        state.version += 1;
        this.counts.store(false, Ordering::Relaxed);
        let unused = state.timer.take_if(|_| limit.is_none());
        // It has a waker, which is foreign code: dropped under no lock.
        drop(state);
        drop(unused);
    }

    /// An operation has ended: what waits next waits from then on.
    #[inline]
    pub(super) fn over(&self, directions: Directions) {
        let Some(limits) = self.0.get() else { return };
        for direction in [Direction::Read, Direction::Write] {
            if directions.has(direction) {
                limits[direction as usize]
                    .counts
                    .store(false, Ordering::Relaxed);
            }
        }
    }

    /// Whether an operation that polls, and has to wait, has waited for too long.
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

    /// The same for an operation that has a timer of its own.
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
        let (mut version, mut least) = (0, None::<Duration>);
        for direction in [Direction::Read, Direction::Write] {
            if directions.has(direction) {
                let state = lock(&limits[direction as usize].state);
                version += state.version;
                let limit = state.limit.into_iter();
                least = limit.chain(least).min();
            }
        }
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
                // The runtime is shut down: the reactor, which ends as well, tells.
                _ => Poll::Pending,
            },
            _ => Poll::Pending,
        }
    }
}

impl Limit {
    fn poll(&self, cx: &Context<'_>, home: &Arc<WorkerShard>) -> Poll<io::Error> {
        // Wakers are foreign code: cloned under no lock, and dropped after it.
        let mut let_go = Vec::new();
        let mut cloned = None;
        let mut state = lock(&self.state);
        loop {
            let Some(limit) = state.limit else {
                return Poll::Pending;
            };
            if !self.counts.swap(true, Ordering::Relaxed) {
                state.begin(home, limit);
            }
            let Some(timer) = &state.timer else {
                return Poll::Pending;
            };
            match timer.bell.wakes(cx.waker(), &mut cloned) {
                Ok(before) => let_go.extend(before),
                Err(NotCloned) => {
                    drop(state);
                    cloned = Some(cx.waker().clone());
                    state = lock(&self.state);
                    continue;
                }
            }
            match ready!(timer.sleep.poll(&timer.waker)) {
                Outcome::Fired => {}
                // The runtime is shut down: the reactor, which ends as well, tells.
                _ => return Poll::Pending,
            }
            self.counts.store(false, Ordering::Relaxed);
            if !timer.bell.rang_long_ago(state.deadline) {
                return Poll::Ready(timed_out(limit));
            }
        }
    }
}

impl State {
    /// An operation begins to wait.
    fn begin(&mut self, home: &Arc<WorkerShard>, limit: Duration) {
        self.deadline = deadline(home, limit);
        match &mut self.timer {
            Some(timer) => timer.sleep.reset(self.deadline),
            none => *none = Some(Timer::new(home, self.deadline)),
        }
    }
}

impl Bell {
    /// From now on it wakes this one, of which it may need a clone. Whom it would have woken is foreign code, and
    /// the caller's to drop.
    fn wakes(&self, waker: &Waker, cloned: &mut Option<Waker>) -> Result<Option<Waker>, NotCloned> {
        let mut waiting = lock(&self.waiting);
        match &*waiting {
            Some(there) if there.will_wake(waker) => Ok(None),
            _ => {
                let cloned = cloned.take().ok_or(NotCloned)?;
                Ok(waiting.replace(cloned))
            }
        }
    }

    /// Whether it has rung for this deadline, and nobody came soon after.
    fn rang_long_ago(&self, deadline: u64) -> bool {
        let rang = self.rang.load(Ordering::Relaxed);
        // Earlier: it has not come to note it yet.
        rang >= deadline && self.home.owner().shared.clock.now().saturating_sub(rang) >= SOON
    }
}

#[cold]
fn timed_out(limit: Duration) -> io::Error {
    let what = format!("the descriptor was not ready within {limit:?}, its timeout");
    io::Error::new(io::ErrorKind::TimedOut, what)
}
