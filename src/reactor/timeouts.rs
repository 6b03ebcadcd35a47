//! How long operations on a descriptor may wait, where that has a limit.
//!
//! Those that poll, one task in each direction, share a timer for each direction. It is armed by the first
//! that has to wait, and from then on only moved, by the next that has to: an operation that ends leaves it
//! alone. When it fires, who waited for it is woken, and finds at its next poll that its time is over; if
//! nobody waits any more, nothing happens, and the next that waits arms it again.
//!
//! Operations that are futures of ours know when they begin and are given up. Of them any number may wait,
//! and each has a timer of its own, for as long as it waits.

use std::{
    io,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use tourbillon_shards::{NEVER, Outcome, Sleep};

use super::{Direction, Directions};
use crate::{
    runtime::{Core, WorkerShard, lock},
    timer::nanos,
};

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
    timer: Option<Sleep<Core>>,
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
        let mut state = lock(&self.state);
        let Some(limit) = state.limit else {
            return Poll::Pending;
        };
        if !self.counts.swap(true, Ordering::Relaxed) {
            let deadline = deadline(home, limit);
            match &mut state.timer {
                Some(timer) => timer.reset(deadline),
                none => *none = Some(Sleep::new(home, deadline)),
            }
        }
        let Some(timer) = &state.timer else {
            return Poll::Pending;
        };
        match ready!(timer.poll(cx.waker())) {
            Outcome::Fired => {
                self.counts.store(false, Ordering::Relaxed);
                Poll::Ready(timed_out(limit))
            }
            // The runtime is shut down: the reactor, which ends as well, tells.
            _ => Poll::Pending,
        }
    }
}

#[cold]
fn timed_out(limit: Duration) -> io::Error {
    let what = format!("the descriptor was not ready within {limit:?}, its timeout");
    io::Error::new(io::ErrorKind::TimedOut, what)
}
