//! How a worker waits for a deadline: it spins, or it sleeps and has the kernel wake it early.
//!
//! The policy has three parts that measure and one option:
//!
//! - The *spin threshold* ([`sleep_cost`]): what a sleep costs in processor time. A worker whose
//!   next deadline is nearer than that spins, because a sleep would cost more. The deadline is
//!   known, so this is no bet, unlike spinning for a lock.
//! - *Wake-up latency compensation* ([`wake_latency`]): how late the kernel ends a sleep. The
//!   worker asks for an end that is earlier by the least latency it has seen lately. It spins for
//!   the rest.
//! - The [`budget`]: for deadlines that come so fast that to wake for each would cost too much of
//!   the core, the worker sleeps longer, and serves several at once.
//! - [`Builder::spin_before`](crate::runtime::Builder::spin_before): the worker spins for at least
//!   this time before each deadline.

mod budget;
mod sleep_cost;
mod wake_latency;

use std::{sync::Arc, time::Duration};

use crossbeam::utils::CachePadded;

use self::{budget::Budget, sleep_cost::SleepCost, wake_latency::WakeLatencies};
use crate::{engine::config::Config, sys::sync::atomic::AtomicU64};

/// The most that one turn of a worker that waits awake costs its budget, in ns. A turn that takes
/// longer has done work.
const TURN: u64 = 5_000;

/// How a worker waits for a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// It polls clock, sockets and queues until the deadline has passed.
    Spin,
    /// It sleeps, and the kernel is asked to end the sleep at `until`, in ns. That may be before
    /// the deadline.
    Sleep { until: u64 },
}

/// A sleep whose end the worker reports to its policy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleep {
    deadline: u64,
    /// When the kernel is to end the sleep, in ns.
    until: u64,
    /// The time from the beginning of the sleep to its deadline, in ns.
    length: u64,
}

/// Decides how a worker waits, and learns from each sleep.
#[derive(Debug)]
pub(crate) struct WaitPolicy {
    /// Whether the worker may spin. If not, and without a budget, it measures no sleeps.
    spin: bool,
    /// How long before a deadline the worker spins in any case, in ns.
    spin_before: u64,
    cost: SleepCost,
    latencies: WakeLatencies,
    budget: Option<Budget>,
    /// The deadline of the last sleep that its timeout ended: the worker does not sleep again
    /// before it.
    woken_for: u64,
}

impl WaitPolicy {
    /// Creates the policy of a worker. `spent`: up to which moment the workers of its core have
    /// spent their budget, if they wake up for each other.
    pub(crate) fn new(config: &Config, spent: Option<Arc<CachePadded<AtomicU64>>>) -> Self {
        Self {
            spin: config.spin,
            spin_before: config.spin_before,
            cost: SleepCost::default(),
            latencies: WakeLatencies::new(config.timer_advance),
            budget: (config.timer_budget)
                .map(|share| Budget::new(share, config.shares_cores, spent)),
            woken_for: 0,
        }
    }

    /// Sets whether the worker may wait awake, as far as the options allow it.
    pub(crate) fn set_spin(&mut self, config: &Config, may_spin: bool) {
        let spin = config.spin && may_spin;
        if spin != self.spin {
            // Both would have the worker wake early, and spin.
            let (before, advance) = match spin {
                true => (config.spin_before, config.timer_advance),
                false => (0, 0),
            };
            (self.spin, self.spin_before) = (spin, before);
            self.latencies = WakeLatencies::new(advance);
        }
    }

    /// Returns whether the worker may wait awake.
    pub(crate) fn may_spin(&self) -> bool {
        self.spin
    }

    /// Returns how long before a deadline the worker spins in any case, in ns.
    pub(crate) fn spin_before(&self) -> u64 {
        self.spin_before
    }

