//! The job-cost estimate: how long the jobs of a worker take.
//!
//! The worker uses it to decide whether a few jobs are worth waking a peer. A wake-up costs the
//! worker a system call and an interrupt of another core. It costs the peer two context switches,
//! and a cache miss for most of what it steals. Sockets and timers bring several jobs at once. If
//! these will be over before a peer could help much, the worker wakes no peer. If one of them takes
//! longer than expected, the worker's alarm calls a peer, which steals the rest.

use std::cell::Cell;

/// Jobs that take less than this in total, in ns, are not worth a wake-up. A peer could take half
/// of them once it is awake, which takes some 50 µs on a virtual machine. The wake-up costs about
/// as much processor time.
const SOON: u64 = 200_000;
/// The part by which the estimate shrinks after each batch of shorter jobs, as a divisor.
const FORGET: u64 = 4;

/// An estimate of how long a job takes, in ns. It grows at once and shrinks slowly.
#[derive(Debug)]
pub(crate) struct Pace(Cell<u64>);

impl Default for Pace {
    /// While nothing is known, the estimate says that one job is worth a wake-up.
    fn default() -> Self {
        Self(Cell::new(SOON))
    }
}

impl Pace {
    /// Records that `jobs` jobs took `took` ns in total.
    #[inline]
    pub(crate) fn note(&self, jobs: u64, took: u64) {
        if let Some(each) = took.checked_div(jobs) {
            let before = self.0.get();
            // After a long job expect another one for a while: an estimate that is too long costs
            // one wake-up, one that is too short leaves jobs waiting behind a long one.
            self.0.set(each.max(before - before / FORGET));
        }
    }

    /// Returns how many jobs will be over within `time`, in ns.
    pub(crate) fn jobs_within(&self, time: u64) -> u64 {
        time / self.0.get().max(1)
    }

    /// Returns whether `jobs` jobs will be over so soon that no peer is to be woken for them.
    pub(crate) fn soon_over(&self, jobs: usize) -> bool {
        self.0.get().saturating_mul(jobs as u64) < SOON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_estimate_any_job_may_take_long() {
        assert!(!Pace::default().soon_over(1));
    }

    #[test]
    fn a_few_short_jobs_are_soon_over_and_many_are_not() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(10, 10 * 5_000);
        }
        assert!(pace.soon_over(39));
        assert!(!pace.soon_over(41));
    }

    #[test]
    fn jobs_are_counted_by_the_time_that_they_take() {
        let pace = Pace::default();
        assert_eq!(pace.jobs_within(SOON * 5 / 2), 2);
        for _ in 0..100 {
            pace.note(1, 0);
        }
        assert!((100..=1_000).contains(&pace.jobs_within(1_000)));
    }

    #[test]
    fn a_long_job_is_remembered_for_a_while() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(10, 10 * 1_000);
        }
        assert!(pace.soon_over(2));
        pace.note(1, 2_000_000);
        for _ in 0..10 {
            assert!(!pace.soon_over(2));
            pace.note(10, 10 * 1_000);
        }
        for _ in 0..100 {
            pace.note(10, 10 * 1_000);
        }
        assert!(pace.soon_over(2));
    }

    #[test]
    fn an_interval_without_jobs_does_not_change_the_estimate() {
        let pace = Pace::default();
        pace.note(0, 1_000_000_000);
        pace.note(1, 0);
        for _ in 0..100 {
            pace.note(1, 0);
        }
        assert!(pace.soon_over(1_000));
    }
}
