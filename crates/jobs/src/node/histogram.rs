//! Histograms of the times of jobs.

use std::time::Duration;

/// The upper bounds of the buckets, in µs: from a job that is nearly on time to one of some hours.
const BOUNDS: [u64; 23] = [
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    900_000_000,
    3_600_000_000,
    21_600_000_000,
    86_400_000_000,
];

/// A histogram of times: buckets from 0.1 ms to a day, the sum, and the number.
///
/// ```
/// # use std::time::Duration;
/// # use tourbillon_jobs::node::Histogram;
/// let mut histogram = Histogram::default();
/// histogram.record(Duration::from_millis(2));
/// histogram.record(Duration::from_secs(3));
/// assert_eq!((histogram.count(), histogram.sum()), (2, Duration::from_millis(3002)));
/// let mut within = histogram.buckets().filter(|(_, within)| *within > 0);
/// assert_eq!(within.next(), Some((Duration::from_micros(2500), 1)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many times are in each bucket, and not in the ones before.
    counts: [u64; BOUNDS.len()],
    count: u64,
    sum: Duration,
}

impl Histogram {
    /// Records a time.
    pub fn record(&mut self, time: Duration) {
        let is_below = |bound: &u64| Duration::from_micros(*bound) < time;
        let bucket = BOUNDS.partition_point(is_below);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count += 1;
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(time);
    }

    /// Returns how many times were recorded.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the sum of all times.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the buckets, the shortest one first: each with its upper bound, and with how many
    /// times do not exceed it. So those of longer times count those of the shorter ones, too.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let mut within = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            within += count;
            (Duration::from_micros(*bound), within)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_within_its_bound() {
        let mut histogram = Histogram::default();
        let bound = Duration::from_micros(100);
        let longest = Duration::from_secs(86_400);
        for time in [Duration::ZERO, bound, bound + Duration::from_nanos(1)] {
            histogram.record(time);
        }
        histogram.record(longest);
        histogram.record(longest + Duration::from_nanos(1));
        histogram.record(Duration::MAX);
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets[0], (bound, 2));
        assert_eq!(buckets[1], (Duration::from_micros(250), 3));
        assert_eq!(buckets[BOUNDS.len() - 2].1, 3);
        assert_eq!(buckets[BOUNDS.len() - 1], (longest, 4));
        assert_eq!((histogram.count(), histogram.sum()), (6, Duration::MAX));
    }
}