    /// Returns the moment, in ns, until which the worker defers the wake-up for its `next` deadline,
    /// or one that has passed.
    #[inline]
    pub(crate) fn defers_until(&self, next: u64) -> u64 {
        match &self.budget {
            // A wake-up for this deadline is paid for: the kernel was early, or the worker spins.
            Some(budget) if next > self.woken_for => budget.pays_from(),
            _ => 0,
        }
    }

    /// Records that the worker spins until `deadline`, in ns. It does not sleep before that.
    pub(crate) fn spins_for(&mut self, deadline: u64) {
        self.woken_for = self.woken_for.max(deadline);
    }

    /// Returns whether the worker spins until `deadline`, in ns. `now` reads the clock, and is
    /// called only if the answer depends on it.
    #[inline]
    pub(crate) fn spins(&self, deadline: u64, now: impl FnOnce() -> u64) -> bool {
        if !self.spin {
            return false;
        }
        // The kernel has ended a sleep for this deadline, a little early. Another sleep would end
        // late.
        if deadline <= self.woken_for {
            return true;
        }
        let threshold = self.spin_before.max(self.cost.ns());
        threshold > 0 && deadline <= now().saturating_add(threshold)
    }

    /// Returns how the worker waits at `now` for `deadline`, both in ns.
    pub(crate) fn decide(&self, deadline: u64, now: u64) -> Wait {
        if self.spins(deadline, || now) {
            return Wait::Spin;
        }
        // Both are leads before the deadline, so they overlap.
        let early = self.spin_before.max(self.compensation(deadline, now));
        Wait::Sleep {
            until: deadline.saturating_sub(early),
        }
    }

    /// Returns by how much earlier than `deadline` a sleep that begins at `now` is to end because
    /// the kernel is late, in ns.
    pub(crate) fn compensation(&self, deadline: u64, now: u64) -> u64 {
        self.latencies.compensation(deadline.saturating_sub(now))
    }

    /// Records at `now` that the worker spins once, in place of a sleep, and has been awake for
    /// `awake` since its last turn, both in ns.
    pub(crate) fn spun(&mut self, now: u64, awake: u64) {
        self.cost.spun();
        if let Some(budget) = &mut self.budget {
            budget.spend(now, awake.min(TURN));
        }
    }

    /// Runs `sleep`, which lasts `left` at most, and now and then measures what it costs.
    pub(crate) fn measure(&mut self, left: Duration, sleep: impl FnOnce()) {
        match self.spin || self.budget.is_some() {
            true => self.cost.measure(left, sleep),
            false => sleep(),
        }
    }

    /// Records that the timeout of `sleep` ended it at `now`, and neither an event nor a signal.
    /// Returns whether the worker woke before the deadline, for which it spins then.
    pub(crate) fn timed_out(&mut self, sleep: Sleep, now: u64) -> bool {
        self.latencies
            .note(sleep.length, now.saturating_sub(sleep.until));
        if let Some(budget) = &mut self.budget {
            budget.spend(now, self.cost.last());
        }
        // If this is early, the worker spins for the rest.
        self.woken_for = sleep.deadline;
        now < sleep.deadline
    }
}

impl Sleep {
    /// Returns a sleep that begins at `now` for `deadline`, and that the kernel is to end at
    /// `until`, all in ns.
    pub(crate) fn new(now: u64, deadline: u64, until: u64) -> Self {
        // The latency is learned by this length, and looked up by it. By the length of the
        // shortened sleep it would be learned in one class and looked up in another.
        let length = deadline.saturating_sub(now);
        Self {
            deadline,
            until,
            length,
        }
    }

