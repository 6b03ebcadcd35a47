//! The rescue of a stuck worker: a peer takes over the work that the worker cannot get to.
//!
//! 1. *The alarm.* Each worker has a timerfd, its alarm. While the worker is awake, the alarm is
//!    set to at most three quarters of the rescue latency after the worker was last in its loop.
//!    Each return to the loop puts it off if it is near (the heartbeat, [`Worker::beat`]). The
//!    protocol is in "The alarm" in `crates/sched/PROTOCOLS.md`.
//! 2. *The call.* The alarm goes off if the worker blocks in a callback or a task. All its peers
//!    wait for the alarm *exclusively* in their epoll instances, so the kernel wakes one peer that
//!    sleeps. If no peer sleeps, the event stays in the instances, and the first peer that polls
//!    finds it.
//! 3. *The rescue.* The peer takes due timers out of the worker's shard and its inbox, events out
//!    of its epoll instance, and the task out of its LIFO slot. Jobs in the worker's deque need no
//!    rescue: any peer can steal them.
//! 4. *The next alarm.* The peer then sets the worker's alarm again: to the worker's next deadline,
//!    within limits. It does this *before* it runs what it took. If the peer gets stuck too, a
//!    third worker is called for both.

use std::{io, sync::Arc, time::Duration};

use tourbillon_shards::Shard;

use crate::{
    engine::{
        core::{Core, WorkerShard},
        job::Job,
        watchdog::{alarm, report},
        worker::{Worker, fire::DUE_MOST},
    },
    reactor::{alarm_of, followed_of},
    sys::sync::atomic::Ordering,
    util::{nanos::nanos, probe::probe},
};

/// The default of [`Builder::rescue_latency`](crate::runtime::Builder::rescue_latency).
pub(crate) const DEFAULT_LATENCY: Duration = Duration::from_millis(1);
/// The least rescue latency. The kernel takes 30 to 100 µs to wake a peer.
pub(crate) const LEAST_LATENCY: Duration = Duration::from_micros(200);

/// The most peers that wait for the alarm of one worker. With more workers, these are the ones
/// whose indices follow.
const PEERS: usize = 64;
/// The most batches of [`DUE_MOST`] timers that one rescue takes from a stuck worker.
const RESCUE_ROUNDS: usize = 4;
/// The most timers that one rescue takes. `Worker::due` has this capacity from the beginning,
/// because a rescue must not wait for memory: glibc may take tens of ms for more than 1,024 bytes
/// if very many tasks have just been freed.
pub(crate) const RESCUED: usize = RESCUE_ROUNDS * DUE_MOST;

/// The most alarms that a worker answers before it runs what it has rescued. In the simulation the
/// limit is small, because a simulated runtime has few workers and the limit must be reached there
/// too.
const ANSWERS: usize = if cfg!(tourbillon_sim) { 2 } else { 8 };

/// Creates the shard of a worker, one of `workers`, with its alarm as the configuration says.
pub(crate) fn watched(core: Core, workers: usize) -> Shard<Core> {
    let config = &core.shared.config;
    // A worker in `block_in_place` is watched also if rescue is off otherwise.
    let latency = match config.rescue_latency {
        Duration::MAX => nanos(DEFAULT_LATENCY),
        latency => nanos(latency),
    };
    let store = config.timer_store;
    // There is nobody to call.
    if config.is_current_thread() {
        return deferring(Shard::new(core).with_store(store));
    }
    // Without rescues, or without a rescuer, the alarm is set only while the worker is in
    // `block_in_place`.
    let shard = if config.is_watched(workers) {
        Shard::watched(core, latency)
    } else {
        Shard::watched_when_called(core, latency)
    };
    deferring(shard.with_store(store))
}

/// Lets the worker of `shard` defer its wake-ups if the runtime has a budget for them.
fn deferring(shard: WorkerShard) -> WorkerShard {
    match shard.owner().shared.config.timer_budget {
        Some(_) => shard.deferring(),
        None => shard,
    }
}

