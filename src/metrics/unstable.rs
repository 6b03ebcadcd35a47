//! What tokio counts with `tokio_unstable` and Tourbillon does not: for the package in the folder
//! `crates/tokio` alone.

use std::{
    sync::{Arc, Mutex},
    thread::ThreadId,
    time::Duration,
};

use super::counters::Counter;
use crate::util::lock::lock;

/// The counts of a runtime that many threads write.
#[derive(Debug, Default)]
pub(crate) struct OfRuntime {
    /// Tasks that were queued by a thread that is no worker.
    pub(crate) remote_schedules: Counter,
    /// Polls of a task whose budget was used up.
    pub(crate) forced_yields: Counter,
    pub(crate) registered: Counter,
    pub(crate) deregistered: Counter,
    /// Events of descriptors.
    pub(crate) ready: Counter,
}

/// The counts of a worker, which writes them alone.
#[derive(Debug, Default)]
pub(crate) struct OfWorker {
    /// Tasks that the worker has queued.
    pub(crate) schedules: Counter,
    /// Sleeps that followed another one without a job in between.
    pub(crate) noops: Counter,
    /// How many jobs the worker had run when it last went to sleep, and one more.
    jobs_at_sleep: Counter,
    /// A moving average, in ns.
    pub(crate) mean_poll: Counter,
    thread: Mutex<Option<ThreadId>>,
    pub(crate) poll_times: Option<Histogram>,
    pub(crate) latencies: Option<Histogram>,
}

impl OfWorker {
    pub(crate) fn set_thread(&self, thread: ThreadId) {
        *lock(&self.thread) = Some(thread);
    }

    pub(crate) fn thread(&self) -> Option<ThreadId> {
        *lock(&self.thread)
    }

    /// Notes that the worker goes to sleep after that many jobs.
    pub(crate) fn sleeps(&self, jobs: u64) {
        if self.jobs_at_sleep.get() == jobs + 1 {
            self.noops.add_alone(1);
        }
        self.jobs_at_sleep.set_alone(jobs + 1);
    }

    /// Notes that `polls` polls took `took` ns together.
    pub(crate) fn polled(&self, polls: u64, took: u64) {
        /// The weight of one poll in the average, as in tokio.
        const WEIGHT: f64 = 0.1;
        if polls > 0 {
            let before = self.mean_poll.get() as f64;
            let weight = 1.0 - (1.0 - WEIGHT).powf(polls as f64);
            let mean = took as f64 / polls as f64;
            let after = weight * mean + (1.0 - weight) * before;
            self.mean_poll.set_alone(after as u64);
        }
    }
}

/// Counts durations by their length.
#[derive(Debug)]
pub(crate) struct Histogram {
    /// The least duration of each bucket, in ns. The first is zero.
    starts: Arc<[u64]>,
    counts: Box<[Counter]>,
}

impl Histogram {
    pub(crate) fn new(starts: &Arc<[u64]>) -> Self {
        Self {
            starts: starts.clone(),
            counts: starts.iter().map(|_| Counter::default()).collect(),
        }
    }

    pub(crate) fn record(&self, ns: u64) {
        let after = self.starts.partition_point(|&start| start <= ns);
        self.counts[after.saturating_sub(1)].add_alone(1);
    }

    /// Returns the count of a bucket.
    pub(crate) fn count(&self, bucket: usize) -> u64 {
        self.counts[bucket].get()
    }
}

/// The least duration of each bucket of a histogram, in ns, if there is one.
pub type Buckets = Option<Arc<[u64]>>;

/// Returns the durations of a bucket.
pub(crate) fn range(buckets: &Buckets, bucket: usize) -> std::ops::Range<Duration> {
    let Some(starts) = buckets else {
        return Duration::ZERO..Duration::ZERO;
    };
    let end = starts.get(bucket + 1).copied().unwrap_or(u64::MAX);
    Duration::from_nanos(starts[bucket])..Duration::from_nanos(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_in_its_bucket() {
        let histogram = Histogram::new(&Arc::from([0, 10, 20]));
        for ns in [0, 9, 10, 19, 20, u64::MAX] {
            histogram.record(ns);
        }
        let counts: Vec<u64> = (0..3).map(|bucket| histogram.count(bucket)).collect();
        assert_eq!(counts, [2, 2, 2]);
    }

    #[test]
    fn a_sleep_without_a_job_before_it_is_counted() {
        let worker = OfWorker::default();
        for jobs in [0, 0, 1, 1, 1, 2] {
            worker.sleeps(jobs);
        }
        assert_eq!(worker.noops.get(), 3);
    }

    #[test]
    fn the_average_follows_the_polls() {
        let worker = OfWorker::default();
        worker.polled(0, 1_000_000);
        assert_eq!(worker.mean_poll.get(), 0);
        worker.polled(1000, 1000 * 5_000);
        assert_eq!(worker.mean_poll.get(), 5_000);
    }
}
