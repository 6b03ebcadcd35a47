//! Lateness of timers: measured when they are taken from a store, and when they run.
//!
//! How late a timer is taken from its store is measured for each timer. It needs no extra reading
//! of the clock, since each batch has one. How long a timer is queued from then until it runs needs
//! a reading for each timer, so it is measured for one timer in 16: those that were taken at
//! certain moments, which the node tells without a counter ([`Taken::is_one_of`]).
//!
//! While timers are late, the flight recorder looks at each of them when it runs.
//!
//! On a clock that is or was paused nothing is recorded, because such a clock jumps.

use tourbillon_shards::{Due, Sleep, Taken};

#[cfg(feature = "probes")]
use crate::util::probe::probe;
use crate::{
    clock::instant::Instant,
    engine::{
        core::Core,
        local,
        recorder::note::{Running, due_from},
        shared::Shared,
        worker::Worker,
    },
    metrics::histogram::Recorded,
};

/// Binary logarithm of the sampling interval: one timer in 16 is measured when it runs.
const SAMPLE_SHIFT: u32 = 4;

/// The longest queueing time that is recorded, in ns: some 9 minutes. [`Taken`] wraps, so a longer
/// time is ambiguous: it may be any multiple of [`Taken::WRAP`] longer.
const MAX_QUEUED: u64 = Taken::WRAP / 2;

/// From which lateness on, in ns, the probe `late` shows a timer.
#[cfg(feature = "probes")]
const LATE: u64 = 1_000_000;

impl Worker<'_> {
    /// Records the lateness of timers that were taken at `now`: those in `due` from index `first`
    /// on.
    #[inline]
    pub(crate) fn note_late(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
        #[cfg(feature = "probes")]
        self.probe_taken(first, now);
    }

    /// Shows tracers the timers that were taken at `now`: those in `due` from index `first` on.
    #[cfg(feature = "probes")]
    fn probe_taken(&self, first: usize, now: u64) {
        for due in &self.due[first..] {
            // A timer without a deadline was cancelled meanwhile.
            let Some(deadline) = due.deadline() else {
                continue;
            };
            let (late, name) = (now.saturating_sub(deadline), due.type_name().get());
            let worker = self.core.index;
            probe!(fire, worker, late, name.as_ptr(), name.len());
            if late >= LATE {
                probe!(late, worker, late, name.as_ptr(), name.len());
            }
        }
    }

    /// Records the lateness of timers that were taken at `now` from a stuck worker: those in
    /// `due` from index `first` on.
    pub(crate) fn note_rescued(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
        note(self.shared, &self.due[first..], now, &late.rescued);
        #[cfg(feature = "probes")]
        self.probe_taken(first, now);
    }

    /// Runs a timer that is [sampled](is_looked_at) or of interest to the flight recorder, and
    /// records how long it was queued.
    #[cold]
    pub(crate) fn fire_looking(&mut self, due: Due<Core>) {
        // Read the clock before the callback runs: its own time does not count.
        let now = self.shared.clock.now();
        let queued = known(due.taken(), now).filter(|_| !self.shared.clock.was_paused());
        let is_sampled = is_looked_at(&due);
        // A timer that was taken late is looked at. Others are late only by their time in the
        // queue.
        let track = &self.core.track;
        let is_late = track.looks() || queued.is_some_and(|queued| track.notes(queued));
        let running = is_late.then(|| Running::of(&due, now)).flatten();
        self.note_run(due.type_name(), None);
        let ran = self.fire(due, || self.shared.clock.now());
        let Some(queued) = queued.filter(|_| ran) else {
            return;
        };
        if is_sampled {
            note_queued(self.core, queued);
        }
        if let Some(running) = running {
            self.record_ran(running, now, queued);
        }
    }
}

/// Returns whether a timer is sampled, so that its queueing time is measured.
#[inline]
pub(crate) fn is_looked_at(due: &Due<Core>) -> bool {
    !cfg!(tourbillon_no_metrics) && due.taken().is_one_of(SAMPLE_SHIFT)
}

