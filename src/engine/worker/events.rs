//! How a worker takes up what epoll announces: ready sockets, alarms of peers, and clocks.

#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    engine::{
        clocks,
        worker::{Worker, wake_all},
    },
    reactor::CLOCK_TOKENS,
    sys::epoll::{Event, Events, Timeout},
};

impl Worker<'_> {
    /// Polls the sockets, the alarms and the clocks, without waiting.
    pub(super) fn look_at_sockets(&mut self) {
        self.looked = self.in_loop;
        // The heartbeat puts off this worker's alarm: no peer need come.
        self.beat(self.in_loop.at);
        let prepared = self.core.prepare(Timeout::Zero);
        self.core.wait(self.events.get_mut(), prepared);
        self.harvest();
        self.take_up();
        self.keep_what_happened();
    }

    /// Queues what is due on each other clock whose timerfd is readable, or that was called.
    pub(crate) fn serve_clocks(&self, events: &Events) {
        let called = self.shared.clocks.take_call();
        let mut tokens = events.iter().map(Event::token);
        if !called && !tokens.any(|token| CLOCK_TOKENS.contains(&token)) {
            return;
        }
        // Each timerfd wakes one worker, which serves the whole clock. A call does not say which
        // clock is meant.
        for (clock, token) in self.shared.clocks.all().iter().zip(CLOCK_TOKENS) {
            if !called && !events.iter().any(|event| event.token() == token) {
                continue;
            }
            let due = clocks::serve(clock, &self.core.recorder.late.wake);
            self.local.batch(|| {
                for job in due {
                    self.local.queue(job);
                }
            });
        }
    }

    /// Queues timers and wakes tasks that were taken, and reports stalls. Wakers and hooks are user
    /// code.
    pub(crate) fn take_up(&mut self) {
        self.queue_due();
        self.wake_tasks();
        // Last, because the hook is user code: if it blocks, peers can steal what was queued
        // before.
        self.report_stalls();
        #[cfg(feature = "tracing")]
        {
            trace::running(self.core, self.shared);
            while let Some(rescue) = self.rescues.pop() {
                trace::rescue(self.core, rescue);
            }
        }
    }

    /// Takes over the work that the events announce: alarms, clocks, sockets. It runs no user code:
    /// while this worker holds an alarm or a clock, no other thread serves that alarm or clock.
    pub(crate) fn harvest(&mut self) {
        // Alarms first: the timers of a stuck worker have the tightest bound.
        self.answer_alarms();
        self.serve_clocks(&self.events.borrow());
        let _ready = (self.core.reactor).dispatch(self.events.get_mut(), &mut self.wakers);
        #[cfg(all(feature = "facade", tokio_unstable))]
        self.shared.unstable.ready.add(_ready);
    }

    /// Wakes the tasks whose sockets are ready.
    fn wake_tasks(&mut self) {
        // One batch for all, so that at most one peer is woken.
        if !self.wakers.is_empty() {
            let (core, wakers) = (self.core, &mut self.wakers);
            self.local.batch(|| wake_all(core, wakers));
        }
    }
}
