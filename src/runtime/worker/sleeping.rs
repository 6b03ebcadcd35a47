//! How a worker waits when it has nothing to do: asleep, or awake if that is not worth it.

use tourbillon_shards::NEVER;

use super::Worker;
use crate::{
    runtime::{advance::Timed, stall::InLoop},
    sys::epoll::Timeout,
};

impl Worker<'_> {
    /// Whether the next deadline is so near that the worker is not to sleep before it: by `spin_before`,
    /// because the sleep would take more processor time than is left, or because a sleep has just ended for it. Or one of a
    /// worker that is stuck.
    pub(in crate::runtime) fn is_near(&self) -> bool {
        let next = self.local.shard.next_deadline();
        let waits = self.waits_for_others();
        if (next == NEVER && !waits) || self.shared.clock.was_paused() {
            return false;
        }
        if waits || next <= self.awake_for {
            return true;
        }
        let spin = self.shared.config.spin_before.max(self.sleep_cost.ns());
        spin > 0 && next <= self.shared.clock.now().saturating_add(spin)
    }

    /// Looks once at all that would wake the worker if it slept; it searches after each such look.
    pub(super) fn spin(&mut self) {
        if self.search.is_on {
            self.found();
        }
        self.sleep_cost.looks();
        self.was_away();
        self.look_at_sockets();
        std::hint::spin_loop();
    }

    /// Sleeps until the next deadline, an event, or a wake-up.
    pub(super) fn park(&mut self) {
        if self.tick != self.looked {
            self.was_away();
        }
        (self.looked, self.taken) = (self.tick, 0);
        let (core, shared, events) = (self.core, self.shared, &self.events);
        let (wakers, rest, shard) = (&mut self.wakers, &self.rest, &self.local.shard);
        let (cost, awake_since) = (&mut self.sleep_cost, self.in_loop.at);
        let (advance, tidy, mut timed) = (&self.advance, &mut self.tidy, None);
        events.borrow_mut().clear();
        let parked = shard.park(
            &shared.searchers,
            self.search.is_on,
            || shared.is_stopping() || core.pinned.has_work() || shared.has_work(),
            |until| {
                core.recorder.own.parks.add_alone(1);
                rest.begin(shard, until);
                let real = shared.clock.real();
                core.was_busy(awake_since, real);
                // Behind the announcement: a thread that frees memory after this wakes a worker.
                let tidies_at = tidy.next(real);
                let timeout =
                    if shared.clock.was_paused() && shared.quiescence.sleep(core, until, wakers) {
                        Timeout::Zero
                    } else if tidies_at < until && !shared.clock.was_paused() {
                        let (deadline, left) = shared.clock.until(tidies_at, real);
                        Timeout::Until { deadline, left }
                    } else if until == NEVER {
                        Timeout::None
                    } else {
                        let mut early = shared.config.spin_before;
                        // What a clock shows that was paused is to depend on nothing but the program; and what may be
                        // late need not be in time.
                        if !shared.clock.was_paused() && shard.soonest() == until {
                            let learned = advance.of(until.saturating_sub(real));
                            core.recorder.advance.set_alone(learned);
                            early = early.max(learned);
                            timed = Some((Timed::new(real, until, early), until));
                        }
                        let awake = until.saturating_sub(early);
                        let (deadline, left) = shared.clock.until(awake, real);
                        Timeout::Until { deadline, left }
                    };
                let sleep = || core.wait(&mut events.borrow_mut(), timeout);
                match timeout {
                    Timeout::Until { left, .. } => cost.measure(left, sleep),
                    _ => sleep(),
                }
            },
        );
        self.search.is_on = parked.searching;
        self.search.denied = if parked.slept || parked.searching {
            0
        } else {
            self.search.denied.saturating_add(1)
        };
        let now = self.shared.clock.real();
        if let Some((sleep, until)) = timed {
            // By its timeout, and not by an event, nor by a signal.
            if sleep.is_over(now) && events.borrow().iter().next().is_none() {
                self.advance.woken(sleep, now);
                self.awake_for = until;
                if now < until {
                    core.recorder.own.early_wakes.add_alone(1);
                }
            }
        }
        self.in_loop = InLoop::at(now, self.tick);
        if parked.slept {
            self.search.begin_anew();
            self.rest.end(shard, self.shared.clock.present(now));
        } else {
            core.was_busy(awake_since, now);
        }
        self.beat(now);
        self.harvest(parked.slept);
        let nothing = self.due.is_empty() && self.wakers.is_empty() && self.stalls.is_empty();
        if self.search.is_on && !nothing {
            // Wakers and hooks are foreign, and while we count as a searcher, nobody is woken.
            self.found();
        }
        core.shared.stand_by();
        self.fire_due();
        self.take_up();
    }
}
