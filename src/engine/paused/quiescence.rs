//! When a runtime on a paused clock has nothing left to do, and what is done then.
//!
//! A paused clock is put forward when nothing can happen before: neither too early, while a callback
//! or a task still has to run (it would see a time that jumps), nor never, because nobody noticed
//! that the last of them was through. Those who do what a runtime does are its *members*: its
//! workers, and the threads that are in a `block_on` of it. All other threads are outside: what they
//! do is not waited for, and comes before or after a jump as it happens to.
//!
//! **Members wait under one mutex.** A worker that finds nothing to do announces itself as parked,
//! as always, looks a last time, and then, if its clock is paused, counts itself idle under the
//! mutex and sleeps *on* its epoll instance by poll(2), without a timeout. That takes no event out
//! of it. When it wakes it counts itself out, under the mutex again, before it takes events or
//! anything else. So while somebody holds the mutex and the count is full, each worker is asleep, or
//! on its way to or from sleep with nothing in hand. A thread in `block_on` has a word that says
//! that it waits, which who wakes it takes away; between having been woken and polling its future it
//! passes through the mutex.
//!
//! **Who goes idle judges**: each worker that counts itself idle, each thread that is about to wait
//! in `block_on` or leaves it. Whatever makes a runtime quiescent is the last of those acts, for
//! members act until then. Holding the mutex, the judge looks for
//!
//! | what | seen by |
//! |---|---|
//! | a worker that runs, fires, searches, or has announced itself and not looked yet | the idle count |
//! | a blocking thread that has something to do, and is in no `block_on` | the count of those, which is looked at first |
//! | a thread in `block_on` that runs, or was woken and has not run | its word |
//! | a helper that was called before the clock was paused | the count of those that sit |
//! | a judge that has the wakers of those whom it serves in hand | a worker is not idle then, others are counted |
//! | a wake-up that was claimed and not written, of a worker or of a clock | the parked word: not asleep |
//! | one that was written and not received, a socket that is ready | the epoll instance: readable |
//! | work in a queue | the injector, the deques, and what others pushed for a worker alone. (An idle worker's LIFO slot is empty, and so is what it pushed there itself) |
//! | news and deadlines | [`Shard::settle`](tourbillon_shards::Shard::settle), which reads the news |
//! | a runtime that is to end | `stopping` |
//!
//! If there is any of it, somebody is about to act, and will judge in their turn: a claimed worker is
//! woken, finds what there is or nothing, and goes idle again. The looks need not be repeated: as no
//! member can begin anything while the mutex is held, nothing moves from a place that is looked at
//! later to one that was looked at before.
//!
//! **What is done then**, the first of these that there is: (1) callers of `advance` whose jump was
//! made are woken; (2) the next jump that was asked for is made; (3) if there is a `block_on`, the
//! clock goes to the earliest deadline. After a jump those are woken who have something due.
//!
//! **Pausing and resuming** wake all workers: those that wait the one way leave, and wait the other.
//! A worker looks at the clock's flag behind the fence of its announcement, who pauses looks at the
//! parked word behind a fence that follows the flag (the same for the word of a thread in
//! `block_on`). So one of them sees the other.
//!
//! A runtime whose clock was never paused comes here at the beginning and the end of each `block_on`
//! alone, to have it on the list should that change.

use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tourbillon_shards::NEVER;

use crate::{
    clock::other::OtherClock,
    engine::{
        blocking::Waiting,
        clocks,
        core::Core,
        paused::{
            passing::{Shards, wake_due},
            state::{Blocked, Jump, Quiescence, RUNS, State, WAITS},
        },
        shared::Shared,
    },
    sys::sync::{
        MutexGuard,
        atomic::{AtomicU8, Ordering, fence},
        thread,
    },
    util::{contained::contained, lock::lock},
};

impl State {
    /// Judges whether all is quiet, and does what is to be done then. The caller wakes who is
    /// answered, under no lock.
    #[must_use]
    fn judge(&mut self, shared: &Shared) -> Vec<Waker> {
        let clock = &shared.clock;
        let shards = Shards::of(shared);
        if !self.is_still(shared, &shards) {
            return Vec::new();
        }
        loop {
            let nexts: Vec<_> = shards.iter().map(|shard| shard.settle(clock)).collect();
            if wake_due(&shards, &nexts, clock) {
                return Vec::new();
            }
            let next = nexts.into_iter().min().unwrap_or(NEVER);
            if !self.made.is_empty() {
                return self.made.drain(..).map(|jump| jump.waker).collect();
            } else if let Some(jump) = self.asked.pop_front() {
                clock.advance(jump.by);
                self.made.push(jump);
            } else if next != NEVER && !self.blocked.is_empty() {
                clock.advance(Duration::from_nanos(next - clock.now()));
            } else {
                return Vec::new();
            }
        }
    }

