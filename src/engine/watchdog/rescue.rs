//! Help for a worker that does not come back: the peer that is called by its alarm does what it should
//! have done.
//!
//! While a worker is awake, its alarm, a timerfd, is set to 4 ms from when it was last in its loop; it
//! pushes that further as it comes by: see `shards/src/watch.rs`. All its peers wait for the alarm,
//! *exclusively*: the kernel wakes one of those that sleep. If none does, it stands in the instances of all
//! of them, and who looks at its sockets first finds it. Who looks after a worker sets its alarm to the
//! next deadline, too, and a grace.
//!
//! Who is called takes what is due out of the other's shard, its inbox included; the events out of its
//! epoll instance; and the task out of its LIFO slot. What is in its deque can be stolen anyhow. It sets
//! the alarm again before it runs any of that: should it be the next to be stuck, there is somebody to
//! be called for the both of them.

use std::{io, sync::Arc};

use tourbillon_shards::{Coming, Shard};

use crate::{
    engine::{
        core::{Core, WorkerShard},
        job::Job,
        watchdog::report,
        worker::{DUE_MOST, Worker},
    },
    reactor::alarm_of,
    sys::sync::atomic::Ordering,
};

/// So many peers wait for the alarm of a worker; on a larger machine, those that come after it.
const PEERS: usize = 64;
/// How often at most as many timers as [`DUE_MOST`] are taken from a worker that is stuck, at one look.
const RESCUE_ROUNDS: usize = 4;
/// How many timers are taken from a worker at one look at most. There is room for them from the beginning: who comes in place
/// of another does not wait for memory, of which more than 1,024 bytes may take glibc tens of ms where very many tasks
/// have just been freed.
pub(crate) const RESCUED: usize = RESCUE_ROUNDS * DUE_MOST;

/// How many alarms a worker answers at most before it runs what it has rescued. A simulated runtime
/// has few workers, and is to exceed it now and then.
const ANSWERS: usize = if cfg!(tourbillon_sim) { 2 } else { 8 };

/// The shard of a worker, one of so many.
pub(crate) fn watched(core: Core, workers: usize) -> Shard<Core> {
    let config = &core.shared.config;
    let grace = config
        .rescue_grace
        .as_nanos()
        .try_into()
        .unwrap_or(u64::MAX);
    let store = config.timer_store;
    let shard = if config.is_watched(workers) {
        Shard::watched(core, grace)
    } else {
        Shard::watched_when_called(core, grace)
    };
    shard.with_store(store)
}

/// Has the workers wait for each other's alarms.
pub(crate) fn watch_each_other(workers: &[Arc<WorkerShard>]) -> io::Result<()> {
    for (index, worker) in workers.iter().enumerate() {
        let peers = (1..workers.len()).map(|i| &workers[(index + i) % workers.len()]);
        for peer in peers.take(PEERS) {
            peer.owner().answer_for(worker.owner())?;
        }
    }
    Ok(())
}

/// A worker that returns to its loop within this time, in ns,
const OFTEN: u64 = 800_000;
/// and that so many times in a row, leaves its alarm as it is when it goes to sleep.
const TIMES: u32 = 16;

/// Decides whether a worker that goes to sleep sets its alarm.
///
/// A worker that returns often does not: it will be back before the alarm goes off. If it is not, a
/// peer is woken for nothing, once.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// When the worker last returned from a sleep, in ns.
    last: u64,
    /// How many times in a row it returned soon after the time before.
    often: u32,
}

impl Rest {
    /// Sets the alarm of a worker that goes to sleep until `until`, in ns, unless it returns often.
    pub(crate) fn begin(&self, shard: &WorkerShard, until: u64) {
        if self.often < TIMES {
            shard.rest(until);
        }
    }

    /// Records that the worker returns from a sleep at `now`, in ns.
    pub(crate) fn end(&mut self, now: u64) {
        let since = now.saturating_sub(std::mem::replace(&mut self.last, now));
        self.often = if since < OFTEN {
            self.often.saturating_add(1)
        } else {
            0
        };
    }
}

/// A timer of a worker that is stuck, for which another waits awake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// Whose it is.
    index: usize,
    /// When it may be taken, in ns.
    at: u64,
    /// What the alarm is set to, which calls somebody if nobody has come by then.
    alarm: u64,
}

