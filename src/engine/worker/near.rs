//! What a sleep costs a worker: whether the next deadline is too near to sleep until it.
//!
//! A sleep takes processor time, to set the kernel's timer, to switch to another thread or to none, and back. Where
//! the next deadline is nearer than that is long, to wait for it awake costs less, and is more precise; since the
//! deadline is known, this is no bet, as it is for who spins on a lock. On virtual machines, where to set a timer leaves
//! the machine, a sleep may cost 20 µs and more; where none is between, 2 or 3. So it is measured, now and then.

use std::time::Duration;

use crate::sys::clock;

/// Of so many sleeps one is measured: to read the thread's clock is a system call.
const SAMPLE: u32 = 8;
/// By which part of it the cost follows a sample.
const FOLLOW: u64 = 8;
/// After so many looks in place of sleeps, some 10 ms of them, one sleep is taken and measured all the same.
const LOOKS: u32 = 20_000;
/// Sleeps that are to be longer than this are not measured. A worker that has no others need not know, and reads no clock to ask
/// whether a deadline is near.
const SHORT: Duration = Duration::from_millis(10);
/// No worker waits awake for longer, in ns, whatever its sleeps seem to cost.
const MOST: u64 = 50_000;

/// What a sleep costs, lately.
#[derive(Debug, Default)]
pub(crate) struct SleepCost {
    sleeps: u32,
    /// Looks in place of sleeps, since the last one that was measured.
    looks: u32,
    /// In ns; zero until a sleep has been measured.
    ns: u64,
}

impl SleepCost {
    /// In ns. Zero as long as nothing is known, and when it is time to know it again.
    #[inline]
    pub(crate) fn ns(&self) -> u64 {
        if self.looks < LOOKS { self.ns } else { 0 }
    }

    /// The worker looks around in place of a sleep. Should it never sleep, it would not come to know that
    /// sleeps cost less than it thinks.
    pub(crate) fn looks(&mut self) {
        self.looks = self.looks.saturating_add(1);
    }

    /// Runs `sleep`, which is to end when so much is over, and measures now and then what processor time it takes.
    pub(crate) fn measure(&mut self, left: Duration, sleep: impl FnOnce()) {
        if left > SHORT {
            return sleep();
        }
        let sampled = self.sleeps % SAMPLE == 0 || self.looks >= LOOKS;
        self.sleeps = self.sleeps.wrapping_add(1);
        if !sampled {
            return sleep();
        }
        self.looks = 0;
        let before = clock::thread_cpu();
        sleep();
        self.note(clock::thread_cpu().saturating_sub(before));
    }

    fn note(&mut self, took: u64) {
        let took = took.min(MOST);
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
    fn one_of_some_is_measured_and_the_first_is() {
        let mut cost = SleepCost::default();
        assert_eq!(cost.ns(), 0);
        let work = || (0..10_000).for_each(|i| drop(std::hint::black_box(vec![i])));
        cost.measure(SHORT, work);
        let first = cost.ns();
        assert!(first > 0, "what ran took some time");
        for _ in 1..SAMPLE {
            cost.measure(SHORT, work);
            assert_eq!(cost.ns(), first);
        }
    }

    #[test]
    fn who_never_sleeps_measures_again() {
        let mut cost = SleepCost::default();
        cost.measure(SHORT, || ());
        cost.note(40_000);
        let before = cost.ns();
        assert!(before > 0);
        (0..LOOKS).for_each(|_| cost.looks());
        assert_eq!(cost.ns(), 0, "no deadline is near now");
        cost.measure(SHORT, || ());
        assert!((1..before).contains(&cost.ns()), "{}", cost.ns());
    }

    #[test]
    fn long_ones_are_not_measured() {
        let mut cost = SleepCost::default();
        let mut ran = 0;
        (0..100).for_each(|_| cost.measure(Duration::from_secs(1), || ran += 1));
        assert_eq!((ran, cost.ns()), (100, 0));
        assert_eq!(cost.sleeps, 0, "the first short one is");
    }

    #[test]
    fn all_are_run() {
        let mut cost = SleepCost::default();
        let mut ran = 0;
        (0..100).for_each(|_| cost.measure(SHORT, || ran += 1));
        assert_eq!(ran, 100);
    }

    #[test]
    fn the_cost_follows_and_stays_within_bounds() {
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