    /// Returns whether the sleep was over at `now`, in ns.
    pub(crate) fn is_over(self, now: u64) -> bool {
        self.until <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn policy(spin_before: u64, most: u64) -> WaitPolicy {
        WaitPolicy {
            spin: true,
            spin_before,
            cost: SleepCost::default(),
            latencies: WakeLatencies::new(most),
            budget: None,
            woken_for: 0,
        }
    }

    /// Sleeps once from `now` for `length`, and is woken `late` after the timeout. Returns whether
    /// that was before the deadline.
    fn sleep(policy: &mut WaitPolicy, now: u64, length: u64, late: u64) -> bool {
        let deadline = now + length;
        let Wait::Sleep { until } = policy.decide(deadline, now) else {
            panic!("{length} ns are enough for a sleep");
        };
        let sleep = Sleep::new(now, deadline, until);
        assert!(!sleep.is_over(until - 1) && sleep.is_over(until));
        policy.timed_out(sleep, until + late)
    }

    #[test]
    fn without_measurements_the_worker_sleeps_until_the_deadline() {
        let policy = policy(0, 100_000);
        assert!(!policy.spins(MS, || panic!("the clock is not read")));
        assert_eq!(policy.decide(MS, MS - 1), Wait::Sleep { until: MS });
    }

    #[test]
    fn a_worker_that_must_not_spin_sleeps_for_the_nearest_deadline() {
        let mut policy = WaitPolicy {
            spin: false,
            ..policy(0, 0)
        };
        let work = || (0..10_000).for_each(|i| drop(std::hint::black_box(vec![i])));
        policy.measure(Duration::from_millis(1), work);
        assert_eq!(policy.decide(MS, MS - 1), Wait::Sleep { until: MS });
        // The kernel's clock may be a little ahead of the worker's.
        let sleep = Sleep::new(0, MS, MS);
        policy.timed_out(sleep, MS - 1);
        assert_eq!(policy.decide(MS, MS - 1), Wait::Sleep { until: MS });
    }

    #[test]
    fn the_worker_spins_for_spin_before_each_deadline() {
        let policy = policy(30_000, 100_000);
        let until = MS - 30_000;
        assert_eq!(policy.decide(MS, until - 1), Wait::Sleep { until });
        assert_eq!(policy.decide(MS, until), Wait::Spin);
        assert_eq!(policy.decide(MS, MS + 1), Wait::Spin);
    }

    #[test]
    fn the_worker_spins_for_a_deadline_that_is_nearer_than_a_sleep_costs() {
        let mut policy = policy(0, 0);
        let work = || (0..10_000).for_each(|i| drop(std::hint::black_box(vec![i])));
        policy.measure(Duration::from_millis(1), work);
        let cost = policy.cost.ns();
        assert!(cost > 0, "what ran took some time");
        assert_eq!(policy.decide(MS, MS - cost), Wait::Spin);
        let sleeps = Wait::Sleep { until: MS };
        assert_eq!(policy.decide(MS, MS - cost - 1), sleeps);
    }

    #[test]
    fn a_worker_that_is_woken_early_spins_for_that_deadline_alone() {
        let mut policy = policy(0, 100_000);
        for i in 0..4 {
            assert!(!sleep(&mut policy, i * MS, MS, 50_000));
        }
        assert!(sleep(&mut policy, 4 * MS, MS, 20_000));
        assert_eq!(policy.decide(5 * MS, 5 * MS - 30_000), Wait::Spin);
        assert_ne!(policy.decide(5 * MS + 1, 0), Wait::Spin);
    }

    #[test]
    fn a_sleep_ends_early_by_the_larger_of_option_and_latency() {
        for (spin_before, early) in [(10_000, 50_000), (200_000, 200_000)] {
            let mut policy = policy(spin_before, 100_000);
            for i in 0..4 {
                sleep(&mut policy, i * MS, MS, 50_000);
            }
            let until = 5 * MS - early;
            assert_eq!(policy.decide(5 * MS, 4 * MS), Wait::Sleep { until });
        }
    }

    /// The class of a sleep is that of its length without compensation.
    #[test]
    fn a_latency_that_shrinks_is_unlearned_where_it_was_learned() {
        let (mut policy, length) = (policy(0, 100_000), 140_000);
        let mut now = 0;
        for late in [50_000; 10].into_iter().chain([3_000; 30]) {
            sleep(&mut policy, now, length, late);
            now += MS;
        }
        let early = policy.compensation(length, 0);
        assert!(early < 4_000, "{early}");
    }
}
