//! Limits how many workers rescue others at once, and how often each worker is looked at.
//!
//! With many more workers than cores, most workers that do not return to their loops are not stuck.
//! They wait for a core, and each look at one of them takes a core from another. Three rules keep
//! the looks from taking all the cores:
//!
//! - The number of workers that rescue at once is at most the number of cores, plus one. The others
//!   put off the alarms that called them.
//! - The runtime is *crowded* while more than [`PER_CORE`] workers per core are awake. Then each
//!   worker is looked at proportionally less often. So the number of looks per second grows with
//!   the cores, and not with the workers.
//! - Alarms that are put off in a crowd go off one after another, so that each one gets its turn.

use crossbeam::utils::CachePadded;

use crate::sys::sync::atomic::{AtomicUsize, Ordering};

/// How many workers may be awake for each core before looks become rarer. A look takes some 10 µs,
/// and usually happens each ms. So the looks at this many workers take about a tenth of a core.
///
/// In the simulation the limit is small, because a simulated runtime has few workers and must be
/// crowded now and then.
const PER_CORE: usize = if cfg!(tourbillon_sim) { 2 } else { 8 };

/// Counts the workers of a runtime that are rescuing others.
#[derive(Debug)]
pub(crate) struct Rescuers {
    /// How many cores the workers may use.
    cores: usize,
    /// How many workers are rescuing.
    working: CachePadded<AtomicUsize>,
}

/// The permit of a worker that rescues others. Dropping it gives the permit back.
#[derive(Debug)]
pub(crate) struct Rescuing<'a>(&'a Rescuers);

impl Rescuers {
    /// Returns a counter for a runtime on `cores` cores.
    pub(crate) fn on(cores: usize) -> Self {
        Self {
            cores: cores.max(1),
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
        let times = awake.div_ceil(self.cores.saturating_mul(PER_CORE)).max(1);
        times.try_into().unwrap_or(u32::MAX)
    }

    /// Returns after how many looks the alarm at position `place` of those that are put off goes
    /// off.
    pub(crate) fn turn(&self, place: usize) -> u32 {
        let turn = place / self.cores.saturating_mul(PER_CORE);
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

    #[test]
    fn there_is_one_permit_more_than_cores() {
        for cores in [0, 1, 2, 64] {
            let rescuers = Rescuers::on(cores);
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
        let rescuers = Rescuers::on(2);
        let rarer = [0, 1, 2, 16, 17, 32, 33, 320].map(|awake| rescuers.rarer(awake));
        assert_eq!(rarer, [1, 1, 1, 1, 2, 2, 3, 20]);
        assert_eq!(Rescuers::on(usize::MAX).rarer(4_096), 1);
    }

    #[test]
    fn alarms_of_one_round_of_looks_have_the_same_turn() {
        let turns = [0, 15, 16, 31, 32, 320].map(|place| Rescuers::on(2).turn(place));
        assert_eq!(turns, [0, 0, 1, 1, 2, 20]);
        assert_eq!(Rescuers::on(usize::MAX).turn(4_096), 0);
    }
}