/// Adds the alarm of each worker to the epoll instances of its peers.
pub(crate) fn watch_each_other(workers: &[Arc<WorkerShard>]) -> io::Result<()> {
    for (index, worker) in workers.iter().enumerate() {
        // The workers that follow in the ring, so that each answers for as many as answer for it.
        let peers = (1..workers.len()).map(|i| &workers[(index + i) % workers.len()]);
        for peer in peers.take(PEERS) {
            peer.owner().answer_for(worker.owner())?;
        }
    }
    Ok(())
}

impl Worker<'_> {
    /// Records a heartbeat at `real`, in real time in ns: the worker is in its loop. This puts off
    /// its alarm.
    pub(crate) fn beat(&mut self, real: u64) {
        self.local.shard.beat(self.shared.clock.present(real));
    }

    /// Reports the stalls that were found. This may run the user's hook.
    pub(crate) fn report_stalls(&mut self) {
        while let Some(index) = self.stalls.pop() {
            if let Some(peer) = self.shared.workers.load().get(index) {
                report::report_found(peer.owner());
            }
        }
    }

    /// Rescues the workers whose alarms are among the events. It takes over their work, and runs
    /// none of it.
    pub(crate) fn answer_alarms(&mut self) {
        // Taken out for the calls below, and put back at the end to keep their memory.
        let mut alarms = std::mem::take(&mut self.alarms);
        let mut followed = std::mem::take(&mut self.followed);
        let events = self.events.get_mut();
        alarms.extend(events.iter().filter_map(|event| alarm_of(event.token())));
        followed.extend(events.iter().filter_map(|event| followed_of(event.token())));
        for index in followed.drain(..) {
            self.look_at_followed(index, &mut alarms);
        }
        if !alarms.is_empty() {
            self.answer_some(&mut alarms);
            self.put_off(&mut alarms);
        }
        (self.alarms, self.followed) = (alarms, followed);
    }

    /// Answers `alarms`, and those in stuck peers' instances, up to [`ANSWERS`].
    ///
    /// Without a limit this worker might never run what it has rescued: each instance that it takes
    /// over may hold alarms of other workers.
    fn answer_some(&mut self, alarms: &mut Vec<usize>) {
        let shared = self.shared;
        let Some(_rescuing) = shared.rescuers.enter() else {
            return;
        };
        for _ in 0..ANSWERS {
            // A runtime that stops needs no rescues: its workers end together what any of them has.
            if shared.is_stopping() {
                return;
            }
            let Some(index) = alarms.pop() else {
                return;
            };
            if self.answer(index) {
                // The stuck peer's instance may have held the alarms of others.
                let events = self.peer_events.iter();
                alarms.extend(events.filter_map(|event| alarm_of(event.token())));
            }
        }
    }

    /// Puts off the alarms that this worker does not answer, so that the kernel sends them again.
    ///
    /// The worker must not keep a list of them instead, since it may get stuck in the next job it
    /// runs.
    fn put_off(&mut self, alarms: &mut Vec<usize>) {
        let shared = self.shared;
        if alarms.is_empty() || shared.is_stopping() {
            alarms.clear();
            return;
        }
        let crowded = self.crowded(shared.awake());
        let workers = shared.workers.load();
        let peers = alarms.drain(..).filter_map(|index| workers.get(index));
        for (place, peer) in peers.enumerate() {
            // If the runtime is not crowded, they go off again as soon as possible: there are fewer
            // alarms to answer by then. If it is crowded, they go off at the rate of looks, and one
            // after another. Otherwise they would go off together, and the first few would be
            // answered each time.
            let looks =
                crowded.map_or(0, |rarer| rarer.saturating_add(shared.rescuers.turn(place)));
            if peer.put_off(shared.clock.now(), looks) {
                self.core.recorder.own.alarms.add_alone(1);
            }
        }
    }

    /// Returns how many times rarer than usual looks at each worker are while `workers` are to be
    /// looked at, or `None` if the runtime is not crowded.
    fn crowded(&self, workers: usize) -> Option<u32> {
        let rarer = self.shared.rescuers.rarer(workers);
        (rarer > 1).then_some(rarer)
    }

    /// Like [`crowded`](Worker::crowded), for a look at `peer`.
    fn crowded_around(&self, peer: &WorkerShard) -> Option<u32> {
        let shared = self.shared;
        self.crowded(if peer.parker().is_awake() {
            shared.awake()
        } else {
            // It waits for a core, and so may all others that are not awake.
            let waiting = shared.recorders.len();
            waiting.saturating_sub(shared.retired_asleep())
        })
    }

    /// Answers the alarm of worker `index`. Returns `true` if that worker was rescued.
    #[cold]
    fn answer(&mut self, index: usize) -> bool {
        let shared = self.shared;
        let workers = shared.workers.load();
        let Some(peer) = workers.get(index) else {
            return false;
        };
        let now = shared.clock.now();
        // 1. Take the alarm. If it cannot be taken, another peer has it, or it was put off.
        if !alarm::take(peer, now, || shared.clock.is_paused()) {
            return false;
        }
        if index == self.core.index {
            // It is this worker's own alarm, found in the instance of a peer. This worker is well.
            peer.beat(now);
            return false;
        }
        let counters = &self.core.recorder.own;
        counters.alarms.add_alone(1);
        // 2. A worker that sleeps, and has no late timer, needs no help now. At the end of its
        //    sleep it may.
        let is_late = peer.is_late(now) || shared.keeps_mates_waiting(peer, now);
        if !peer.parker().is_awake() && !is_late {
            counters.false_alarms.add_alone(1);
            self.watch_on(peer);
            return false;
        }
        self.rescue_if_stuck(peer, index)
    }

    /// Checks a worker whose alarm this worker has taken, and rescues it if it is stuck. Returns
    /// `true` if it was rescued.
    fn rescue_if_stuck(&mut self, peer: &WorkerShard, index: usize) -> bool {
        let (shared, core) = (self.shared, peer.owner());
        // 1. Has its job run for too long? The report runs the user's hook, so it comes later.
        if report::look(core, shared.clock.real()) {
            self.stalls.push(index);
        }
        // 2. Is it stuck?
        let stuck = core.is_at_same_job();
        // By this a helper knows that there may be jobs to steal, even if it takes none here.
        self.found_stuck |= stuck;
        // A helper leaves busy workers alone, and so does a retired worker that could hand nothing
        // on. This one is busy and well, or has not been checked before. The next look shows which:
        // so only set the alarm again.
        let takes_nothing = self.is_retired() && shared.queues.searchers.parked() == 0;
        if (self.core.is_helper || takes_nothing) && !stuck {
            let looks = self.crowded_around(peer).unwrap_or(0);
            peer.watch_on_rarely(shared.clock.now(), looks);
            return false;
        }
        // 3. Rescue it. From then on, its sockets do not wait for its alarm. A worker that is in no
        //    job waits for a core, and is in its loop when it has one: to follow it would be in
        //    vain, and so would it be to run jobs in its place.
        self.rescue(peer);
        if stuck && core.is_still_at_job() {
            // A stuck worker does not count as one that takes part.
            self.stand_in_for(core);
            self.follow(peer);
        }
        true
    }

    /// Makes this thread the one that is called when a stuck worker has events, unless another
    /// thread is, and sleeps.
    fn follow(&self, peer: &WorkerShard) {
        let (shared, core) = (self.shared, peer.owner());
        // On a clock that was ever paused, all must depend on the program alone.
        if shared.clock.was_paused() {
            return;
        }
        let workers = shared.workers.load();
        let sleeps = |index: usize| {
            let other = workers.get(index);
            other.is_some_and(|other| !other.parker().is_awake())
        };
        let looks = &core.watchdog.looks;
        if looks
            .follower
            .get()
            .is_some_and(|other| other == self.core.index || sleeps(other))
        {
            return;
        }
        // This thread is in its loop, so that worker need not follow it.
        self.core.watchdog.looks.follower.leave(core.index);
        self.ask_to_be_called(core);
    }

    /// Lets the events of a worker call this thread, those that are pending included. If the kernel
    /// refuses, this thread does not follow the worker, and the next visit tries again.
    fn ask_to_be_called(&self, core: &Core) {
        let (own, looks) = (self.core, &core.watchdog.looks);
        match own.reactor.follow(&core.reactor, core.index) {
            true => looks.follower.set(own.index),
            false => looks.follower.leave(own.index),
        }
    }

    /// Takes the events of worker `index`, which this thread follows, and adds the alarms among
    /// them to `alarms`. If the worker is not stuck any more, this thread ceases to follow it.
    #[cold]
    fn look_at_followed(&mut self, index: usize, alarms: &mut Vec<usize>) {
        let shared = self.shared;
        let workers = shared.workers.load();
        let Some(peer) = workers.get(index) else {
            return;
        };
        let core = peer.owner();
        let looks = &core.watchdog.looks;
        let follows = looks.follower.get() == Some(self.core.index)
            && core.is_still_at_job()
            && !shared.clock.was_paused();
        if !follows {
            self.core.reactor.unfollow(&core.reactor);
            looks.follower.leave(self.core.index);
            return;
        }
        let before = self.wakers.len();
        self.take_events(peer);
        if self.peer_events.is_full() {
            // The kernel does not call again for events that are left. To ask anew makes it look.
            self.ask_to_be_called(core);
        }
        self.note_rescue(core, 0, self.wakers.len() - before);
        let events = self.peer_events.iter();
        alarms.extend(events.filter_map(|event| alarm_of(event.token())));
    }

    /// Takes the work that a stuck worker cannot get to: timers, sockets, clocks, and the next
    /// task.
    fn rescue(&mut self, peer: &WorkerShard) {
        let core = peer.owner();
        let held = (self.due.len(), self.wakers.len());
        let came = self.shared.clock.now();
        // 1. Timers.
        let mut rounds = 0;
        while rounds < RESCUE_ROUNDS {
            let (now, _) = self.moment_of_taking(self.shared.clock.now(), peer.soonest());
            let first = self.due.len();
            let expired = peer.expire(now, DUE_MOST, &mut self.due);
            self.note_rescued(first, now);
            self.note_taken_from(core, first, now, came);
            if !expired.more {
                break;
            }
            // Timers that were moved come up once each, so rounds that find nothing else need no
            // bound. Those that are due may be behind them.
            rounds += usize::from(!expired.moved || expired.count > 0);
        }
        // Mates may rely on this worker for theirs, and where looks are rare, they go on to do so.
        self.take_from_mates_of(core, DUE_MOST, Some(came));
        // 2. Sockets and clocks.
        self.take_events(peer);
        // 3. The task in the LIFO slot. Only a rescue may take it.
        let next = core.steal_next();
        let timers = self.due.len() - held.0;
        let tasks = self.wakers.len() - held.1 + usize::from(next.is_some());
        if let Some(next) = next {
            self.local.deque.push(Job::Task(next));
        }
        if !core.stealer.is_empty() {
            // 4. The rest of its deque. It may be that no peer was woken for it, and this worker
            //    need not come to steal.
            self.shared.wake_one();
        }
        self.note_rescue(core, timers, tasks);
        // 5. Set the alarm again, before any of the work runs: this worker may be the next to get
        //    stuck.
        self.watch_on(peer);
    }

    /// Takes the events of another worker: of its sockets, and of clocks. They may include the
    /// worker's own wake-up: if it sleeps, send that again.
    fn take_events(&mut self, peer: &WorkerShard) {
        let core = peer.owner();
        self.core.recorder.own.epoll_waits.add_alone(1);
        // A worker that is awake is not woken: that would be an event, which would call this thread
        // again if it follows the worker.
        if core.reactor.take(&mut self.peer_events) && peer.parker().misses_wake() {
            core.wake_again();
        }
        let _ready = core.reactor.dispatch(&self.peer_events, &mut self.wakers);
        #[cfg(all(feature = "facade", tokio_unstable))]
        self.shared.unstable.ready.add(_ready);
        self.serve_clocks(&self.peer_events);
    }

    /// Counts and traces what was taken from a worker.
    fn note_rescue(&mut self, core: &Core, timers: usize, tasks: usize) {
        let recorder = &self.core.recorder;
        recorder.rescued(timers as u64, tasks as u64, core.index);
        probe!(rescue, self.core.index, core.index, timers, tasks);
        #[cfg(feature = "tracing")]
        if timers + tasks > 0 {
            let from = core.index;
            self.rescues.push(crate::engine::telemetry::trace::Rescue {
                from,
                timers,
                tasks,
            });
        }
    }

    /// Sets the alarm of `peer` again, which this worker has taken.
    fn watch_on(&self, peer: &WorkerShard) {
        let now = self.shared.clock.now();
        match self.crowded_around(peer) {
            None => {
                if peer.watch_on(now) {
                    self.shared.wake_left(peer.owner().index);
                }
            }
            // Most workers that do not return are waiting for a core, and each look takes one away.
            Some(rarer) => _ = peer.watch_on_rarely(now, rarer),
        }
    }
}

