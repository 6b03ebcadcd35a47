//! How a worker runs a job: a task, the callback of a timer, or the delivery of an outcome.

use std::{any::Any, panic::Location};

use tourbillon_shards::{Due, NEVER, Ran, TypeName};

#[cfg(feature = "facade")]
use crate::engine::facade::HookedPoll;
#[cfg(feature = "tracing")]
use crate::engine::telemetry::trace;
use crate::{
    engine::{
        core::Core,
        job::{Job, TaskJob},
        telemetry::lateness,
        worker::Worker,
    },
    metrics::spawned::Spawned,
    util::budget,
};

impl Worker<'_> {
    /// Runs `job`, published to the watchdog by its number and name.
    pub(super) fn execute(&mut self, job: Job) {
        self.count_job();
        if self.search.is_on {
            // Leave the search before the job, which may take long: while this worker counts as a
            // searcher, no other worker is woken for new work.
            self.found();
        }
        match job {
            Job::Task(task) => {
                // The watchdog reads number, name and place from here if the task takes too long.
                let name = TypeName::from_fn(task.name());
                let spawned = task.metadata().spawned();
                // Before the job is published: its time begins here, and that of others ends.
                if self.core.track.looks_at_jobs() {
                    return self.poll_looking(task, name, spawned);
                }
                self.begin_poll(name, spawned);
                #[cfg(feature = "facade")]
                let _hooked = HookedPoll::begin(self.core, task.metadata());
                budget::begin();
                task.run();
                budget::end();
            }
            // A sample takes one more reading of the clock.
            Job::Timer(due) if lateness::is_looked_at(&due) || self.core.track.looks() => {
                self.fire_looking(due);
            }
            Job::Timer(due) => _ = self.fire(due, || self.shared.clock.now()),
            // The time is needed by recurring timers only, and these clocks have none.
            Job::ClockTimer(due) => {
                self.note_run(due.type_name(), None);
                self.fire(due, || NEVER);
            }
            // Cancelled before its start. An outcome callback, if there is one, runs right here.
            Job::Skipped(due) => {
                let _group = self.enter_group();
                self.begin_delivery(due.type_name());
                self.core.contain(|| budget::outside_polls(|| due.cancel()));
            }
            Job::Notice(notice) => {
                let _group = self.enter_group();
                self.begin_delivery(notice.type_name());
                self.ran(budget::outside_polls(|| notice.run()));
            }
        }
    }

    /// Publishes to the watchdog that the worker begins to poll a task of this type, and counts the
    /// poll.
    #[inline]
    fn begin_poll(&self, name: &'static TypeName, spawned: Spawned) {
        self.begin_in_group();
        let watch = &self.core.watchdog.watch;
        watch.begin(self.tick, name, Some(spawned));
        self.core.recorder.own.polls.add_alone(1);
    }

    /// Runs a task while jobs or polls are recorded, timed or traced.
    #[cold]
    fn poll_looking(&mut self, task: TaskJob, name: &'static TypeName, spawned: Spawned) {
        self.note_run(name, Some(spawned));
        self.begin_poll(name, spawned);
        #[cfg(feature = "facade")]
        let _hooked = HookedPoll::begin(self.core, task.metadata());
        budget::begin();
        let (polls, traces) = (&self.core.track.polls, &self.shared.flight.traces);
        let id = task.metadata().id();
        let is_traced = self.core.track.traces() && traces.begins(id);
        let run = |task: TaskJob| match is_traced {
            true => task.run_traced(),
            false => task.run(),
        };
        if polls.are_timed() {
            // Keeps the task until it is known whether it has ended.
            let reference = task.reference();
            polls.begin(&reference, self.shared.clock.real());
            run(task);
            polls.end(self.shared.clock.real(), reference.has_ended());
        } else {
            run(task);
        }
        if is_traced {
            traces.polled(id);
        }
        budget::end();
    }

    /// Counts a job that is about to run.
    #[inline]
    pub(super) fn count_job(&mut self) {
        if self.tick == self.injector_at {
            self.injector_at += u64::from(self.shared.injector_interval());
        }
        // Numbers begin at one: to the watchdog, zero means that the worker is in no job.
        self.tick += 1;
    }

    /// Runs `poll`, which polls the future of a `block_on`. The future counts as a job. Metrics and
    /// stall reports show it as a task that was spawned at `called`.
    pub(crate) fn poll_root<R>(
        &mut self,
        name: &'static TypeName,
        called: &'static Location<'static>,
        poll: impl FnOnce() -> R,
    ) -> R {
        self.count_job();
        self.core
            .watchdog
            .watch
            .begin(self.tick, name, Some(Spawned::at(called)));
        let output = budget::limited(poll);
        self.core.watchdog.watch.end();
        output
    }

    /// Runs the callback of a timer. Returns `true` if it has run, and `false` if the timer was put
    /// back or has ended otherwise.
    #[inline]
    pub(crate) fn fire(&self, due: Due<Core>, now: impl FnOnce() -> u64) -> bool {
        // A call in tail position: without groups, nothing is to be undone after the callback.
        if self.turns.is_some() {
            return self.fire_in_group(due, now);
        }
        self.fire_here(due, now)
    }

    /// Runs the callback of a timer as [`fire`](Self::fire) does, in the group of the present job.
    #[cold]
    #[inline(never)]
    fn fire_in_group(&self, due: Due<Core>, now: impl FnOnce() -> u64) -> bool {
        let _group = self.enter_group();
        self.begin_in_group();
        self.fire_here(due, now)
    }

    #[inline]
    fn fire_here(&self, due: Due<Core>, now: impl FnOnce() -> u64) -> bool {
        self.core
            .watchdog
            .watch
            .begin(self.tick, due.type_name(), None);
        #[cfg(feature = "tracing")]
        let _span = trace::callback(self.core, &due);
        match budget::outside_polls(|| due.run(now)) {
            Ran::Fired => self.ran(None),
            Ran::Panicked(panic) => self.ran(Some(panic)),
            // It was moved or cancelled after it came due, or its condition no longer holds. The
            // callback has not run, so no run is counted.
            Ran::PutBack | Ran::Over => return false,
        }
        true
    }

    /// Publishes to the watchdog that the worker begins a callback of this type.
    #[inline]
    fn begin_callback(&self, name: &'static TypeName) {
        self.begin_in_group();
        self.core.watchdog.watch.begin(self.tick, name, None);
    }

    /// Notes that the worker begins the delivery of an outcome, and publishes it.
    fn begin_delivery(&mut self, name: &'static TypeName) {
        self.note_run(name, None);
        self.begin_callback(name);
    }

    /// Counts a callback that has run, and its panic if there was one.
    #[inline]
    fn ran(&self, panicked: Option<Box<dyn Any + Send>>) {
        let counters = &self.core.recorder.own;
        counters.callbacks.add_alone(1);
        if let Some(panic) = panicked {
            counters.panics.add_alone(1);
            // The panic hook has reported it. The payload's destructor is user code.
            self.core.contain(|| drop(panic));
        }
    }
}
