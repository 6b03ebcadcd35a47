//! Helpers: threads that come to the aid of workers when none of these is left to, and go when they were
//! not needed for long.
//!
//! A helper runs the loop of a worker, with a deque of its own, but owns nothing that lasts: what is
//! armed, registered and spawned on it goes to the workers. It sits on an epoll instance that has the
//! workers' alarms in it, behind all workers, so that it is called when none of them sleeps. Then it
//! looks whether the worker that did not come back is *stuck*, at the same job as when somebody last
//! looked, since one that is merely busy needs no thread more; and if so it takes what that has to do, and
//! runs it, and steals what there is to steal, until there is nothing.
//!
//! Before it runs anything, as before any worker does, somebody else has to sit: see
//! `shards/src/standby.rs`. So there are as many helpers as are stuck in turn, and one more.

pub(crate) mod known;

use std::{io, sync::Arc, time::Duration};

use crossbeam::deque;
use tourbillon_shards::Shard;

use crate::{
    engine::{
        clocks,
        core::{Core, Role, WorkerShard},
        helpers::known::{Helpers, Known},
        job::Job,
        shared::Shared,
        shutdown, threads,
        watchdog::watch::InLoop,
        worker,
        worker::Worker,
    },
    metrics::{HelperMetrics, recorder::Record},
    sys,
    sys::{
        epoll::Timeout,
        sync::atomic::{Ordering, fence},
    },
    util::lock::lock,
};

/// Longer than this nobody waits by a clock.
const LONG: Duration = Duration::from_secs(365 * 86_400);

/// A helper that may not end looks again after this, however short the keep-alive is.
const MOMENT: Duration = Duration::from_millis(10);

/// How long it is between two looks at those that are in `block_in_place`, while the clock is paused.
const PAUSED_LOOK: Duration = Duration::from_millis(1);

impl Helpers<WorkerShard> {
    pub(crate) fn metrics(&self, shared: &Shared) -> HelperMetrics {
        let known = self.known.load_full();
        let mut record = Record::clone(&known.done);
        for helper in &known.list {
            record += &helper.owner().recorder.read();
        }
        let threads = shared.searchers.helpers();
        HelperMetrics {
            threads,
            idle: shared.searchers.sitting().min(threads),
            started: known.started,
            record,
        }
    }

    /// Wakes them all, whatever they wait for.
    pub(crate) fn wake_all(&self) {
        for helper in &self.known.load().list {
            helper.owner().wake_again();
        }
    }
}

impl Shared {
    /// The calling thread is about to run foreign code: if nobody sits, a helper is started, if there may
    /// be one more.
    #[inline]
    pub(crate) fn stand_by(self: &Arc<Self>) {
        let most = self.most_helpers();
        if most > 0 && self.searchers.stand_by(most) {
            // There is nobody to tell: it is tried again by who gets up next.
            let _ = start(self);
        }
    }
}

/// Starts a helper, which is on the list of those that sit already.
#[cold]
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    {
        let mut running = lock(&shared.running);
        if shared.is_stopping() || *running == 0 {
            shared.searchers.strike();
            return Ok(());
        }
        *running += 1;
    }
    start_thread(shared).inspect_err(|_| {
        shared.searchers.strike();
        shutdown::leave(shared);
    })
}

fn start_thread(shared: &Arc<Shared>) -> io::Result<()> {
    let mut threads = lock(&shared.helpers.threads);
    let workers = shared.workers.load();
    let deque = deque::Worker::new_fifo();
    let index = workers.len() + threads.started() as usize;
    let core = Core::new(index, shared.clone(), deque.stealer(), Role::Helper)?;
    for worker in workers.iter() {
        core.answer_for(worker.owner())?;
    }
    clocks::answer(&core, &shared.clocks())?;
    let shard = Arc::new(Shard::new(core));
    let thread = {
        let (shared, shard) = (shared.clone(), shard.clone());
        move |number| main(&shared, shard, deque, number)
    };
    change(shared, |known| known.list.push(shard.clone()));
    // Either who stops the runtime finds it on the list, and wakes it, or it finds that it is to stop.
    fence(Ordering::SeqCst);
    let started = threads.start(&shared.config, "helper", thread);
    change(shared, |known| {
        if started.is_err() {
            known.forget(&shard);
        }
        known.started = threads.started();
    });
    started
}