impl Core {
    /// Returns whether the worker is at the job that it was at when it was last checked, or is in
    /// `block_in_place`.
    fn is_still_at_job(&self) -> bool {
        let last = self.watchdog.looks.last_seen.load(Ordering::Relaxed);
        self.watchdog.watch.number() == Some(last) || self.watchdog.is_in_place()
    }

    /// Returns whether the worker is in the job of this number.
    pub(crate) fn is_at(&self, job: u64) -> bool {
        let watch = &self.watchdog.watch;
        watch.begun() == job && (watch.number() == Some(job) || self.watchdog.is_in_place())
    }

    /// Returns whether the worker is at the same job as at the last call, or is in
    /// `block_in_place`, which announces that it will block.
    fn is_at_same_job(&self) -> bool {
        let job = self.watchdog.watch.begun();
        let last = self.watchdog.looks.last_seen.swap(job, Ordering::Relaxed);
        last == job || self.watchdog.is_in_place()
    }
}

#[cfg(test)]
mod tests {
    use crossbeam::deque;
    use tourbillon_shards::TypeName;
    use tourbillon_support::eventually;

    use super::*;
    use crate::{
        engine::{core::Role, local::Local},
        runtime::Builder,
    };

    /// Looks twice at a worker, and returns which thread follows it then. The worker has no thread,
    /// so it stays at `job`, or in its loop.
    fn follower_of_a_worker_at(job: Option<u64>) -> Option<usize> {
        let runtime = Builder::new().worker_threads(2).build().unwrap();
        let shared = runtime.handle().shared();
        let worker = |index| {
            let deque = deque::Worker::new_fifo();
            let core = Core::new(index, shared.clone(), deque.stealer(), Role::Worker);
            Local::new(Arc::new(watched(core.unwrap(), 2)), deque)
        };
        let (own, other) = (worker(0), worker(1));
        let mut own = Worker::new(&own, shared);
        let peer = &other.shard;
        if let Some(job) = job {
            let name = const { TypeName::of::<()>() };
            peer.owner().watchdog.watch.begin(job, name, None);
        }
        let looks = (0..2).map(|_| own.rescue_if_stuck(peer, 1));
        assert_eq!(looks.collect::<Vec<_>>(), [true, true]);
        peer.owner().watchdog.looks.follower.get()
    }

