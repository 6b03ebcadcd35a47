//! Which part of each priority's requests is admitted.

use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::Priority;

/// The whole, as a share.
const ALL: u32 = u32::MAX;

/// Counts and shares by priority, but for [`Priority::Always`].
#[derive(Debug)]
pub(crate) struct Shares([Share; 3]);

#[derive(Debug)]
struct Share {
    /// The part that is admitted.
    part: AtomicU32,
    /// The sum of the parts of all requests so far, without the wholes.
    sum: AtomicU32,
    arrived: AtomicU64,
    refused: AtomicU64,
}

impl Shares {
    pub(crate) fn new() -> Self {
        Self(
            [Priority::Low, Priority::Normal, Priority::High].map(|_| Share {
                part: AtomicU32::new(ALL),
                sum: AtomicU32::new(0),
                arrived: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        )
    }

    /// Counts a request, and says whether it is admitted.
    pub(crate) fn admit(&self, priority: Priority) -> bool {
        let Some(share) = self.0.get(priority as usize) else {
            return true;
        };
        share.arrived.fetch_add(1, Relaxed);
        let part = share.part.load(Acquire);
        // A request is admitted whenever the sum passes the next whole. So those that are admitted
        // are spread evenly, and no random number is needed.
        let admitted = part == ALL
            || share
                .sum
                .fetch_add(part, Relaxed)
                .checked_add(part)
                .is_none();
        if !admitted {
            share.refused.fetch_add(1, Relaxed);
        }
        admitted
    }

    /// How many requests came so far, and how many of them were refused, by priority.
    pub(crate) fn counts(&self) -> [(u64, u64); 3] {
        [0, 1, 2].map(|priority| {
            let share = &self.0[priority];
            (share.arrived.load(Relaxed), share.refused.load(Relaxed))
        })
    }

    /// Admits `rate` requests in the time in which as many of each priority as `arrived` says came:
    /// those of the highest priority first. `None` admits all.
    pub(crate) fn set(&self, rate: Option<f64>, arrived: [f64; 3]) {
        let mut left = rate.unwrap_or(f64::INFINITY);
        for (share, arrived) in self.0.iter().zip(arrived).rev() {
            // If none came, none is refused: there is nothing to gain.
            let part = if arrived <= left { 1.0 } else { left / arrived };
            left = (left - arrived).max(0.0);
            share.part.store((part * f64::from(ALL)) as u32, Release);
        }
    }

    /// The part of all requests that is refused at present, weighed by what came.
    pub(crate) fn refused(&self, arrived: [f64; 3]) -> f64 {
        let all: f64 = arrived.iter().sum();
        let refused = self.0.iter().zip(arrived).map(|(share, arrived)| {
            let part = f64::from(share.part.load(Relaxed)) / f64::from(ALL);
            arrived * (1.0 - part)
        });
        if all > 0.0 {
            refused.sum::<f64>() / all
        } else {
            0.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(shares: &Shares, priority: Priority, requests: u32) -> u32 {
        (0..requests)
            .map(|_| u32::from(shares.admit(priority)))
            .sum()
    }

    #[test]
    fn lower_priorities_are_refused_first() {
        use Priority::*;
        let shares = Shares::new();
        let all = [Low, Normal, High, Always];
        assert_eq!(
            all.map(|priority| admitted(&shares, priority, 100)),
            [100; 4]
        );
        for (rate, expected) in [
            (300.0, [100, 100, 100, 100]),
            (250.0, [50, 100, 100, 100]),
            (200.0, [0, 100, 100, 100]),
            (125.0, [0, 25, 100, 100]),
            (10.0, [0, 0, 10, 100]),
            (0.0, [0, 0, 0, 100]),
        ] {
            shares.set(Some(rate), [100.0; 3]);
            for (priority, expected) in all.into_iter().zip(expected) {
                let admitted = admitted(&shares, priority, 100);
                assert!(
                    admitted.abs_diff(expected) <= 1,
                    "{rate} {priority:?}: {admitted}"
                );
            }
        }
        shares.set(None, [100.0; 3]);
        assert_eq!(admitted(&shares, Low, 100), 100);
    }

    #[test]
    fn those_that_are_admitted_are_spread_evenly() {
        let shares = Shares::new();
        shares.set(Some(25.0), [0.0, 100.0, 0.0]);
        let mut last = 0;
        for request in 1..=1_000 {
            if shares.admit(Priority::Normal) {
                assert!(request - last <= 5, "{last} to {request}");
                last = request;
            }
        }
        assert!(last > 995);
    }

    #[test]
    fn requests_are_counted() {
        let shares = Shares::new();
        shares.set(Some(0.0), [10.0, 10.0, 10.0]);
        admitted(&shares, Priority::Low, 3);
        admitted(&shares, Priority::Always, 7);
        assert_eq!(shares.counts(), [(3, 3), (0, 0), (0, 0)]);
        assert_eq!(shares.refused([1.0, 0.0, 0.0]), 1.0);
        assert_eq!(shares.refused([0.0; 3]), 0.0);
    }
}