/// Changes what is known. With the lock of the threads held.
fn change(shared: &Shared, change: impl FnOnce(&mut Known<WorkerShard>)) {
    let mut known = Known::clone(&shared.helpers.known.load());
    change(&mut known);
    shared.helpers.known.store(Arc::new(known));
}

/// The main function of a helper.
fn main(shared: &Arc<Shared>, shard: Arc<WorkerShard>, deque: deque::Worker<Job>, number: u64) {
    // Who started it may be a worker, whose core it has inherited.
    sys::cpu::unpin();
    sys::thread::wake_on_time();
    let local = worker::run_as(&shard, deque, |worker| worker.help());
    // Nothing comes there any more: what its last hook brought is for others.
    while let Some(job) = local.next() {
        shared.inject(job);
    }
    drop(local);
    let ended = {
        let mut threads = lock(&shared.helpers.threads);
        change(shared, |known| {
            *Arc::make_mut(&mut known.done) += &shard.owner().recorder.read();
            known.forget(&shard);
        });
        // At the end of the runtime it is joined by who waits for that.
        let stays = shared.is_stopping();
        (!stays).then(|| threads.leave(number)).flatten()
    };
    drop(shard);
    shutdown::leave(shared);
    threads::join(ended);
}

impl Worker<'_> {
    /// The loop of a helper, until it is not needed any more, or the runtime stops.
    fn help(&mut self) {
        while self.sit() {
            let mut is_through = false;
            // A panic of a foreign destructor or waker is not the end of what is queued.
            while !is_through && !self.shared.is_stopping() {
                self.core.contain(|| {
                    self.take_up();
                    self.run();
                    is_through = true;
                });
            }
            self.shared.searchers.sit();
            self.judge();
        }
    }

    /// Waits to be called; true if there is something to run, and somebody else sits.
    fn sit(&mut self) -> bool {
        let (core, shared) = (self.core, self.shared);
        let searchers = &shared.searchers;
        let keep_alive = shared.config.thread_keep_alive.max(MOMENT);
        let nanos = keep_alive.as_nanos().try_into().unwrap_or(u64::MAX);
        let mut since = shared.clock.real();
        let mut ran = shared.jobs_run();
        while !shared.is_stopping() {
            // A clock that is paused calls nobody; but what is queued need not wait for one that is in
            // `block_in_place`.
            let looks = shared.clock.is_paused() && shared.in_place.load(Ordering::Relaxed) > 0;
            let awake = self.waits_for_others() && !shared.clock.was_paused();
            let timeout = if awake {
                Timeout::Zero
            } else if looks {
                Timeout::Until {
                    deadline: shared.clock.real(),
                    left: PAUSED_LOOK,
                }
            } else if keep_alive > LONG {
                Timeout::None
            } else {
                let until = since.saturating_add(nanos);
                let left = Duration::from_nanos(until.saturating_sub(shared.clock.real()));
                Timeout::Until {
                    deadline: until,
                    left,
                }
            };
            core.wait(self.events.get_mut(), timeout);
            // Before it takes anything: a clock that is paused waits for who has something in hand.
            searchers.rise();
            self.harvest(!awake);
            self.found_stuck |= looks;
            if self.has_something() {
                core.shared.stand_by();
                // It has sat, and was not away.
                self.in_loop = InLoop::at(shared.clock.real(), self.tick);
                return true;
            }
            searchers.sit();
            self.judge();
            let now = shared.clock.real();
            if now.saturating_sub(since) >= nanos {
                let before = std::mem::replace(&mut ran, shared.jobs_run());
                since = now;
                // One that would be started again at once may as well stay.
                let started = shared.most_helpers() > 0;
                let needed = started && searchers.sitting() == 1 && before != ran;
                if !needed && searchers.retire(shared.config.helpers.0) {
                    return false;
                }
            }
        }
        false
    }

    /// Whether something was taken, or there is something to be stolen that nobody comes to run.
    fn has_something(&mut self) -> bool {
        let stuck = std::mem::take(&mut self.found_stuck);
        !self.due.is_empty()
            || !self.wakers.is_empty()
            || !self.stalls.is_empty()
            || self.local.has_jobs()
            || (stuck && self.shared.has_work())
    }

    /// Nothing is in hand any more, which may be what a paused clock waits for.
    fn judge(&self) {
        if self.shared.clock.was_paused() {
            self.shared.quiescence.look(self.shared);
        }
    }
}
