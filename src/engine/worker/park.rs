//! How a worker waits when it has nothing to do: it spins or sleeps, as its wait policy says.

use tourbillon_shards::NEVER;

use crate::{
    engine::{
        config::Hook,
        paused::quiescence::Passed,
        watchdog::seen::InLoop,
        worker::{
            Worker,
            retire::Duty,
            wait_policy::{Sleep, Wait},
        },
    },
    sys::{epoll::Timeout, sync::atomic::Ordering},
    util::probe::probe,
};

/// How long a worker sleeps at most while the system refuses a timerfd to a clock, in ns.
const RETRY: u64 = 1_000_000;

impl Worker<'_> {
    /// Decides until when the worker defers its wake-ups. Returns whether it spins, by its wait
    /// policy, because its next wake-up is near.
    pub(crate) fn is_near(&mut self) -> bool {
        // On a clock that was ever paused no worker spins: a paused one moves only when all of them
        // sleep.
        let (shard, was_paused) = (&self.local.shard, self.shared.clock.was_paused());
        let workers = self.shared.mates_table();
        let mate = self.shared.mate(shard, workers.as_deref());
        shard.defer(match was_paused {
            true => 0,
            false => self.wait_policy.defers_until(mate.next_deadline()),
        });
        let next = mate.next_wake();
        if next == NEVER || was_paused {
            return false;
        }
        // The worker has just read the clock, to fire what is due. If the deadline came near since
        // then, the worker notices when it is about to sleep.
        let spins = self.wait_policy.spins(next, || self.fired_at);
        if spins {
            self.wait_policy.spins_for(next);
        }
        spins
    }

    /// Polls once all that would wake the worker if it slept. The worker searches after each such
    /// poll.
    pub(crate) fn spin(&mut self) {
        // While a worker counts as a searcher no other one is woken for new work. This one waits
        // for its deadline.
        if self.search.is_on {
            self.found();
        }
        let last = self.in_loop.at;
        self.back_in_loop();
        let now = self.in_loop.at;
        self.wait_policy.spun(now, now.saturating_sub(last));
        self.look_at_sockets();
        std::hint::spin_loop();
    }

    /// Sleeps until the next deadline, an event, or a wake-up, between the user's two hooks.
    pub(crate) fn park(&mut self) {
        let config = &self.shared.config;
        self.call(config.on_thread_park.as_ref());
        // The hook may have woken a task that no peer can take.
        if config.on_thread_park.is_none() || !self.local.has_jobs() {
            self.sleep();
        }
        self.call(config.on_thread_unpark.as_ref());
    }

    /// Calls a hook, if there is one. It is user code, and may panic.
    #[inline]
    fn call(&self, hook: Option<&Hook>) {
        if let Some(hook) = hook {
            self.core.contain(|| hook());
        }
    }

    /// Sleeps until the next deadline, an event, or a wake-up.
    fn sleep(&mut self) {
        // If no job has run since the last poll, the time since then was noted there.
        if self.tick != self.last_poll {
            self.back_in_loop();
        }
        (self.last_poll, self.timers_since_poll) = (self.tick, 0);
        // 1. Announce the sleep, and look once more at all that could have arrived.
        //    `Searchers::sleep` does both, in the order that `crates/sched/PROTOCOLS.md` proves. It
        //    calls the second closure if there is nothing to do.
        let (core, shared, events) = (self.core, self.shared, &self.events);
        let (wakers, rest, shard) = (&mut self.wakers, &mut self.rest, &self.local.shard);
        let (policy, awake_since) = (&mut self.wait_policy, self.in_loop.at);
        let (tidy, root, mut timed) = (&mut self.tidy, &self.root, None);
        let (notes, local) = (&mut self.notes, self.local);
        // Before the announcement. If the reactor is closed, a thread that claims the announced
        // word may write nothing that would end a sleep.
        let is_open = core.reactor.is_open();
        // If the worker does not sleep after all, it must not take up the events of an earlier
        // wait.
        events.borrow_mut().clear();
        let workers = shared.mates_table();
        let mate = shared.mate(shard, workers.as_deref());
        let duty = self.duty;
        let work = || {
            shared.is_stopping()
                || root.as_ref().is_some_and(|root| root.is_woken())
                || core.pinned.has_work()
                || shared.clocks.are_called()
                || match duty {
                    Duty::Active => shared.retires(core) || shared.has_work(),
                    Duty::StandsIn { .. } => shared.has_work(),
                    Duty::Retired => !shared.retires(core) || local.has_jobs(),
                }
        };
        let sleep = |until| {
            core.recorder.own.parks.add_alone(1);
            #[cfg(all(feature = "facade", tokio_unstable))]
            {
                let own = &core.recorder.own;
                let jobs = own.polls.get() + own.callbacks.get();
                core.recorder.unstable.sleeps(jobs);
            }
            probe!(park, core.index, until);
            let real = shared.clock.real();
            core.was_busy(awake_since, real);
            notes.parks(core, real, until);
            // After the announcement: a thread that frees memory later than this wakes a
            // worker.
            let tidies_at = tidy.next(real);
            // 2. Choose the timeout.
            let passed = match shared.clock.was_paused() {
                true => shared.quiescence.sleep(shard, until, is_open, wakers),
                false => Passed::Not,
            };
            // The worker itself has advanced the clock: it need not ask for events.
            if passed == Passed::Awake {
                return;
            }
            if passed == Passed::Not && !is_open {
                core.reactor.open_or_nap();
                return;
            }
            // Whether the budget does not pay for the wake-up at the next deadline.
            let defers = mate.next_deadline() < until
                && (until <= shard.deferred() || mate.leans())
                && !shared.clock.was_paused();
            if defers && mate.leans() {
                // A mate that wakes up for this worker may defer that further, and notes it.
                core.recorder.own.deferred_wakes.add_alone(1);
                core.deferred_to.store(shard.deferred(), Ordering::Relaxed);
            }
            let timeout =
                // On a paused clock, the worker has slept already, and now polls.
                if passed == Passed::Slept {
                    Timeout::Zero
                // A clock has no timerfd that would end the sleep.
                } else if shared.clocks.are_refused() {
                    let soon = shared.clock.present(real).saturating_add(RETRY);
                    let (deadline, left) = shared.clock.until(until.min(soon), real);
                    Timeout::Until { deadline, left }
                // Wake up earlier, to return unused memory.
                } else if tidies_at < until && !shared.clock.was_paused() {
                    let (deadline, left) = shared.clock.until(tidies_at, real);
                    Timeout::Until { deadline, left }
                } else if until == NEVER {
                    Timeout::None
                } else if defers && until == shard.deferred() {
                    core.recorder.own.deferred_wakes.add_alone(1);
                    shared.note_deferred(core, until);
                    timed = Some(Sleep::new(real, until, until));
                    let (deadline, left) = shared.clock.until(until, real);
                    Timeout::Until { deadline, left }
                // If the worker defers a wake-up, it wakes up for a timer that may be strict. If
                // it wakes up for a mate, it defers that no longer.
                } else if shared.clock.was_paused()
                    || !defers && shard.next_deadline() == until && shard.soonest() != until
                {
                    // Neither compensate nor learn. On a clock that was ever paused, all must
                    // depend on the program alone. A timer with a tolerance need not be exact.
                    let early = match shared.clock.was_paused() {
                        true => 0,
                        false => policy.spin_before(),
                    };
                    let wake = until.saturating_sub(early);
                    let (deadline, left) = shared.clock.until(wake, real);
                    Timeout::Until { deadline, left }
                } else {
                    let compensation = policy.compensation(until, real);
                    core.recorder.advance.set_alone(compensation);
                    match policy.decide(until, real) {
                        // The deadline became near while the worker announced its sleep.
                        Wait::Spin => Timeout::Zero,
                        Wait::Sleep { until: wake } => {
                            timed = Some(Sleep::new(real, until, wake));
                            let (deadline, left) = shared.clock.until(wake, real);
                            Timeout::Until { deadline, left }
                        }
                    }
                };
            // 3. Set the timerfd, then the alarm, then wait. Peers must notice by the alarm if
            //    this worker does not return from its sleep in time.
            let mut sleep = || {
                let prepared = core.prepare(timeout);
                rest.begin(shard, until);
                core.wait(&mut events.borrow_mut(), prepared);
            };
            match timeout {
                Timeout::Until { left, .. } => policy.measure(left, sleep),
                _ => sleep(),
            }
        };
        let searchers = &shared.queues.searchers;
        // A retired worker is no searcher: it has left that count where it ran its pinned tasks.
        let parked = match duty == Duty::Retired {
            false => searchers.sleep(&mate, self.search.is_on, work, sleep),
            true => searchers.sleep_in_reserve(&mate, work, sleep),
        };
        // 4. The sleep is over, or there was something to do. `denied` counts how often the latter
        //    happened in a row without a search.
        self.search.is_on = parked.searching;
        if parked.slept {
            core.recorder.unparks.add_alone(1);
        }
        self.search.denied = if parked.slept || parked.searching {
            0
        } else {
            self.search.denied.saturating_add(1)
        };
        let now = self.shared.clock.real();
        // The policy learns only from sleeps that their timeouts ended: no event, no signal.
        let by_timeout =
            |sleep: &Sleep| sleep.is_over(now) && events.borrow().iter().next().is_none();
        if let Some(sleep) = timed.filter(by_timeout) {
            if self.wait_policy.timed_out(sleep, now) {
                core.recorder.own.early_wakes.add_alone(1);
            }
        }
        self.in_loop = InLoop::at(now, self.tick);
        self.looked = self.in_loop;
        self.shared.clock.note_look(now);
        // 5. After a sleep the worker begins a new search, and the alarm learns how often it
        //    returns.
        if parked.slept {
            self.note_woken(now);
            self.search.reset();
            self.rest.end(self.shared.clock.present(now));
        } else {
            core.was_busy(awake_since, now);
        }
        // 6. Put off the own alarm, then take over what the events announce. Fire and wake last,
        //    since these may run user code.
        self.beat(now);
        self.harvest();
        let nothing = self.due.is_empty() && self.wakers.is_empty() && self.stalls.is_empty();
        if self.search.is_on && !nothing {
            // Leave the search first: wakers and hooks are user code that may take long, and while
            // this worker counts as a searcher, no other worker is woken.
            self.found();
        }
        core.shared.ensure_reserve();
        self.fire_due();
        self.take_up();
    }
}
