//! The spin threshold: what a sleep costs a worker in processor time.
//!
//! A sleep costs the time to set the kernel's timer, and to switch to another thread or to the idle
//! loop and back. On a virtual machine, where setting a timer leaves the guest, that may be 20 µs
//! and more; on bare metal it is 2 or 3. So it is measured now and then.

use std::time::Duration;

use crate::sys::clock;

/// One sleep of this many is measured, because reading the thread's clock is a system call.
const SAMPLE: u32 = 8;
/// The part of a sample by which the estimate follows it, as a divisor.
const FOLLOW: u64 = 8;
/// After this many spins in place of sleeps, the worker sleeps once and measures that. The spins
/// take some 10 ms.
const SPINS: u32 = 20_000;
/// Longer sleeps are not measured. A worker that has no others needs no estimate, and reads no
/// clock to compare a deadline with it.
const SHORT: Duration = Duration::from_millis(10);
/// The largest estimate, in ns. It limits how long a worker spins in place of a sleep.
const MOST: u64 = 50_000;

/// An estimate of what a sleep costs.
#[derive(Debug, Default)]
pub(crate) struct SleepCost {
    sleeps: u32,
    /// Spins in place of sleeps since the last sleep that was measured.
    spins: u32,
    /// In ns; zero until a sleep has been measured.
    ns: u64,
}

impl SleepCost {
    /// Returns the estimate in ns: zero while none is known, and when it is time to measure again.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        if self.spins < SPINS { self.ns } else { 0 }
    }

    /// Returns what a sleep cost when it was measured last, in ns: zero while that is not known.
    #[inline]
    pub(super) fn last(&self) -> u64 {
        self.ns
    }

    /// Records that the worker spins once in place of a sleep.
    ///
    /// A worker that never slept would not learn that sleeps cost less than it thinks.
    pub(crate) fn spun(&mut self) {
        self.spins = self.spins.saturating_add(1);
    }

    /// Runs `sleep`, which lasts `left` at most, and now and then measures its processor time.
    pub(crate) fn measure(&mut self, left: Duration, sleep: impl FnOnce()) {
        if left > SHORT {
            return sleep();
        }
        // A worker that has spun for long learns from its next sleep whether that is still worth
        // it.
        let sampled = self.sleeps % SAMPLE == 0 || self.spins >= SPINS;
        self.sleeps = self.sleeps.wrapping_add(1);
        if !sampled {
            return sleep();
        }
        self.spins = 0;
        let before = clock::thread_cpu();
        sleep();
        self.note(clock::thread_cpu().saturating_sub(before));
    }

    fn note(&mut self, took: u64) {
        let took = took.min(MOST);
        // The first sample is the estimate. Later ones move it slowly, because single samples vary.
        self.ns = if self.ns == 0 {
            took
        } else {
            self.ns - self.ns / FOLLOW + took / FOLLOW
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_eight_sleeps_is_measured() {
        let mut cost = SleepCost::default();
        assert_eq!(cost.ns(), 0);
        let work = || (0..10_000).for_each(|i| drop(std::hint::black_box(vec![i])));
        cost.measure(SHORT, work);
        let first = cost.ns();
        assert!(first > 0, "the work took some time");
        for _ in 1..SAMPLE {
            cost.measure(SHORT, work);
            assert_eq!(cost.ns(), first);
        }
    }

    #[test]
    fn a_worker_that_never_sleeps_measures_again() {
        let mut cost = SleepCost::default();
        cost.measure(SHORT, || ());
        cost.note(40_000);
        let before = cost.ns();
        assert!(before > 0);
        (0..SPINS).for_each(|_| cost.spun());
        assert_eq!(cost.ns(), 0, "the next wait is a sleep");
        cost.measure(SHORT, || ());
        assert!((1..before).contains(&cost.ns()), "{}", cost.ns());
    }

    #[test]
    fn long_sleeps_are_not_measured() {
        let mut cost = SleepCost::default();
        let mut ran = 0;
        (0..100).for_each(|_| cost.measure(Duration::from_secs(1), || ran += 1));
        assert_eq!((ran, cost.ns()), (100, 0));
        assert_eq!(cost.sleeps, 0, "the first short one is measured");
    }

    #[test]
    fn each_sleep_runs() {
        let mut cost = SleepCost::default();
        let mut ran = 0;
        (0..100).for_each(|_| cost.measure(SHORT, || ran += 1));
        assert_eq!(ran, 100);
    }

    #[test]
    fn the_estimate_follows_and_stays_within_bounds() {
        let mut cost = SleepCost::default();
        cost.note(3_000);
        assert_eq!(cost.ns(), 3_000);
        (0..100).for_each(|_| cost.note(20_000));
        assert!((19_000..=20_000).contains(&cost.ns()), "{}", cost.ns());
        (0..100).for_each(|_| cost.note(u64::MAX));
        assert!(cost.ns() <= MOST);
        (0..100).for_each(|_| cost.note(0));
        assert!(cost.ns() < 10, "{}", cost.ns());
    }
}
