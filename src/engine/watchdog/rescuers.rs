//! Limits how many workers rescue others at once, and how often each worker is looked at.
//!
//! With many more workers than cores, most workers that do not return to their loops are not stuck.
//! They wait for a core, and each look at one of them takes a core from another. Three rules keep
//! the looks from taking all the cores:
//!
//! - The number of workers that rescue at once is at most the number of cores, plus one. The others
//!   put off the alarms that called them.
//! - The runtime is *crowded* while so many workers are awake that the looks at all of them would
//!   exceed [`PER_SECOND`] for each core. Then each worker is looked at proportionally less often.
//!   So the number of looks per second grows with the cores, and not with the workers.
//! - Alarms that are put off in a crowd go off one after another, so that each one gets its turn.

use std::time::Duration;

use crossbeam::utils::CachePadded;

use crate::{
    sys::sync::atomic::{AtomicUsize, Ordering},
    util::nanos::nanos,
};

/// How many looks each core makes in a second, at most. A look takes some 12 µs, so that is a
/// twentieth of the core. With fewer workers than cores, no limit is needed.
const PER_SECOND: u64 = 4_000;
/// A second, in ns.
const SECOND: u64 = 1_000_000_000;

/// Counts the workers of a runtime that are rescuing others.
#[derive(Debug)]
pub(crate) struct Rescuers {
    /// How many cores the workers may use.
    cores: usize,
    /// How many workers are looked at in the time between two looks at one of them.
    at_once: usize,
    /// How many workers are rescuing.
    working: CachePadded<AtomicUsize>,
}

/// The permit of a worker that rescues others. Dropping it gives the permit back.
#[derive(Debug)]
pub(crate) struct Rescuing<'a>(&'a Rescuers);

impl Rescuers {
    /// Returns a counter for a runtime on `cores` cores that has this rescue latency.
    pub(crate) fn new(cores: usize, latency: Duration) -> Self {
        let cores = cores.max(1);
        // A stuck worker is looked at after three quarters of the latency.
        let between = nanos(latency) / 4 * 3;
        let each = (PER_SECOND.saturating_mul(between) / SECOND).max(1);
        // A simulated runtime has few workers, and must be crowded now and then.
        let each = if cfg!(tourbillon_sim) { 2 } else { each };
        Self {
            cores,
            at_once: cores.saturating_mul(each.try_into().unwrap_or(usize::MAX)),
            working: CachePadded::default(),
        }
    }

    /// Returns a permit for the calling worker, or `None` if enough workers are rescuing.
    ///
    /// There is one permit more than cores. So if the kernel takes the core from a worker in the
    /// middle of a rescue, another can still rescue on that core.
    pub(crate) fn enter(&self) -> Option<Rescuing<'_>> {
        // The count only limits how many work. It guards no data, so it needs no order.
        let enter = |working| (working <= self.cores).then_some(working + 1);
        self.working
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .ok()
            .map(|_| Rescuing(self))
    }

    /// Returns how many times rarer than usual looks are while `awake` workers are awake: 1 if the
    /// runtime is not crowded.
    pub(crate) fn rarer(&self, awake: usize) -> u32 {
        let times = awake.div_ceil(self.at_once).max(1);
        times.try_into().unwrap_or(u32::MAX)
    }

    /// Returns after how many looks the alarm at position `place` of those that are put off goes
    /// off.
    pub(crate) fn turn(&self, place: usize) -> u32 {
        let turn = place / self.at_once;
        turn.try_into().unwrap_or(u32::MAX)
    }
}

impl Drop for Rescuing<'_> {
    fn drop(&mut self) {
        self.0.working.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENCY: Duration = Duration::from_millis(1);

    #[test]
    fn there_is_one_permit_more_than_cores() {
        for cores in [0, 1, 2, 64] {
            let rescuers = Rescuers::new(cores, LATENCY);
            let most = cores.max(1) + 1;
            let mut working: Vec<_> = (0..most).map(|_| rescuers.enter().unwrap()).collect();
            assert!(rescuers.enter().is_none());
            working.pop();
            let again = rescuers.enter();
            assert!(again.is_some() && rescuers.enter().is_none());
        }
    }

    #[test]
    fn looks_are_rarer_in_proportion_to_the_crowd() {
        let rescuers = Rescuers::new(2, LATENCY);
        let rarer = [0, 1, 2, 6, 7, 12, 13, 300].map(|awake| rescuers.rarer(awake));
        assert_eq!(rarer, [1, 1, 1, 1, 2, 2, 3, 50]);
        assert_eq!(Rescuers::new(usize::MAX, LATENCY).rarer(4_096), 1);
    }

    #[test]
    fn looks_in_a_second_are_bounded_by_the_cores() {
        for latency in [200, 1_000, 50_000].map(Duration::from_micros) {
            let look = nanos(latency) / 4 * 3;
            for (cores, awake) in [(1, 64), (2, 256), (64, 64), (64, 4_096)] {
                let rarer = Rescuers::new(cores, latency).rarer(awake);
                let looks = awake as u64 * SECOND / (look * u64::from(rarer));
                let most = cores as u64 * PER_SECOND.max(SECOND.div_ceil(look));
                assert!(looks <= most, "{looks}, at most {most}");
            }
        }
    }

    #[test]
    fn alarms_of_one_round_of_looks_have_the_same_turn() {
        let turns = [0, 5, 6, 11, 12, 300].map(|place| Rescuers::new(2, LATENCY).turn(place));
        assert_eq!(turns, [0, 0, 1, 1, 2, 50]);
        assert_eq!(Rescuers::new(usize::MAX, Duration::MAX).turn(4_096), 0);
    }
}
