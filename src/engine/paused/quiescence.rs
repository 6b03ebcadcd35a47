//! Quiescence: detects that a runtime on a paused clock has nothing left to do, and advances the
//! clock.
//!
//! A paused clock must advance exactly when nothing can happen before the next deadline. If it
//! advanced while a callback or task still has to run, that code would see the time jump. If no
//! thread noticed that the last of them ended, the clock would never advance. The threads that run
//! the code of a runtime are its *members*: its workers, and the threads in a `block_on` of it. All
//! other threads are outside: the clock does not wait for them, and what they do may come before or
//! after a jump.
//!
//! **Members wait under one mutex.** A worker that finds nothing to do announces itself as parked
//! and checks its queues once more, as always. If its clock is paused, it then counts itself idle
//! under the mutex, and sleeps *on* its epoll instance by poll(2), without a timeout. poll(2) takes
//! no event out of the instance. When the worker wakes, it takes itself off the count, under the
//! mutex again, before it takes events or anything else. So while a thread holds the mutex and all
//! workers are counted, each worker is asleep, or on its way to or from sleep with nothing in hand.
//! A thread in `block_on` has a state word that says that it waits; the thread that wakes it
//! changes that word. After it was woken, and before it polls its future, it passes through the
//! mutex. In a current-thread runtime that thread is the worker, too. It waits where the worker
//! sleeps, and its state word says that the future waits while the worker runs other jobs.
//!
//! **A member that becomes idle judges** whether the runtime is quiescent: each worker that counts
//! itself idle, and each thread that is about to wait in `block_on` or leaves it. One of these is
//! always the last event before a runtime is quiescent, since members act until then. The judge
//! holds the mutex and checks:
//!
//! | what may still act | how the judge sees it |
//! |---|---|
//! | a worker that runs, or has announced itself and not checked yet | the idle count |
//! | a blocking thread with a job, in no `block_on` | the count of busy threads, checked early |
//! | a thread in `block_on` that runs, or was woken and has not run | its word, checked twice |
//! | a helper that was called | the count of helpers in reserve |
//! | a judge that has yet to wake wakers | a worker: not idle; another thread: `serving` |
//! | a wake-up that was claimed and not written yet | the parked word: not asleep |
//! | a wake-up that was written, a socket that is ready | the epoll instance: readable |
//! | a job in a queue | the injector, the deques, the remote queues of pinned tasks |
//! | pending updates and deadlines | `Shard::settle`, which reads the updates |
//! | a runtime that is about to end | `stopping` |
//!
//! The queues that only a worker's own thread uses (the LIFO slot, the own queue of pinned tasks)
//! are empty while the worker is idle.
//!
//! If any of these is found, a member is about to act, and will judge later: a claimed worker is
//! woken, finds a job or nothing, and becomes idle again. One pass over the table is enough, except
//! for the state words. While the mutex is held no member that waits can begin anything, so nothing
//! moves from a place that is checked later to a place that was checked before. A thread in
//! `block_on` begins to wait without the mutex. So its word is checked before the blocking threads,
//! to which it may have given a job, and after them, since one of them may have woken it.
//! A helper is no member either, and the timerfd of a clock may call it at any time. So after it
//! has left the reserve it passes through the mutex, before it takes anything.
//!
//! **A quiescent runtime** does the first of these that applies: (1) wakes the callers of `advance`
//! whose jump was made; (2) makes the next requested jump; (3) if a thread is in `block_on`,
//! advances the clock to the earliest deadline. After a jump the judge wakes the owners that have
//! something due.
//!
//! **Pausing and resuming** wake all workers, so that each waits in the way that fits the clock. A
//! worker checks the clock's flag behind the fence of its announcement. The thread that pauses
//! checks the parked word behind a fence that follows the flag. So one of the two sees the other.
//! The state word of a thread in `block_on` works likewise.
//!
//! A runtime whose clock was never paused uses this module only at the beginning and end of each
//! `block_on`, to list the thread in case the clock is paused meanwhile.

use std::{sync::Arc, task::Waker, time::Duration};

use tourbillon_shards::NEVER;

use crate::{
    clock::other::OtherClock,
    engine::{
        blocking::Waiting,
        clocks,
        core::WorkerShard,
        local::Local,
        paused::{
            passing::{settle, sleeps_until, wake_due},
            state::{Blocked, Quiescence, RUNS, State, WAITS},
        },
        shared::{Shards, Shared},
        watchdog::alarm,
    },
    sys::sync::{
        MutexGuard,
        atomic::{AtomicU8, Ordering, fence},
        thread,
    },
    util::{
        contained::{each_or, forget},
        lock::lock,
    },
};

