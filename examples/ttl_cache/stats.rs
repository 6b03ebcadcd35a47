//! Counters, and the lateness of expired keys.

use std::{
    sync::atomic::{
        AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    time::Duration,
};

/// A counter or gauge. A thread that reads it also sees the writes before the update.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, AcqRel);
    }

    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, AcqRel);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Acquire)
    }

    /// Adds `n` unless the sum would exceed `max`. Returns whether it did.
    pub fn add_up_to(&self, n: u64, max: u64) -> bool {
        // One atomic step: an addition that is undone later could make other additions fail
        // meanwhile.
        let add = |count: u64| count.checked_add(n).filter(|&sum| sum <= max);
        self.0.fetch_update(AcqRel, Acquire, add).is_ok()
    }
}

/// The server's counters.
#[derive(Debug, Default)]
pub struct Stats {
    /// Number of keys.
    pub keys: Count,
    /// Bytes of keys and values, and of the requests that are received in part.
    pub bytes: Count,
    /// Bytes of the requests that are received in part.
    pub requests: Count,
    /// Keys that their timers removed.
    pub expired_by_timer: Count,
    /// Expired keys that a command removed before their timers fired.
    pub expired_on_access: Count,
    /// Lateness of the timers.
    pub lateness: Lateness,
    /// Open connections.
    pub clients: Count,
    pub connections: Count,
    pub rejected: Count,
    pub closed_idle: Count,
    pub commands: Count,
}

/// Values from 2^n to 2^(n+1) share 2^STEPS buckets, so each value is exact to 6 %.
const STEPS: u32 = 4;
const BUCKETS: usize = ((64 - STEPS + 1) << STEPS) as usize;

/// A histogram of lateness. The width of a bucket grows with its values.
#[derive(Debug)]
pub struct Lateness {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

impl Default for Lateness {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }
}

/// Returns the bucket of a value in ns: its highest bit and the next STEPS bits.
fn bucket(nanos: u64) -> usize {
    let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(STEPS + 1);
    ((u64::from(shift) << STEPS) + (nanos >> shift)) as usize
}

/// Returns the largest value of a bucket.
fn upper(bucket: usize) -> u64 {
    let shift = (bucket >> STEPS).saturating_sub(1) as u32;
    let steps = bucket as u64 - (u64::from(shift) << STEPS);
    // In this order, because the last bucket ends at `u64::MAX`.
    (steps << shift) + ((1 << shift) - 1)
}

impl Lateness {
    pub fn record(&self, lateness: Duration) {
        let nanos = u64::try_from(lateness.as_nanos()).unwrap_or(u64::MAX);
        self.buckets[bucket(nanos)].fetch_add(1, Relaxed);
        // Write only a new maximum, so that threads can share the cache line.
        if nanos > self.max.load(Relaxed) {
            self.max.fetch_max(nanos, Relaxed);
        }
    }

    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max.load(Relaxed))
    }

    /// Returns the value that `part` per mille of the values do not exceed, or zero without values.
    pub fn per_mille(&self, part: u64) -> Duration {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|count| count.load(Relaxed))
            .collect();
        let total: u64 = counts.iter().sum();
        let rank = (total * part).div_ceil(1_000).max(1);
        let mut seen = 0;
        let found = counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        let nanos = found.map_or(0, upper);
        Duration::from_nanos(nanos).min(self.max())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_contain_their_values_and_are_narrow() {
        for nanos in (0..64)
            .map(|bits| 1_u64 << bits)
            .flat_map(|n| [n - 1, n, n | (n / 3), n | (n / 2)])
        {
            let bucket = bucket(nanos);
            assert!(nanos <= upper(bucket), "{nanos}");
            assert!(upper(bucket) - nanos <= nanos >> STEPS, "{nanos}");
            assert!(bucket == 0 || upper(bucket - 1) < nanos, "{nanos}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(upper(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn percentiles_match_the_recorded_values() {
        let lateness = Lateness::default();
        assert_eq!(lateness.per_mille(500), Duration::ZERO);
        for us in 1..=1_000 {
            lateness.record(Duration::from_micros(us));
        }
        let median = lateness.per_mille(500).as_nanos();
        assert!((500_000..532_000).contains(&median), "{median}");
        assert_eq!(lateness.per_mille(1_000), Duration::from_millis(1));
        assert_eq!(lateness.max(), Duration::from_millis(1));
    }
}
