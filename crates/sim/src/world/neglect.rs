//! The oracle of lost parallelism: at a moment at which no thread can run, no work may wait for a
//! thread that sleeps.
//!
//! At such a moment each protocol is at rest: no thread is between a push and the wake-up that
//! belongs to it. So what waits now waits until the time jumps, and that time is lost.

use tourbillon_sync::sim::{Neglected, Probe};

use super::{State, die_with};

/// What the oracle knows.
#[derive(Default)]
pub(crate) struct Oracle {
    probes: Vec<Probe>,
    /// For each entry of the probes: the job, and for how long the work has waited.
    waited: Vec<Option<(u64, u64)>>,
    /// How many times it looked.
    pub(super) looks: u64,
}

impl Oracle {
    /// Has the oracle watch what `probe` lists.
    pub(super) fn watch(&mut self, probe: Probe) {
        self.probes.push(probe);
    }

    /// Calls the probes. The calling thread is inside of the simulation, so what they read is no
    /// point.
    fn probe(&self) -> Vec<Option<Neglected>> {
        self.probes.iter().flat_map(|probe| probe()).collect()
    }
}

impl State {
    /// Checks that no work is neglected until the next event. No thread can run.
    pub(super) fn check_neglect(&mut self) {
        // Leave the oracle out of the state while it looks.
        let Some(mut oracle) = self.oracle.take() else {
            return;
        };
        self.check(&mut oracle);
        self.oracle = Some(oracle);
    }

    fn check(&self, oracle: &mut Oracle) {
        if oracle.probes.is_empty() {
            return;
        }
        let now = self.now;
        // A frozen thread may be in the middle of a protocol. A write that was lost or comes later
        // would have woken a thread.
        let is_disturbed = self.disturbances.iter().any(|&(_, end)| end > now)
            || self.kernel.has_delayed()
            || self.drops() && self.faults.dropped > 0;
        if is_disturbed {
            oracle.waited.clear();
            return;
        }
        oracle.looks += 1;
        let found = oracle.probe();
        let all = &mut oracle.waited;
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
    }
}
