//! Helpers: threads that take over when all workers are blocked, and end when they are not needed.
//!
//! A helper runs a worker's loop with its own deque, but owns no timers, sockets or tasks: what is
//! armed, registered or spawned on it goes to the workers. While in reserve it waits on an epoll
//! instance that also watches the workers' watchdog timerfds. It stands behind all workers there,
//! so it is called only when no worker sleeps. Then it checks whether the worker that has not
//! returned to its loop is *blocked*: whether it is at the same job as at the last check. A worker
//! that is merely busy needs no helper. If the worker is blocked, the helper takes over its timers,
//! sockets and tasks, runs them, and steals other jobs until there are none.
//!
//! Before a helper or worker runs anything, another thread has to be in reserve: see
//! [`Shared::ensure_reserve`] and docs/internals/rescue.md. So there are as many helpers as are
//! blocked in turn, and one more.

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
        local::Local,
        shared::Shared,
        shutdown, threads,
        watchdog::seen::InLoop,
        worker,
        worker::Worker,
    },
    metrics::HelperMetrics,
    sys::{
        epoll::Timeout,
        sync::atomic::{Ordering, fence},
    },
    util::{lock::lock, nanos::nanos},
};

/// Keep-alives that are longer than this mean "forever".
const MAX_KEEP_ALIVE: Duration = Duration::from_secs(365 * 86_400);

/// A helper waits at least this long before it checks again whether it may end.
const MIN_KEEP_ALIVE: Duration = Duration::from_millis(10);

/// Pause between checks for workers that are in `block_in_place`, while the clock is paused.
const PAUSED_CHECK: Duration = Duration::from_millis(1);

impl Helpers<WorkerShard> {
    pub(crate) fn metrics(&self, shared: &Shared) -> HelperMetrics {
        // The list and the sum of those that ended change together, so each helper counts once.
        let known = self.known.load_full();
        let mut record = known.done.as_deref().cloned().unwrap_or_default();
        for helper in &known.list {
            record += &helper.owner().recorder.read();
        }
        let threads = known.list.len();
        // A retired worker that sleeps is in reserve, too.
        let in_reserve = shared.queues.searchers.in_reserve();
        HelperMetrics {
            threads,
            // The counts are read one after the other, and a helper may start in between.
            idle: in_reserve
                .saturating_sub(shared.retired_asleep())
                .min(threads),
            started: known.started,
            record,
        }
    }

    /// Wakes all helpers, whatever they wait for.
    pub(crate) fn wake_all(&self) {
        for helper in &self.known.load().list {
            helper.owner().wake_again();
        }
    }
}

impl Shared {
    /// Ensures that a thread is in reserve, before the calling thread runs user code. Starts a
    /// helper if no thread is in reserve and another helper is allowed.
    #[inline]
    pub(crate) fn ensure_reserve(self: &Arc<Self>) {
        let most = self.most_helpers();
        if most > 0 && self.queues.searchers.ensure_reserve(most) {
            // Ignore an error: nothing can handle it here. The next thread that leaves the reserve
            // tries again.
            let _ = start(self);
        }
    }
}

/// Starts a helper. The caller has already counted it as in reserve.
#[cold]
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    {
        let mut running = shared.lifecycle.running();
        // The runtime ends: take the helper off the count again.
        if shared.is_stopping() || *running == 0 {
            shared.queues.searchers.strike();
            return Ok(());
        }
        *running += 1;
    }
    // If the thread cannot start, take back both counts.
    start_thread(shared).inspect_err(|_| {
        shared.queues.searchers.strike();
        shutdown::leave(shared);
    })
}

/// Creates a helper's shard and epoll instance, and starts its thread.
fn start_thread(shared: &Arc<Shared>) -> io::Result<()> {
    // Held to the end: the number of threads that were started is the index of this helper.
    let mut threads = lock(&shared.helpers.threads);
    let workers = shared.workers.load();
    let deque = deque::Worker::new_fifo();
    let index = workers.len() + threads.started() as usize;
    let core = Core::new(index, shared.clone(), deque.stealer(), Role::Helper)?;
    // Watch the heartbeats of all workers.
    for worker in workers.iter() {
        core.answer_for(worker.owner())?;
    }
    // The clocks have no owner. If all workers are stuck, a helper serves them.
    clocks::watch(&core, &shared.clocks.all())?;
    let shard = Arc::new(Shard::new(core));
    let thread = {
        let (shared, shard) = (shared.clone(), shard.clone());
        move |number| main(&shared, shard, deque, number)
    };
    update_known(shared, |known| known.list.push(shard.clone()));
    // The thread that stops the runtime sets the flag and then wakes the listed helpers. The fence
    // orders the list before the helper's check of the flag, so one of the two sees the other.
    fence(Ordering::SeqCst);
    let started = threads.start(&shared.config, "helper", thread);
    update_known(shared, |known| {
        if started.is_err() {
            known.forget(&shard);
        }
        known.started = threads.started();
    });
    started
}

/// Replaces the list of helpers by a changed copy. The caller holds the lock of `threads`.
fn update_known(shared: &Shared, change: impl FnOnce(&mut Known<WorkerShard>)) {
    let mut known = Known::clone(&shared.helpers.known.load());
    change(&mut known);
    shared.helpers.known.store(Arc::new(known));
}