impl State {
    /// Judges whether the runtime is quiescent, and acts if so. Returns wakers, which the caller
    /// must wake after unlocking.
    #[must_use]
    fn judge(&mut self, shared: &Shared) -> Vec<Waker> {
        // At the end of a `block_on` all workers are awake: then the rest need not be looked at.
        if self.idle == 0 {
            return Vec::new();
        }
        let clock = &shared.clock;
        let shards = shared.shards();
        if !self.is_still(shared, &shards) {
            return Vec::new();
        }
        loop {
            // All shards must be settled, and their owners awake if something is due, before the
            // clock may move.
            self.nexts.clear();
            let nexts = shards.iter().map(|shard| settle(shard, clock));
            self.nexts.extend(nexts);
            if wake_due(&shards, &self.nexts, clock) {
                return Vec::new();
            }
            let next = self.nexts.iter().copied().min().unwrap_or(NEVER);
            // In this order: a jump that was made is over before another one begins.
            if !self.jumped.is_empty() {
                return self.jumped.drain(..).map(|jump| jump.waker).collect();
            } else if let Some(jump) = self.requested.pop_front() {
                clock.advance(jump.by);
                self.jumped.push(jump);
            } else if next != NEVER && !self.blocked.is_empty() {
                clock.advance(Duration::from_nanos(next - clock.now()));
            } else {
                return Vec::new();
            }
        }
    }

    /// Returns whether no member runs or is about to run. Does not check the timers.
    fn is_still(&self, shared: &Shared, shards: &Shards) -> bool {
        let workers = &shards.workers;
        let all_wait = || self.blocked.iter().all(|(_, blocked)| self.waits(blocked));
        // A thread in `block_on` begins to wait without the mutex, and may have given a job to a
        // blocking thread just before. Once it is seen waiting, it cannot run while the mutex is
        // held, and so gives no further jobs.
        all_wait()
            // The blocking threads act without the mutex, too. The checks that follow see
            // everything that an idle one has done.
            && !shared.blocking.is_busy()
            && shared.clock.is_paused()
            && !shared.is_stopping()
            && self.idle == workers.len()
            && self.serving == 0
            && shared.queues.searchers.all_in_reserve()
            // A blocking thread may have woken one of them meanwhile.
            && all_wait()
            && shards
                .iter()
                // A word that was claimed: its owner is being woken, and is about to act. Its cause
                // is a queued job or a deadline, which the looks below and `settle` find, too.
                .all(|shard| sleeps_until(shard, &shared.clock).is_some())
            // Every push claims a worker, so these two find only what a thread outside of the
            // runtime pushes at this moment. That may as well come after the jump.
            && !shared.has_work()
            && !workers
                .iter()
                // The parts of its queues that only a worker touches are empty while it is idle.
                .any(|worker| worker.owner().pinned.has_remote())
            && !workers
                .iter()
                .any(|worker| worker.owner().reactor.has_events())
    }

    /// Returns whether a thread waits: in this `block_on`, or in a nested one that its future
    /// called.
    fn waits(&self, blocked: &Blocked) -> bool {
        let id = blocked.thread.id();
        blocked.is_waiting()
            || self
                .blocked
                .iter()
                .any(|(_, inner)| inner.thread.id() == id && inner.is_waiting())
    }

    /// Gives up all jumps. Returns the wakers of their callers.
    #[must_use]
    fn release(&mut self) -> Vec<Waker> {
        let jumps = self.requested.drain(..).chain(self.jumped.drain(..));
        jumps.map(|jump| jump.waker).collect()
    }
}

/// Wakes callers of `advance`. Wakers are user code: if one panics, the others are still woken.
fn wake_all(wakers: Vec<Waker>) {
    each_or(wakers, Waker::wake, forget);
}

/// What a worker does instead of a sleep by the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    /// Nothing: the clock is not paused.
    Not,
    /// It has not slept. Something is due, or is to be woken.
    Awake,
    /// It has slept, or may have events.
    Slept,
}

