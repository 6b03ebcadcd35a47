//! The oracle of lost parallelism: at a moment at which no thread can run, no work may wait for a
//! thread that sleeps.
//!
//! At such a moment each protocol is at rest: no thread is between a push and the wake-up that
//! belongs to it. So what waits now waits until the time jumps, and that time is lost.

use std::sync::Arc;

use super::world::{ME, State, die_with, with};

/// Work that waits, although a worker sleeps that could do it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neglected {
    /// What waits, and where.
    pub what: String,
    /// The thread that had to wake another, and which.
    pub blame: String,
    /// For how many ns the design lets it wait while no thread can run.
    pub allowed: u64,
    /// Changes when this is other work in the same place: the job that keeps the thread of the
    /// place from it.
    pub job: u64,
}

/// Lists the neglected work of a runtime. It runs while no thread can run, so it takes no lock and
/// waits for nothing. An entry keeps its place in the list from one call to the next.
pub(crate) type Probe = Arc<dyn Fn() -> Vec<Option<Neglected>> + Send + Sync>;

/// What the oracle knows.
#[derive(Default)]
pub(super) struct Oracle {
    probes: Vec<Probe>,
    /// For each entry of the probes: the job, and for how long the work has waited.
    waited: Vec<Option<(u64, u64)>>,
    /// How many times it looked.
    pub(super) looks: u64,
}

/// Has the oracle watch what `probe` lists.
pub(crate) fn watch(probe: Probe) {
    with(|world| world.lock().oracle.probes.push(probe));
}

impl State {
    /// Checks that no work is neglected until the next event. No thread can run.
    pub(super) fn check_neglect(&mut self) {
        if self.oracle.probes.is_empty() {
            return;
        }
        let now = self.now;
        // A frozen thread may be in the middle of a protocol. A write that was lost or comes later
        // would have woken a thread.
        let is_disturbed = self.disturbances.iter().any(|&(_, end)| end > now)
            || self.kernel.has_delayed()
            || self.drops() && self.faults.dropped > 0;
        if is_disturbed {
            self.oracle.waited.clear();
            return;
        }
        self.oracle.looks += 1;
        let found = self.probe();
        let mut all = std::mem::take(&mut self.oracle.waited);
        all.resize(found.len(), None);
        let lost = self.next_due.saturating_sub(now);
        for (waited, found) in all.iter_mut().zip(found) {
            let Some(found) = found else {
                *waited = None;
                continue;
            };
            let before = waited.filter(|(job, _)| *job == found.job);
            let sum = before.map_or(0, |(_, sum)| sum).saturating_add(lost);
            *waited = Some((found.job, sum));
            if sum > found.allowed {
                let why = format!(
                    "{} waits for {sum} ns, at most {}, while no thread can run: {}",
                    found.what, found.allowed, found.blame
                );
                die_with(&why, &self.dump());
            }
        }
        self.oracle.waited = all;
    }

    /// Calls the probes, as if the calling thread were not part of the simulation: what they read
    /// is no point.
    fn probe(&self) -> Vec<Option<Neglected>> {
        let me = ME.replace(None);
        let found = self.oracle.probes.iter().flat_map(|probe| probe());
        let found = found.collect();
        ME.set(me);
        found
    }
}