impl Worker<'_> {
    /// The worker is awake, and well, by the real clock.
    pub(crate) fn beat(&mut self, real: u64) {
        self.local.shard.beat(self.shared.clock.present(real));
    }

    /// Reports who was found to be stuck for too long, which may run a foreign hook.
    pub(crate) fn report_stalls(&mut self) {
        while let Some((index, stall)) = self.stalls.pop() {
            if let Some(peer) = self.shared.workers.load().get(index) {
                report::report(peer.owner(), &stall);
            }
        }
    }

    /// Comes to the aid of those whose alarms are among the events: takes into its hands what they should
    /// have done. `slept`: the events ended its sleep.
    pub(crate) fn answer_alarms(&mut self, slept: bool) {
        let mut called = std::mem::take(&mut self.called);
        let events = self.events.get_mut().iter();
        called.extend(events.filter_map(|event| alarm_of(event.token())));
        if !called.is_empty() || self.next_awaited().is_some() {
            self.answer_some(&mut called, slept);
            self.put_off(&mut called);
        }
        self.called = called;
    }

    /// Answers alarms, and no more than [`ANSWERS`]: what this worker rescues brings others, whose
    /// alarms stood in the same instances, and they could keep it from all that it has rescued.
    fn answer_some(&mut self, called: &mut Vec<usize>, slept: bool) {
        let shared = self.shared;
        let Some(_rescuing) = shared.rescuers.enter() else {
            // Their alarms are set, and call somebody if this worker does not wait.
            self.awaited.clear();
            return;
        };
        for _ in 0..ANSWERS {
            // A runtime that stops needs no rescues: its workers end together what any of them has.
            if shared.is_stopping() {
                return;
            }
            let rescued = if let Some(index) = called.pop() {
                self.answer(index, slept)
            } else if let Some(at) = self.next_awaited() {
                let awaited = self.awaited.swap_remove(at);
                self.answer_awaited(awaited)
            } else {
                return;
            };
            if rescued {
                // Alarms that stood in its instance.
                let events = self.others_events.iter();
                called.extend(events.filter_map(|event| alarm_of(event.token())));
            }
        }
    }

    /// Leaves to the kernel the alarms that it does not answer: they go off again. It must not keep
    /// them in mind instead, since it may be stuck in what it runs next.
    fn put_off(&mut self, called: &mut Vec<usize>) {
        let shared = self.shared;
        if called.is_empty() || shared.is_stopping() {
            called.clear();
            return;
        }
        let crowded = self.crowded();
        let workers = shared.workers.load();
        let peers = called.drain(..).filter_map(|index| workers.get(index));
        for (place, peer) in peers.enumerate() {
            // Without a crowd as soon as can be: there are fewer alarms to answer then. In a crowd as
            // rare as looks are, and one after another: of alarms that go off together the same few
            // would be answered each time.
            let looks =
                crowded.map_or(0, |rarer| rarer.saturating_add(shared.rescuers.turn(place)));
            if peer.put_off(shared.clock.now(), looks) {
                self.core.recorder.own.alarms.add_alone(1);
            }
        }
    }

    /// How many times rarer than usual each worker is to be looked at; none if as often as usual.
    fn crowded(&self) -> Option<u32> {
        let shared = self.shared;
        let rarer = shared.rescuers.rarer(shared.awake());
        (rarer > 1).then_some(rarer)
    }

    /// Whether it waits awake for what another's worker has.
    #[inline]
    pub(crate) fn waits_for_others(&self) -> bool {
        !self.awaited.is_empty()
    }

    /// The position of an awaited timer for which it is time.
    #[inline]
    fn next_awaited(&mut self) -> Option<usize> {
        if self.awaited.is_empty() {
            return None;
        }
        if self.shared.clock.was_paused() {
            // Nobody waits awake on such a clock.
            self.awaited.clear();
        }
        let now = self.shared.clock.now();
        self.awaited.iter().position(|it| it.at <= now)
    }

    /// How long it takes until it comes when it is called.
    fn comes(&self) -> Coming {
        Coming {
            after: self.called_late.ns(),
            waits: self.shared.config.timer_advance,
        }
    }

    /// What it has waited for awake is there to be taken; true if that worker was rescued.
    #[cold]
    fn answer_awaited(&mut self, awaited: Awaited) -> bool {
        let (shared, index) = (self.shared, awaited.index);
        let workers = shared.workers.load();
        let Some(peer) = workers.get(index) else {
            return false;
        };
        peer.take_alarm_at(awaited.alarm)
            && (peer.parker().is_awake() || peer.is_late(shared.clock.now()))
            && self.look_after(peer, index, false)
    }

    /// Answers the alarm of a worker; true if that was rescued.
    #[cold]
    fn answer(&mut self, index: usize, slept: bool) -> bool {
        let shared = self.shared;
        let workers = shared.workers.load();
        let Some(peer) = workers.get(index) else {
            return false;
        };
        let (at, now) = (peer.alarm(), shared.clock.now());
        if !peer.take_alarm(now) || shared.clock.is_paused() {
            return false;
        }
        if slept {
            self.called_late.note(now.saturating_sub(at));
        }
        if index == self.core.index {
            // It stood in another's instance, and we are well.
            peer.beat(now);
            return false;
        }
        let counters = &self.core.recorder.own;
        counters.alarms.add_alone(1);
        if !peer.parker().is_awake() && !peer.is_late(now) {
            counters.false_alarms.add_alone(1);
            return false;
        }
        self.look_after(peer, index, slept)
    }

    /// Sees to a worker that has not come by, and whose alarm this one has taken; true if it was rescued. `waits`: it
    /// may wait awake for what is due in a moment.
    fn look_after(&mut self, peer: &WorkerShard, index: usize, waits: bool) -> bool {
        let (shared, core) = (self.shared, peer.owner());
        if let Some(stall) = report::look(core, shared.clock.real()) {
            self.stalls.push((index, stall));
        }
        let stuck = core.stays();
        self.found_stuck |= stuck;
        if self.core.is_helper && !stuck {
            // It is busy and well, or was not looked at before. Which of the two, the next look shows.
            match self.crowded() {
                None => peer.watch_on(shared.clock.now(), 0),
                Some(rarer) => peer.watch_on_rarely(shared.clock.now(), rarer),
            };
            return false;
        }
        let now = self.rescue(peer, stuck);
        if waits && let Some((at, alarm)) = peer.awaited(now, self.comes()) {
            self.core.recorder.own.early_wakes.add_alone(1);
            self.awaited.push(Awaited { index, at, alarm });
        }
        true
    }

    /// Takes what a worker that did not come back should have seen to: timers, sockets, and who is next. Answers when it
    /// was through.
    fn rescue(&mut self, peer: &WorkerShard, stuck: bool) -> u64 {
        let core = peer.owner();
        let held = (self.due.len(), self.wakers.len());
        let all = core.watchdog.is_in_place();
        // Also if that is nothing: by the lock of the shard, who arms a timer there comes before or after this.
        for _ in 0..RESCUE_ROUNDS {
            let now = self.shared.clock.now();
            let until = if all { now } else { peer.overdue(now) };
            let first = self.due.len();
            let expired = peer.expire_until(until, now, DUE_MOST, &mut self.due);
            self.note_rescued(first, now);
            if !expired.more {
                break;
            }
        }
        self.core.recorder.own.epoll_waits.add_alone(1);
        if core.reactor.take(&mut self.others_events) {
            core.wake_again();
        }
        core.reactor.dispatch(&self.others_events, &mut self.wakers);
        self.serve_clocks(&self.others_events);
        let next = core.steal_next();
        let timers = self.due.len() - held.0;
        let tasks = self.wakers.len() - held.1 + usize::from(next.is_some());
        if let Some(next) = next {
            self.local.deque.push(Job::Task(next));
        }
        if !core.stealer.is_empty() {
            // Nobody may have been woken for what it has queued, and this worker need not come to steal.
            self.shared.wake_one();
        }
        let recorder = &self.core.recorder;
        recorder.rescued(timers as u64, tasks as u64, core.index);
        #[cfg(feature = "tracing")]
        if timers + tasks > 0 {
            let from = core.index;
            self.rescues.push(crate::engine::telemetry::trace::Rescue {
                from,
                timers,
                tasks,
            });
        }
        let reach = core
            .watchdog
            .looks
            .patience
            .after(timers + tasks > 0 || !stuck);
        let now = self.shared.clock.now();
        match self.crowded() {
            None => peer.watch_on_sooner(now, reach, self.comes()),
            // Most workers that do not come by wait for a core, which each look takes from them.
            Some(rarer) => peer.watch_on_rarely(now, reach.saturating_mul(rarer)),
        };
        now
    }
}

impl Core {
    /// Whether the worker is at the same job as when this was last asked, or has said that it will be.
    fn stays(&self) -> bool {
        let job = self.watchdog.watch.begun();
        let last = self.watchdog.looks.last_seen.swap(job, Ordering::Relaxed);
        last == job || self.watchdog.is_in_place()
    }
}
