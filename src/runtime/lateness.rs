//! How late timers are, noted as they are taken from a store, and as they run.
//!
//! That a timer is taken late is seen of each, by the one reading of the clock that a batch of them has anyway. How
//! long it takes from there until it runs needs a reading of its own, so that is looked at for one in 16: those
//! that were taken at certain moments, which the node tells without a count ([`Taken::is_one_of`]).
//!
//! On a clock that is or was paused nothing is noted: the time of one goes on by jumps.

use tourbillon_shards::{Due, Owner, Sleep, Taken};

use super::{context, core::Core, shared::Shared, worker::Worker};
use crate::metrics::Recorded;

/// One of so many, as a power of two, is looked at as it runs.
const SAMPLE: u32 = 4;

impl Worker<'_> {
    /// Notes those that were taken at `now`: `due`, from `first` on.
    #[inline]
    pub(super) fn note_late(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
    }

    /// The same for those that were taken from another worker, which is busy.
    pub(super) fn note_rescued(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
        note(self.shared, &self.due[first..], now, &late.rescued);
    }

    /// Runs a timer that is [looked at](is_looked_at), and notes how long it is since it was taken.
    #[cold]
    pub(super) fn fire_looking(&self, due: Due<Core>) {
        let queued = since(due.taken(), self.shared);
        let ran = self.fire(due, || self.shared.clock.now());
        if let Some(queued) = queued.filter(|_| ran) {
            note_queued(self.core, queued);
        }
    }
}

/// Whether a timer is one of those that are looked at as they run.
#[inline]
pub(super) fn is_looked_at(due: &Due<Core>) -> bool {
    !cfg!(tourbillon_no_metrics) && due.taken().is_one_of(SAMPLE)
}

/// Notes how late timers are that were taken from their store at `now`, by the clock that they go by.
#[inline]
pub(super) fn note<O: Owner>(shared: &Shared, taken: &[Due<O>], now: u64, histogram: &Recorded) {
    if taken.is_empty() || is_off(shared) {
        return;
    }
    let mut sum = 0_u64;
    // What was cancelled since is late no more.
    for deadline in taken.iter().filter_map(Due::deadline) {
        sum = sum.saturating_add(histogram.count(now.saturating_sub(deadline)));
    }
    histogram.add(sum);
}

fn note_queued(core: &Core, queued: u64) {
    let histogram = &core.recorder.late.queue;
    histogram.add(histogram.count(queued));
}

/// How long it is, in ns, since a timer was taken.
#[cold]
fn since(taken: Taken, shared: &Shared) -> Option<u64> {
    (!is_off(shared)).then(|| taken.elapsed(shared.clock.now()))
}

fn is_off(shared: &Shared) -> bool {
    cfg!(tourbillon_no_metrics) || shared.clock.was_paused()
}

/// A task that slept has found out that its time has come: notes how long that took. Where a thread polls it that is
/// no worker of the runtime, nothing is noted.
#[inline]
pub(crate) fn note_woken(sleep: &Sleep<Core>) {
    if cfg!(tourbillon_no_metrics) {
        return;
    }
    if let Some(taken) = sleep.sample(SAMPLE) {
        note_task(sleep, taken);
    }
}

#[cold]
fn note_task(sleep: &Sleep<Core>, taken: Taken) {
    let shared = &sleep.home().owner().shared;
    context::with_local(|local| {
        let Some(local) = local.filter(|local| local.is_of(shared)) else {
            return;
        };
        if let Some(queued) = since(taken, shared) {
            note_queued(local.shard.owner(), queued);
        }
    });
}
