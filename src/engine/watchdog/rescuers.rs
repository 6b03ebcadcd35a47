//! How many workers rescue others at once, and how often each of those is looked at.
//!
//! With many more workers than cores, most of those that do not come back are not stuck. They wait
//! for a core, and each look at one of them takes a core from another. Three rules keep the
//! looks from taking all the cores:
//!
//! - No more workers rescue at once than there are cores, and one. The others put off the alarms
//!   that called them.
//! - While more than [`PER_CORE`] workers are awake for each core, the runtime is *crowded*: the
//!   looks at each worker are as many times rarer. So the number of looks per second grows with the
//!   cores, and not with the workers.
//! - Alarms that are put off in a crowd go off one after another, so that each comes to its turn.

use crossbeam::utils::CachePadded;

use crate::sys::sync::atomic::{AtomicUsize, Ordering};

/// How many workers may be awake for each core before looks become rarer. A look takes some 10 µs,
/// and comes each ms as a rule: those at so many workers take about a tenth of a core.
///
/// A simulated runtime has few workers, and is to be crowded now and then.
const PER_CORE: usize = if cfg!(tourbillon_sim) { 2 } else { 8 };

/// The workers of a runtime that rescue others now.
#[derive(Debug)]
pub(crate) struct Rescuers {
    /// How many cores the workers may use.
    cores: usize,
    /// How many rescue now.
    working: CachePadded<AtomicUsize>,
}

/// The calling worker rescues others until this is dropped.
#[derive(Debug)]
pub(crate) struct Rescuing<'a>(&'a Rescuers);

impl Rescuers {
    /// None yet, on so many cores.
    pub(crate) fn on(cores: usize) -> Self {
        Self {
            cores: cores.max(1),
            working: CachePadded::default(),
        }
    }

    /// Counts the calling worker in, unless there are as many rescuers as there may be.
    ///
    /// There may be one more than cores. So if the kernel takes the core from a worker in the
    /// middle of a rescue, another can still rescue on it.
    pub(crate) fn enter(&self) -> Option<Rescuing<'_>> {
        let enter = |working| (working <= self.cores).then_some(working + 1);
        self.working
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .ok()
            .map(|_| Rescuing(self))
    }

    /// Returns how many times rarer than usual the looks are while so many workers are awake: 1 if
    /// the runtime is not crowded.
    pub(crate) fn rarer(&self, awake: usize) -> u32 {
        let times = awake.div_ceil(self.cores.saturating_mul(PER_CORE)).max(1);
        times.try_into().unwrap_or(u32::MAX)
    }

    /// In how many looks' time it is the turn of the alarm that stands at this place among those that
    /// are put off.
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
    fn there_is_one_rescuer_more_than_cores() {
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
    fn looks_are_rarer_by_as_many_as_are_too_many() {
        let rescuers = Rescuers::on(2);
        let rarer = [0, 1, 2, 16, 17, 32, 33, 320].map(|awake| rescuers.rarer(awake));
        assert_eq!(rarer, [1, 1, 1, 1, 2, 2, 3, 20]);
        assert_eq!(Rescuers::on(usize::MAX).rarer(4_096), 1);
    }

    #[test]
    fn as_many_as_are_looked_at_in_the_same_time_have_the_same_turn() {
        let turns = [0, 15, 16, 31, 32, 320].map(|place| Rescuers::on(2).turn(place));
        assert_eq!(turns, [0, 0, 1, 1, 2, 20]);
        assert_eq!(Rescuers::on(usize::MAX).turn(4_096), 0);
    }
}