impl Quiescence {
    /// Sleeps until the worker is woken or has events, if the clock is paused.
    ///
    /// The worker has announced that it sleeps until `until`. `is_open` says whether its reactor
    /// was open before that; if not, it opens the reactor and does not sleep. Afterwards the worker
    /// harvests its events, and wakes `wakers`.
    pub(crate) fn sleep(
        &self,
        shard: &WorkerShard,
        until: u64,
        is_open: bool,
        wakers: &mut Vec<Waker>,
    ) -> Passed {
        let core = shard.owner();
        let shared = &core.shared;
        {
            let mut state = lock(&self.0);
            // Check under the mutex: the clock may have been resumed, or advanced past the
            // deadline, after the announcement.
            if !shared.clock.is_paused() {
                return Passed::Not;
            }
            if until <= shared.clock.now() {
                return Passed::Slept;
            }
            // Count this worker as idle. It may be the last member, so judge. If that yields
            // wakers, wake them first: no other thread would.
            state.idle += 1;
            wakers.append(&mut state.judge(shared));
            // The judge may be this thread, and have claimed the worker's own word for a timer that
            // came due. Then no thread wakes it from a sleep. Events that come meanwhile keep the
            // next judge from a jump.
            if !wakers.is_empty() || shard.parker().parked_until().is_none() {
                state.idle -= 1;
                return Passed::Awake;
            }
        }
        if is_open {
            core.reactor.wait_ready();
        } else {
            // No thread could wake it from this sleep.
            core.reactor.open_or_nap();
        }
        lock(&self.0).idle -= 1;
        Passed::Slept
    }

    /// Pauses the clock of the runtime if it runs, and wakes all workers.
    pub(crate) fn pause(&self, shared: &Shared) {
        let _state = lock(&self.0);
        if !shared.clock.is_paused() {
            shared.clock.pause();
            shared.wake_all();
        }
    }

    /// Resumes the clock of the runtime if it is paused. Makes all requested jumps, and wakes their
    /// callers.
    pub(crate) fn resume(&self, shared: &Shared) {
        let released = {
            let mut state = lock(&self.0);
            if !shared.clock.is_paused() {
                return;
            }
            // Make the requested jumps at once, so that no caller of `advance` waits for a clock
            // that runs.
            for jump in &state.requested {
                shared.clock.advance(jump.by);
            }
            let workers = shared.workers.load();
            let is_watched = shared.config.is_watched(workers.len());
            let watched = workers
                .iter()
                .filter(|worker| is_watched || worker.owner().watchdog.is_in_place());
            alarm::restart(|| shared.clock.resume(), watched.map(|worker| &**worker));
            shared.wake_all();
            state.release()
        };
        wake_all(released);
    }

    /// Sets the wall clock of the runtime while its clock is paused. Returns `false` if it is not.
    #[must_use]
    pub(crate) fn set_wall(&self, shared: &Shared, shown: u64) -> bool {
        let (wall, jobs) = {
            let mut state = lock(&self.0);
            if !shared.clock.is_paused() {
                return false;
            }
            // Under the lock: a worker that has served a timer of a new shard takes the lock before
            // it sleeps. So either this thread finds the shard, or that worker the new time.
            let wall = shared.clocks.get(OtherClock::Wall);
            let set = || shared.clock.set_other(OtherClock::Wall, shown);
            // Without a shard of the wall clock it has no timers, or the runtime has ended: only
            // set the clock.
            let Some(wall) = wall else {
                set();
                return true;
            };
            // Count as serving, so that the clock does not advance before the jobs are queued.
            state.serving += 1;
            let jobs = clocks::step(&wall, set);
            (wall, jobs)
        };
        // Deliver after unlocking: on a runtime that is just ending, this thread ends the jobs.
        for job in jobs {
            shared.deliver(job);
        }
        lock(&self.0).serving -= 1;
        // The shard's next deadline has changed: wake a worker to set its timerfd. That worker also
        // judges again when it is idle.
        wall.shard.wake();
        true
    }

    /// Wakes everything that waits here, on a runtime where nothing runs any more.
    pub(crate) fn close(&self) {
        let released = {
            let mut state = lock(&self.0);
            state.closed = true;
            state.release()
        };
        wake_all(released);
    }

    /// Lists the calling thread as being in `block_on`, until the guard is dropped.
    pub(crate) fn enter<'a>(&'a self, shared: &'a Shared) -> BlockedGuard<'a> {
        self.list(shared, None, None)
    }

