//! How long the jobs of a worker take, lately: whether it is worth it to wake a peer for a few of them.
//!
//! To wake a peer costs the one a system call and an interrupt of another core, and the other two switches and
//! what it has to fetch from the first one's cache. So for jobs that came together, from sockets and timers, nobody
//! is woken if they will be over before a peer could help much. Should one of them take longer than those before it,
//! the worker's alarm calls a peer, and who answers it sees to it that the rest are stolen.

use std::cell::Cell;

/// Jobs that take no longer together, in ns, are not worth it. Half of them could be had by a peer, and not before
/// it is awake, some 50 µs later on virtual machines; what waking costs, in processor time, is about as much.
const SOON: u64 = 200_000;
/// By which part of it, each time, it is forgotten that jobs took long.
const FORGET: u64 = 4;

/// How long a job takes, lately, in ns. More than that for a while after some took longer.
#[derive(Debug)]
pub(crate) struct Pace(Cell<u64>);

impl Default for Pace {
    /// As long as nothing is known, it may take any time.
    fn default() -> Self {
        Self(Cell::new(SOON))
    }
}

impl Pace {
    /// So many jobs took so long together, in ns.
    #[inline]
    pub(crate) fn note(&self, jobs: u64, took: u64) {
        if let Some(each) = took.checked_div(jobs) {
            let before = self.0.get();
            self.0.set(each.max(before - before / FORGET));
        }
    }

    /// Whether so many jobs will be over soon.
    pub(crate) fn soon_over(&self, jobs: usize) -> bool {
        self.0.get().saturating_mul(jobs as u64) < SOON
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_jobs_may_take_long_of_which_nothing_is_known() {
        assert!(!Pace::default().soon_over(1));
    }

    #[test]
    fn a_few_short_ones_are_soon_over_and_many_are_not() {
        let pace = Pace::default();
        for _ in 0..100 {
            pace.note(10, 10 * 5_000);
        }
        assert!(pace.soon_over(39));
        assert!(!pace.soon_over(41));
    }

    #[test]
    fn one_that_takes_long_is_remembered_for_a_while() {
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
    fn a_look_between_which_nothing_ran_says_nothing() {
        let pace = Pace::default();
        pace.note(0, 1_000_000_000);
        pace.note(1, 0);
        for _ in 0..100 {
            pace.note(1, 0);
        }
        assert!(pace.soon_over(1_000));
    }
}
