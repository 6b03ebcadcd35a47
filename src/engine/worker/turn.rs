//! What a worker notes between its jobs: when it is back in its loop, and how long its jobs took.

use crate::engine::{
    watchdog::{report, seen::InLoop},
    worker::Worker,
};

impl InLoop {
    /// Returns the later one of the two.
    pub(crate) fn later(self, other: Self) -> Self {
        match other.at > self.at {
            true => other,
            false => self,
        }
    }
}

impl Worker<'_> {
    /// Notes that the worker is back in its loop: reports a stall, and updates the job-cost
    /// estimate and the busy time.
    pub(crate) fn back_in_loop(&mut self) {
        self.note_jobs();
        self.interval = self.jobs_to_next_poll();
    }

    /// Notes the jobs that have run, if no worker sleeps that would have come if one of them had
    /// blocked. A job that comes from elsewhere now is then not mixed up with them.
    #[inline]
    pub(super) fn note_unwatched_jobs(&mut self) {
        if self.in_loop.jobs != self.tick && self.shared.queues.searchers.parked() == 0 {
            if self.search.is_on {
                // Leave the search first: a report runs the user's hook.
                self.found();
            }
            self.note_jobs();
        }
    }

    /// Notes that the worker is in no job, and how long its jobs took.
    #[inline]
    fn note_jobs(&mut self) {
        let (jobs, took) = self.end_turn();
        self.local.pace.note(jobs, took);
        #[cfg(all(feature = "facade", tokio_unstable))]
        if !self.is_single {
            self.core.recorder.unstable.polled(jobs, took);
        }
    }

    /// Notes that the worker is in no job. Returns how many have run since it last was in none, and
    /// for how long. Estimates that are made of these do not know yet.
    #[inline]
    pub(super) fn end_turn(&mut self) -> (u64, u64) {
        let last = self.in_loop;
        // What was timed was judged then.
        self.in_loop = last.later(self.timed);
        report::was_away(self.core, &mut self.in_loop, self.tick);
        self.shared.clock.note_look(self.in_loop.at);
        self.end_job(self.in_loop.at);
        self.note_turn(last);
        self.core.was_busy(last.at, self.in_loop.at);
        self.in_loop.since(last)
    }
}