/// Records how late timers were taken from their store at `now`, by the clock of that store.
#[inline]
pub(crate) fn note(shared: &Shared, taken: &[Due<Core>], now: u64, histogram: &Recorded) {
    if taken.is_empty() || is_off(shared) {
        return;
    }
    let mut sum = 0_u64;
    // A timer that was cancelled meanwhile has no deadline, and is not counted.
    for deadline in taken.iter().filter_map(Due::deadline) {
        sum = sum.saturating_add(histogram.count(now.saturating_sub(deadline)));
    }
    histogram.add(sum);
}

/// Records one queueing time, in ns.
fn note_queued(core: &Core, queued: u64) {
    let histogram = &core.recorder.late.queue;
    histogram.add(histogram.count(queued));
}

/// Returns the time from when a timer was taken until `now`, in ns, or `None` if it may have
/// wrapped.
fn known(taken: Taken, now: u64) -> Option<u64> {
    Some(taken.elapsed(now)).filter(|&queued| queued <= MAX_QUEUED)
}

/// Returns whether nothing is recorded on this runtime.
fn is_off(shared: &Shared) -> bool {
    cfg!(tourbillon_no_metrics) || shared.clock.was_paused()
}

/// Records how long a task took to notice that its sleep until `deadline` had ended. Records
/// nothing if the thread that polls the task is not a worker of the runtime.
#[inline]
pub(crate) fn note_woken(sleep: &Sleep<Core>, deadline: Instant) {
    let sampled = match cfg!(tourbillon_no_metrics) {
        true => None,
        false => sleep.sample(SAMPLE_SHIFT),
    };
    // One call: a second one would cost the usual path registers.
    if sampled.is_some() || sleep.home().owner().track.looks() {
        note_task(sleep, deadline, sampled);
    }
}

#[cold]
fn note_task(sleep: &Sleep<Core>, deadline: Instant, sampled: Option<Taken>) {
    // While sleeps are late, their batches are taken at moments that a sample of one bit selects.
    let Some(taken) = sampled.or_else(|| sleep.sample(1)) else {
        return;
    };
    let home = sleep.home().owner();
    let shared = &home.shared;
    if shared.clock.was_paused() {
        return;
    }
    // A sleep may be polled an hour after it has fired, if a `select!` did not poll it. The time
    // since the deadline is an upper bound of the queueing time: ignore the sample if that is too
    // long.
    let (now, deadline) = (shared.clock.now(), shared.clock.nanos(deadline));
    let Some(queued) = known(taken, now).filter(|_| now.saturating_sub(deadline) <= MAX_QUEUED)
    else {
        return;
    };
    let tolerance = sleep.tolerance();
    let mut running = Running {
        deadline,
        tolerance,
        due_from: due_from(sleep.home(), deadline, tolerance, now),
        home: home.index,
        job: None,
        origin: None,
    };
    let late_beyond = running.late_beyond(now);
    let is_noted = home.track.notes(late_beyond);
    local::with_local_of(shared, |local| {
        // Another thread polls the task, for example in `block_on`. No worker has a histogram for
        // that.
        let Some(local) = local else { return };
        let core = local.shard.owner();
        if sampled.is_some() {
            note_queued(core, queued);
        }
        if is_noted {
            // The task that polls the sleep is the worker's present job.
            running.job = core.watchdog.watch.job_ref();
            shared.flight.keep_if_late(core, late_beyond);
        }
    });
    if !is_noted {
        return;
    }
    if let Some(events) = running.events(&home.track, now, now.saturating_sub(queued)) {
        shared.record(events);
    }
    #[cfg(feature = "tracing")]
    running.warn_if_late(home, now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queueing_times_that_may_have_wrapped_are_unknown() {
        let taken = Taken::at(Taken::WRAP + 5_000_000);
        let after = |passed| known(taken, Taken::WRAP + 5_000_000 + passed);
        assert_eq!(after(0), Some(0));
        let minute = 60_000_000_000;
        assert!(after(9 * minute).is_some_and(|queued| queued.abs_diff(9 * minute) < 1_024));
        assert_eq!(after(10 * minute), None);
        assert_eq!(after(18 * minute), None);
    }
}