    #[test]
    fn a_worker_that_stays_at_a_job_is_followed() {
        assert_eq!(follower_of_a_worker_at(Some(7)), Some(0));
    }

    #[test]
    fn a_worker_that_waits_for_a_core_in_its_loop_is_not_followed() {
        assert_eq!(follower_of_a_worker_at(None), None);
    }

    /// Those that do not take part do not wait for a core.
    #[test]
    fn retired_workers_that_sleep_do_not_crowd_the_others() {
        // More than may look at once, however many cores there are.
        let workers = 4 * std::thread::available_parallelism().unwrap().get() + 24;
        let runtime = Builder::new().worker_threads(workers).build().unwrap();
        let shared = runtime.handle().shared();
        let is_crowded = |active| {
            runtime.handle().set_workers(active).unwrap();
            let all_sleep = || {
                let asleep = shared.queues.searchers.parked();
                asleep == active && shared.retired_asleep() == workers - active
            };
            eventually("all workers sleep", all_sleep);
            let deque = deque::Worker::new_fifo();
            let core = Core::new(0, shared.clone(), deque.stealer(), Role::Worker);
            let own = Local::new(Arc::new(watched(core.unwrap(), 2)), deque);
            let peers = shared.workers.load();
            Worker::new(&own, shared)
                .crowded_around(&peers[1])
                .is_some()
        };
        // An alarm may wake worker 1 in between.
        eventually("many are crowded", || is_crowded(workers));
        eventually("two are not", || !is_crowded(2));
    }
}