/// The main function of a helper's thread.
fn main(shared: &Arc<Shared>, shard: Arc<WorkerShard>, deque: deque::Worker<Job>, number: u64) {
    shared.mask.take();
    let local = Local::new(shard.clone(), deque);
    worker::run_as(&local, |worker| worker.help());
    // This thread runs no more jobs. The user's stop hook may have queued some here: hand them to
    // the workers.
    while let Some(job) = local.next() {
        shared.inject(job);
    }
    drop(local);
    let ended = {
        let mut threads = lock(&shared.helpers.threads);
        update_known(shared, |known| {
            *Arc::make_mut(known.done.get_or_insert_default()) += &shard.owner().recorder.read();
            known.forget(&shard);
        });
        // During a shutdown the thread that waits for the end of the runtime joins this one.
        let stays = shared.is_stopping();
        (!stays).then(|| threads.leave(number)).flatten()
    };
    drop(shard);
    shutdown::leave(shared);
    threads::join(ended);
}

impl Worker<'_> {
    /// A helper's loop. Ends when the helper is not needed any more, or when the runtime stops.
    fn help(&mut self) {
        while self.wait_in_reserve() {
            let mut has_ended = false;
            // A panic of a user's destructor or waker must not lose the queued jobs: go on with
            // them.
            while !has_ended && !self.shared.is_stopping() {
                self.core.contain(|| {
                    self.take_up();
                    self.run();
                    has_ended = true;
                });
            }
            self.shared.queues.searchers.enter_reserve();
            self.judge_quiescence();
        }
    }

    /// Waits in reserve until the helper is called. Returns `true` if there is something to run and
    /// another thread is in reserve, `false` if the helper must end.
    fn wait_in_reserve(&mut self) -> bool {
        let (core, shared) = (self.core, self.shared);
        let searchers = &shared.queues.searchers;
        let keep_alive = shared.config.thread_keep_alive.max(MIN_KEEP_ALIVE);
        let keep_alive_nanos = nanos(keep_alive);
        let mut since = shared.clock.real();
        let mut ran = shared.jobs_run();
        while !shared.is_stopping() {
            // A paused clock stops the heartbeats, so nothing calls this helper. Queued jobs must
            // not wait for a worker that is in `block_in_place`, so check for those regularly.
            let checks = shared.clock.is_paused() && shared.in_place.load(Ordering::Relaxed) > 0;
            // Check regularly, sleep until called, or sleep for the rest of the keep-alive.
            let timeout = if checks {
                Timeout::Until {
                    deadline: shared.clock.real(),
                    left: PAUSED_CHECK,
                }
            } else if keep_alive > MAX_KEEP_ALIVE {
                Timeout::None
            } else {
                let until = since.saturating_add(keep_alive_nanos);
                let left = Duration::from_nanos(until.saturating_sub(shared.clock.real()));
                Timeout::Until {
                    deadline: until,
                    left,
                }
            };
            core.wait(self.events.get_mut(), core.prepare(timeout));
            // Leave the reserve before taking anything: a paused clock does not advance while a
            // helper that is out of reserve may hold jobs.
            searchers.leave_reserve();
            // A judge of a paused clock may have counted this helper as in reserve. That judge
            // must finish before the helper takes anything.
            if shared.clock.was_paused() {
                shared.quiescence.pass();
            }
            self.harvest();
            self.found_stuck |= checks;
            if self.has_something_to_run() {
                core.shared.ensure_reserve();
                // It was in reserve, and not in a job: restart its own heartbeat here.
                self.in_loop = InLoop::at(shared.clock.real(), self.tick);
                self.looked = self.in_loop;
                return true;
            }
            // Nothing to do: back to the reserve.
            searchers.enter_reserve();
            self.judge_quiescence();
            // After the keep-alive, end if not needed.
            let now = shared.clock.real();
            if now.saturating_sub(since) >= keep_alive_nanos {
                let before = std::mem::replace(&mut ran, shared.jobs_run());
                since = now;
                // Stay if the helper is needed: if it is the only thread in reserve while jobs run,
                // another would be started at once.
                let started = shared.most_helpers() > 0;
                let needed = started && searchers.in_reserve() == 1 && before != ran;
                // Retired workers may count as helpers.
                let least = shared.config.helpers.0 + shared.retired_asleep();
                if !needed && searchers.retire(least) {
                    return false;
                }
            }
        }
        false
    }

    /// Returns whether this helper has taken something, or found a blocked worker whose jobs can be
    /// stolen.
    fn has_something_to_run(&mut self) -> bool {
        let stuck = std::mem::take(&mut self.found_stuck);
        !self.due.is_empty()
            || !self.wakers.is_empty()
            || !self.stalls.is_empty()
            || self.local.has_jobs()
            || (stuck && self.shared.has_work())
    }

    /// Judges quiescence if the clock was paused: a helper back in reserve may be the last member
    /// that a paused clock waits for.
    fn judge_quiescence(&self) {
        if self.shared.clock.was_paused() {
            self.shared.quiescence.recheck(self.shared);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        task::Wake,
    };

    use super::*;
    use crate::api::builder::Builder;

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, SeqCst);
        }
    }

    /// The runtime stops after the helper has taken the wakers of sockets from a stuck worker, and
    /// before it wakes them.
    #[test]
    fn a_helper_that_ends_wakes_the_tasks_that_it_took() {
        let runtime = Builder::new().worker_threads(1).build().unwrap();
        let shared = runtime.handle().shared().clone();
        let deque = deque::Worker::new_fifo();
        let core = Core::new(1, shared, deque.stealer(), Role::Helper).unwrap();
        let local = Local::new(Arc::new(Shard::new(core)), deque);
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        worker::run_as(&local, |worker| worker.wakers.push(woken.clone().into()));
        assert!(woken.0.load(SeqCst));
    }
}