    /// Lists the calling thread as [`enter`](Self::enter) does. It is the worker of `local`
    /// meanwhile, in a current-thread runtime.
    pub(crate) fn enter_as<'a>(&'a self, shared: &'a Shared, local: &'a Local) -> BlockedGuard<'a> {
        self.list(shared, Some(local), local.last_root.take())
    }

    fn list<'a>(
        &'a self,
        shared: &'a Shared,
        local: Option<&'a Local>,
        mut last: Option<Arc<Blocked>>,
    ) -> BlockedGuard<'a> {
        let thread = thread::current();
        // Without a waker of the last `block_on`, its state is that of this one. This saves the
        // memory of a new one.
        let blocked = match last.as_mut().and_then(Arc::get_mut) {
            Some(blocked) => {
                (blocked.thread, blocked.word) = (thread, AtomicU8::new(RUNS));
                last.expect("it was found")
            }
            None => Arc::new(Blocked {
                thread,
                worker: local.map(|local| local.shard.clone()),
                word: AtomicU8::new(RUNS),
            }),
        };
        let mut state = lock(&self.0);
        // From here on a paused clock waits for this thread.
        let place = state.blocked.insert(blocked.clone());
        // Under the same mutex: a judge finds a blocking thread counted as busy, or in this list.
        let job = Waiting::begin(shared);
        BlockedGuard {
            shared,
            blocked,
            local,
            place,
            job,
        }
    }

    /// Waits until no thread judges. A thread that begins to act calls this after it is counted as
    /// acting: a judge that has not seen it may advance the clock until then.
    pub(crate) fn pass(&self) {
        drop(lock(&self.0));
    }

    /// Judges quiescence, after something that kept the runtime busy has ended.
    pub(crate) fn recheck(&self, shared: &Shared) {
        self.judge(shared, lock(&self.0));
    }

    /// Judges quiescence on a thread that is not a worker, until there is no waker left to wake. It
    /// is counted as serving while it wakes.
    fn judge<'a>(&'a self, shared: &Shared, mut state: MutexGuard<'a, State>) {
        loop {
            let wakers = state.judge(shared);
            if wakers.is_empty() {
                return;
            }
            // The tasks of these wakers are about to run, so nothing is quiet until all are woken.
            state.serving += 1;
            drop(state);
            wake_all(wakers);
            state = lock(&self.0);
            state.serving -= 1;
        }
    }
}

/// Lists a thread as being in `block_on`, until it is dropped.
pub(crate) struct BlockedGuard<'a> {
    shared: &'a Shared,
    blocked: Arc<Blocked>,
    /// The worker that the thread is meanwhile.
    local: Option<&'a Local>,
    place: usize,
    /// On a blocking thread: the job that called `block_on`.
    job: Waiting,
}

impl BlockedGuard<'_> {
    /// Returns the waker that wakes this thread.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(self.blocked.clone())
    }

    /// Returns the state of this thread.
    pub(crate) fn blocked(&self) -> &Arc<Blocked> {
        &self.blocked
    }

    /// Announces that the thread waits, unless it was woken since it last began to poll.
    pub(crate) fn begin_wait(&self) -> bool {
        let word = &self.blocked.word;
        word.compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Announces that the thread polls its future.
    pub(crate) fn end_wait(&self) {
        self.blocked.word.swap(RUNS, Ordering::AcqRel);
    }

    /// Waits until the thread has been woken since the last call.
    pub(crate) fn wait(&self) {
        let shared = self.shared;
        if self.begin_wait() {
            // The announcement (WAITS) before the flag: see "Pausing and resuming" above.
            fence(Ordering::SeqCst);
            if shared.clock.was_paused() {
                let quiescence = &shared.quiescence;
                quiescence.judge(shared, lock(&quiescence.0));
            }
            // Other code may unpark this thread for its own reasons.
            while self.blocked.is_waiting() {
                thread::park();
            }
        }
        if shared.clock.was_paused() {
            // A judge that saw this thread waiting must finish before the thread runs again.
            shared.quiescence.pass();
        }
        self.end_wait();
    }
}

impl Drop for BlockedGuard<'_> {
    fn drop(&mut self) {
        let quiescence = &self.shared.quiescence;
        let mut state = lock(&quiescence.0);
        let blocked = state.blocked.remove(self.place);
        if let Some(local) = self.local {
            local.last_root.set(Some(blocked));
        }
        // The reverse of `enter`, under the mutex as well.
        self.job.end(self.shared);
        if self.shared.clock.was_paused() {
            quiescence.judge(self.shared, state);
        }
    }
}