    /// Whether nobody is at anything, nor about to be. Does not look at the timers.
    fn is_still(&self, shared: &Shared, shards: &Shards) -> bool {
        let workers = &shards.workers;
        // First of all: these do not need the mutex to act, but what they did is seen by what follows.
        !shared.blocking.is_busy()
            && shared.clock.is_paused()
            && !shared.is_stopping()
            && self.idle == workers.len()
            && self.serving == 0
            && shared.searchers.all_sit()
            && self.blocked.iter().all(|(_, blocked)| self.waits(blocked))
            && shards
                .iter()
                .all(|shard| shard.sleeps_until(&shared.clock).is_some())
            && !shared.has_work()
            && !workers
                .iter()
                .any(|worker| worker.owner().pinned.came_from_elsewhere())
            && !workers
                .iter()
                .any(|worker| worker.owner().reactor.epoll().has_events())
    }

    /// Whether a thread waits, in this `block_on` or in one that the future called in its turn.
    fn waits(&self, blocked: &Blocked) -> bool {
        let id = blocked.thread.id();
        blocked.is_waiting()
            || self
                .blocked
                .iter()
                .any(|(_, inner)| inner.thread.id() == id && inner.is_waiting())
    }

    /// Gives up all jumps; the caller wakes who is answered.
    #[must_use]
    fn release(&mut self) -> Vec<Waker> {
        let jumps = self.asked.drain(..).chain(self.made.drain(..));
        jumps.map(|jump| jump.waker).collect()
    }
}

/// Wakes callers of `advance`. Wakers are foreign code, and one that panics keeps no other from being
/// woken.
fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        contained(|| waker.wake());
    }
}

impl Quiescence {
    /// Sleeps until the worker is woken or has events, if the clock is paused: otherwise it answers
    /// false at once. For a worker that has announced that it sleeps until `until`; it harvests its
    /// events afterwards, and wakes `wakers`.
    pub(crate) fn sleep(&self, core: &Core, until: u64, wakers: &mut Vec<Waker>) -> bool {
        let shared = &core.shared;
        {
            let mut state = lock(&self.0);
            if !shared.clock.is_paused() {
                return false;
            }
            if until <= shared.clock.now() {
                return true;
            }
            state.idle += 1;
            wakers.append(&mut state.judge(shared));
            if !wakers.is_empty() {
                state.idle -= 1;
                return true;
            }
        }
        // Whatever is wrong with the instance, the worker has to go on; there is nobody to tell.
        let _ = core.reactor.epoll().wait_ready();
        lock(&self.0).idle -= 1;
        true
    }

    /// Pauses the clock of the runtime, if it runs.
    pub(crate) fn pause(&self, shared: &Shared) {
        let _state = lock(&self.0);
        if !shared.clock.is_paused() {
            shared.clock.pause();
            shared.wake_all();
        }
    }

    /// Lets the clock of the runtime run on, if it is paused. Jumps that were asked for are made.
    pub(crate) fn resume(&self, shared: &Shared) {
        let released = {
            let mut state = lock(&self.0);
            if !shared.clock.is_paused() {
                return;
            }
            for jump in &state.asked {
                shared.clock.advance(jump.by);
            }
            shared.clock.resume();
            // The alarms stood still as the clock did.
            let workers = shared.workers.load();
            let is_watched = shared.config.is_watched(workers.len());
            for worker in workers.iter() {
                if is_watched || worker.owner().in_place.load(Ordering::Relaxed) {
                    worker.call();
                }
            }
            shared.wake_all();
            state.release()
        };
        wake_all(released);
    }

    /// Sets the wall clock of the runtime, whose clock is paused. False if it is not.
    #[must_use]
    pub(crate) fn set_wall(&self, shared: &Shared, shown: u64) -> bool {
        let wall = shared.clock_shard(OtherClock::Wall);
        let jobs = {
            let mut state = lock(&self.0);
            if !shared.clock.is_paused() {
                return false;
            }
            let set = || shared.clock.set_other(OtherClock::Wall, shown);
            let Some(wall) = &wall else {
                set();
                return true;
            };
            state.serving += 1;
            clocks::step(wall, set)
        };
        // Under no lock: on a runtime that ends just now they are ended here.
        for job in jobs {
            shared.deliver(job);
        }
        lock(&self.0).serving -= 1;
        // It sleeps until another moment now; and who was idle judges anew.
        if let Some(wall) = &wall {
            wall.wake();
        }
        true
    }

    /// Ends what waits here, on a runtime where nothing runs any more.
    pub(crate) fn close(&self) {
        let released = {
            let mut state = lock(&self.0);
            state.closed = true;
            state.release()
        };
        wake_all(released);
    }

