//! How late timers are, noted as they are taken from a store, and as they run.
//!
//! That a timer is taken late is seen of each, by the one reading of the clock that a batch of them has anyway. How
//! long it takes from there until it runs needs a reading of its own, so that is looked at for one in 16: those
//! that were taken at certain moments, which the node tells without a count ([`Taken::is_one_of`]).
//!
//! On a clock that is or was paused nothing is noted: the time of one goes on by jumps.

use tourbillon_shards::{Due, Owner, Sleep, Taken};

use crate::{
    clock::instant::Instant,
    engine::{core::Core, local, shared::Shared, worker::Worker},
    metrics::histogram::Recorded,
};

/// One of so many, as a power of two, is looked at as it runs.
const SAMPLE: u32 = 4;

/// What seems to have been queued for longer, in ns, some 9 minutes, is not noted: it may have been any number of times
/// [`Taken::WRAP`] longer.
const KNOWN: u64 = Taken::WRAP / 2;

impl Worker<'_> {
    /// Notes those that were taken at `now`: `due`, from `first` on.
    #[inline]
    pub(crate) fn note_late(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
    }

    /// The same for those that were taken from another worker, which is busy.
    pub(crate) fn note_rescued(&self, first: usize, now: u64) {
        let late = &self.core.recorder.late;
        note(self.shared, &self.due[first..], now, &late.wake);
        note(self.shared, &self.due[first..], now, &late.rescued);
    }

    /// Runs a timer that is [looked at](is_looked_at), and notes how long it is since it was taken.
    #[cold]
    pub(crate) fn fire_looking(&self, due: Due<Core>) {
        let queued = since(due.taken(), self.shared);
        let ran = self.fire(due, || self.shared.clock.now());
        if let Some(queued) = queued.filter(|_| ran) {
            note_queued(self.core, queued);
        }
    }
}

/// Whether a timer is one of those that are looked at as they run.
#[inline]
pub(crate) fn is_looked_at(due: &Due<Core>) -> bool {
    !cfg!(tourbillon_no_metrics) && due.taken().is_one_of(SAMPLE)
}

/// Notes how late timers are that were taken from their store at `now`, by the clock that they go by.
#[inline]
pub(crate) fn note<O: Owner>(shared: &Shared, taken: &[Due<O>], now: u64, histogram: &Recorded) {
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
    known(taken, shared.clock.now()).filter(|_| !is_off(shared))
}

/// How long it is from when a timer was taken to `now`, unless that may be too long to be known.
fn known(taken: Taken, now: u64) -> Option<u64> {
    Some(taken.elapsed(now)).filter(|&queued| queued <= KNOWN)
}

fn is_off(shared: &Shared) -> bool {
    cfg!(tourbillon_no_metrics) || shared.clock.was_paused()
}

/// A task that slept until `deadline` has found out that its time has come: notes how long that took. Where a thread
/// polls it that is no worker of the runtime, nothing is noted.
#[inline]
pub(crate) fn note_woken(sleep: &Sleep<Core>, deadline: Instant) {
    if cfg!(tourbillon_no_metrics) {
        return;
    }
    if let Some(taken) = sleep.sample(SAMPLE) {
        note_task(sleep, deadline, taken);
    }
}

#[cold]
fn note_task(sleep: &Sleep<Core>, deadline: Instant, taken: Taken) {
    let shared = &sleep.home().owner().shared;
    // A sleep may be asked an hour after it has fired, as one that a `select!` had no eyes for: from when it was taken
    // until then is no longer than this.
    let longest = shared
        .clock
        .now()
        .saturating_sub(shared.clock.nanos(deadline));
    if longest > KNOWN {
        return;
    }
    local::with_local(|local| {
        let Some(local) = local.filter(|local| local.is_of(shared)) else {
            return;
        };
        if let Some(queued) = since(taken, shared) {
            note_queued(local.shard.owner(), queued);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_begun_anew_is_not_known() {
        let taken = Taken::at(Taken::WRAP + 5_000_000);
        let after = |passed| known(taken, Taken::WRAP + 5_000_000 + passed);
        assert_eq!(after(0), Some(0));
        let minute = 60_000_000_000;
        assert!(after(9 * minute).is_some_and(|queued| queued.abs_diff(9 * minute) < 1_024));
        assert_eq!(after(10 * minute), None);
        assert_eq!(after(18 * minute), None);
    }
}
