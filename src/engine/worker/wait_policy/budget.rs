//! The budget for wake-ups: what share of its core a worker spends on waking for timers.
//!
//! As long as the budget suffices, the worker wakes up for each deadline. When timers come faster,
//! it sleeps until the budget pays for another wake-up, which then serves all timers that came due
//! meanwhile. So their lateness follows from what a wake-up costs on this machine. With a share of
//! 2 % and a cost of 18 µs (a virtual machine) it is about 0.9 ms at most, with 3 µs (bare metal)
//! about 0.15. A turn of a worker that waits awake may count a little more.
//!
//! No wake-up is deferred by more than 1 ms. So the worker exceeds its share if the share does not
//! pay for one wake-up a millisecond.
//!
//! The rule is the generic cell rate algorithm (ITU-T I.371). Each wake-up moves the moment up to
//! which the budget is spent by its cost divided by the share.

use std::sync::Arc;

use crossbeam::utils::CachePadded;

use crate::sys::sync::atomic::{AtomicU64, Ordering};

/// How far ahead of the present the budget may be spent, in ns. After a quiet time of this length a
/// worker has this in reserve for a burst of exact timers. A simulated one has few timers, and has
/// to defer some.
const RESERVE: u64 = if cfg!(tourbillon_sim) { 0 } else { 50_000_000 };
/// How long the worker defers a wake-up at most, in ns. The promise holds for any cost and share.
const MOST: u64 = 1_000_000;
/// Workers that share a core defer their wake-ups to multiples of this, in ns, and so meet there.
/// The core then leaves its idle state once for all of them, which is the larger part of the cost.
const MEETING: u64 = 800_000;
/// The unit of [`Budget::times`].
const ONE: u64 = 1_024;

/// The budget of one worker, or its part in the budget of a group.
#[derive(Debug)]
pub(super) struct Budget {
    /// By what a cost is multiplied, in units of 1 / [`ONE`]: the inverse of the share.
    times: u64,
    /// The moment up to which the budget is spent, in ns. Workers that share a core share it.
    spent: Arc<CachePadded<AtomicU64>>,
    /// Whether other workers use the same core.
    is_shared: bool,
}

impl Budget {
    /// Creates the budget of a worker that spends this share of its core, which is above 0 and at
    /// most 1. `is_shared`: other workers use that core, too. `spent`: up to which moment they have
    /// spent it, if they wake up for each other.
    pub(super) fn new(
        share: f64,
        is_shared: bool,
        spent: Option<Arc<CachePadded<AtomicU64>>>,
    ) -> Self {
        Self {
            // A share of next to nothing becomes the largest number.
            times: (ONE as f64 / share) as u64,
            spent: spent.unwrap_or_default(),
            is_shared,
        }
    }

    /// Returns the moment, in ns, from which the budget pays for another wake-up.
    #[inline]
    pub(super) fn pays_from(&self) -> u64 {
        let from = self.spent.load(Ordering::Relaxed).saturating_sub(RESERVE);
        match self.is_shared {
            // A little earlier than it pays, so that no wake-up is deferred by more than the most.
            true => from - from % MEETING,
            false => from,
        }
    }

    /// Records at `now` that a wake-up, or waiting awake, took `cost`, both in ns.
    pub(super) fn spend(&mut self, now: u64, cost: u64) {
        let for_so_long = (cost.saturating_mul(self.times) / ONE).min(MOST);
        let spent = self.spent.load(Ordering::Relaxed).max(now);
        let spent = spent.saturating_add(for_so_long);
        // If another worker spends in this moment, the budget may count one of the two alone.
        self.spent.store(
            spent.min(now.saturating_add(RESERVE + MOST)),
            Ordering::Relaxed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const COST: u64 = 20_000;

    /// Wakes up as early as the budget allows from `start` on, until `end`. Returns how often.
    fn wakes(budget: &mut Budget, start: u64, end: u64) -> u64 {
        let (mut now, mut count) = (start, 0);
        while now < end {
            budget.spend(now, COST);
            count += 1;
            // A timer comes due each µs.
            now = budget.pays_from().max(now + 1_000);
        }
        count
    }

    #[test]
    fn the_share_of_the_core_is_kept() {
        for share in [0.025, 0.05, 0.3, 1.0] {
            let mut budget = Budget::new(share, false, None);
            let reserve = wakes(&mut budget, RESERVE, 2 * RESERVE);
            assert!(reserve > 0);
            let (second, start) = (1_000 * MS, 2 * RESERVE);
            let spent = COST * wakes(&mut budget, start, start + second);
            let expected = (second as f64 * share) as u64;
            let most = expected + COST + (RESERVE as f64 * share) as u64;
            assert!(
                (expected * 99 / 100..=most).contains(&spent),
                "{share}: {spent}"
            );
        }
    }

    #[test]
    fn a_burst_after_a_quiet_time_is_exact() {
        let mut budget = Budget::new(0.025, false, None);
        for i in 0..60 {
            let now = 1_000 * MS + i * 1_000;
            assert!(
                budget.pays_from() <= now,
                "the reserve has 62 wake-ups: {i}"
            );
            budget.spend(now, COST);
        }
        for i in 60..70 {
            budget.spend(1_000 * MS + i * 1_000, COST);
        }
        assert!(budget.pays_from() > 1_000 * MS + 70_000);
    }

    #[test]
    fn a_wake_up_is_deferred_by_a_ms_at_most() {
        for share in [f64::MIN_POSITIVE, 1e-6, 0.025] {
            let mut budget = Budget::new(share, false, None);
            for now in (0..100 * MS).step_by(10_000) {
                budget.spend(now, u64::MAX);
                assert!(budget.pays_from() <= now + MS);
            }
        }
    }

    #[test]
    fn workers_that_share_a_core_wake_up_at_the_same_moments() {
        let mut budget = Budget::new(1e-6, true, None);
        let mut now = 1_000 * MS;
        for _ in 0..1_000 {
            budget.spend(now, COST);
            if budget.pays_from() > now {
                assert!(budget.pays_from() <= now + MS);
                now = budget.pays_from();
                assert_eq!(now % MEETING, 0);
            }
            // The kernel is a little late.
            now += 30_000;
        }
        assert!(now > 1_700 * MS, "most wake-ups were deferred: {now}");
    }

    #[test]
    fn a_wake_up_that_costs_nothing_is_never_deferred() {
        let mut budget = Budget::new(0.025, false, None);
        for now in 0..1_000 {
            budget.spend(now, 0);
            assert!(budget.pays_from() <= now);
        }
    }
}