    /// The calling thread is in `block_on` until the guard is dropped.
    pub(crate) fn enter<'a>(&'a self, shared: &'a Shared) -> BlockedGuard<'a> {
        let blocked = Arc::new(Blocked {
            thread: thread::current(),
            word: AtomicU8::new(RUNS),
        });
        let mut state = lock(&self.0);
        let place = state.blocked.insert(blocked.clone());
        let job = Waiting::begin(shared);
        BlockedGuard {
            shared,
            blocked,
            place,
            job,
        }
    }

    /// Judges after something that kept the runtime busy is through.
    pub(crate) fn look(&self, shared: &Shared) {
        self.judge(shared, lock(&self.0));
    }

    /// Judges on behalf of a thread that is no worker, until there is nobody to be served. While it
    /// wakes somebody, nothing is quiet.
    fn judge<'a>(&'a self, shared: &Shared, mut state: MutexGuard<'a, State>) {
        loop {
            let wakers = state.judge(shared);
            if wakers.is_empty() {
                return;
            }
            state.serving += 1;
            drop(state);
            wake_all(wakers);
            state = lock(&self.0);
            state.serving -= 1;
        }
    }
}

/// Keeps a thread on the list of those that are in `block_on`.
pub(crate) struct BlockedGuard<'a> {
    shared: &'a Shared,
    blocked: Arc<Blocked>,
    place: usize,
    /// The job that it is in, on a blocking thread.
    job: Waiting,
}

impl BlockedGuard<'_> {
    /// What wakes the thread.
    pub(crate) fn waker(&self) -> Waker {
        Waker::from(self.blocked.clone())
    }

    /// Waits until the thread has been woken since it last came from here.
    pub(crate) fn wait(&self) {
        let (shared, word) = (self.shared, &self.blocked.word);
        if word
            .compare_exchange(RUNS, WAITS, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
        {
            fence(Ordering::SeqCst);
            if shared.clock.was_paused() {
                let quiescence = &shared.quiescence;
                quiescence.judge(shared, lock(&quiescence.0));
            }
            // Others may unpark this thread for reasons of their own.
            while self.blocked.is_waiting() {
                thread::park();
            }
        }
        if shared.clock.was_paused() {
            // Who judged while we seemed to wait is to be done before we go on.
            drop(lock(&shared.quiescence.0));
        }
        word.swap(RUNS, Ordering::AcqRel);
    }
}

impl Drop for BlockedGuard<'_> {
    fn drop(&mut self) {
        let quiescence = &self.shared.quiescence;
        let mut state = lock(&quiescence.0);
        state.blocked.remove(self.place);
        self.job.end(self.shared);
        if self.shared.clock.was_paused() {
            quiescence.judge(self.shared, state);
        }
    }
}

const NOT_PAUSED: &str = "`advance` was called while the clock of its runtime runs: pause it before, \
    with `time::pause` or `Builder::start_paused`";

/// The future of [`advance`](crate::time::paused::advance).
pub(crate) struct Advance {
    shared: Arc<Shared>,
    by: Duration,
    /// The number of the jump, once it was asked for.
    number: Option<u64>,
}

impl Advance {
    pub(crate) fn new(shared: Arc<Shared>, by: Duration) -> Self {
        Self {
            shared,
            by,
            number: None,
        }
    }
}

impl Future for Advance {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Wakers are foreign code: cloned and dropped under no lock.
        let mut waker = cx.waker().clone();
        let this = &mut *self;
        let mut guard = lock(&this.shared.quiescence.0);
        let state = &mut *guard;
        let Some(number) = this.number else {
            if state.closed {
                return Poll::Ready(());
            }
            if !this.shared.clock.is_paused() {
                drop(guard);
                panic!("{NOT_PAUSED}");
            }
            state.jumps += 1;
            let (number, by) = (state.jumps, this.by);
            state.asked.push_back(Jump { number, by, waker });
            this.number = Some(number);
            // The caller need not be a member, who would judge when it waits.
            if let Some(worker) = this.shared.workers.load().first() {
                worker.wake();
            }
            return Poll::Pending;
        };
        let mut jumps = state.asked.iter_mut().chain(&mut state.made);
        let ours = jumps.find(|jump| jump.number == number);
        let poll = match ours {
            Some(jump) => {
                mem::swap(&mut jump.waker, &mut waker);
                Poll::Pending
            }
            None => Poll::Ready(()),
        };
        drop(guard);
        poll
    }
}

impl Drop for Advance {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let is_ours = |jump: &Jump| jump.number == number;
        // Its waker is dropped under no lock.
        let _given_up = {
            let mut state = lock(&self.shared.quiescence.0);
            let asked = state.asked.iter().position(is_ours);
            let made = state.made.iter().position(is_ours);
            let asked = asked.and_then(|at| state.asked.remove(at));
            asked.or_else(|| made.map(|at| state.made.remove(at)))
        };
    }
}
