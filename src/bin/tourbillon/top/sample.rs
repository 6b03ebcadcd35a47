//! Snapshots of a runtime, and what has happened between them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Deserialize;

/// A snapshot, as the inspector sends it. Fields that `top` does not show are left out.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) tourbillon: String,
    pub(super) pid: u32,
    /// Identifies the inspector: a process that begins anew has another one.
    instance: String,
    at_ms: f64,
    pub(super) uptime_ms: f64,
    pub(super) workers: Vec<Worker>,
    helpers: Helpers,
    pub(super) global_queue_depth: u64,
    pub(super) alive_tasks: u64,
    pub(super) stalls: Vec<Stall>,
    /// The upper bounds of the histogram's buckets, in ns. The last one has none.
    bounds_ns: Vec<Option<u64>>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) activity: String,
    pub(super) job: Option<Job>,
    counts: HashMap<String, u64>,
    pub(super) pending: u64,
    pub(super) queue_depth: u64,
    lateness: Lateness,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Job {
    pub(super) name: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Helpers {
    counts: HashMap<String, u64>,
    lateness: Lateness,
}

#[derive(Clone, Debug, Deserialize)]
struct Lateness {
    wake: Histogram,
    queue: Histogram,
    rescued: Histogram,
}

#[derive(Clone, Debug, Deserialize)]
struct Histogram {
    /// The buckets that are not empty, with their indices.
    buckets: Vec<(usize, u64)>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stall {
    job: String,
    spawned: Option<String>,
    elapsed_ms: f64,
}

/// A stage of lateness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    Wake,
    Queue,
    Rescued,
}

impl Stage {
    /// Returns the stage that comes after this one, and the first one after the last.
    pub(super) fn next(self) -> Self {
        match self {
            Self::Wake => Self::Queue,
            Self::Queue => Self::Rescued,
            Self::Rescued => Self::Wake,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Queue => "queue",
            Self::Rescued => "rescued",
        }
    }
}

impl Lateness {
    fn of(&self, stage: Stage) -> &Histogram {
        match stage {
            Stage::Wake => &self.wake,
            Stage::Queue => &self.queue,
            Stage::Rescued => &self.rescued,
        }
    }
}

/// Counts of timers by bucket.
#[derive(Debug, Default)]
pub(super) struct Buckets(BTreeMap<usize, u64>);

impl Buckets {
    /// Adds what `now` has more than `before`. Without `before`, that is all.
    fn add(&mut self, now: &Histogram, before: Option<&Histogram>) {
        let mut earlier = before.map(|old| old.buckets.iter().copied().collect::<HashMap<_, _>>());
        for &(bucket, count) in &now.buckets {
            let old = earlier.as_mut().and_then(|old| old.remove(&bucket));
            let grown = count.saturating_sub(old.unwrap_or(0));
            if grown > 0 {
                *self.0.entry(bucket).or_default() += grown;
            }
        }
    }

    pub(super) fn timers(&self) -> u64 {
        self.0.values().sum()
    }

    /// Returns the bucket of a quantile, or `None` if there are no timers.
    fn quantile(&self, quantile: f64) -> Option<usize> {
        let rank = (quantile * self.timers() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.0.iter().find_map(|(&bucket, &count)| {
            seen += count;
            (seen >= rank).then_some(bucket)
        })
    }
}

/// The stalls of one job.
#[derive(Debug)]
pub(super) struct Stalls<'a> {
    pub(super) job: &'a str,
    pub(super) spawned: &'a str,
    pub(super) times: usize,
    pub(super) longest_ms: f64,
}

/// Number of snapshots that are kept.
const KEPT: usize = 61;

/// The last snapshots of one program, from the oldest to the newest.
#[derive(Debug, Default)]
pub(super) struct History(VecDeque<Snapshot>);

impl History {
    /// Adds a snapshot. One of another process or runtime begins the history anew.
    pub(super) fn push(&mut self, snapshot: Snapshot) {
        let is_other = |last: &Snapshot| {
            last.instance != snapshot.instance || last.workers.len() != snapshot.workers.len()
        };
        if self.0.back().is_some_and(is_other) {
            self.0.clear();
        }
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(snapshot);
    }

    /// Returns the newest snapshot.
    pub(super) fn last(&self) -> Option<&Snapshot> {
        self.0.back()
    }

    /// Returns the newest two snapshots, if there are two.
    fn last_two(&self) -> Option<[&Snapshot; 2]> {
        let mut newest = self.0.iter().rev();
        let (last, before) = (newest.next()?, newest.next()?);
        Some([before, last])
    }

    /// Returns how much the sum of some counters has grown per second since the last snapshot, for
    /// one worker, or for all threads together.
    pub(super) fn rate(&self, worker: Option<usize>, counters: &[&str]) -> f64 {
        let Some([before, last]) = self.last_two() else {
            return 0.0;
        };
        let seconds = (last.at_ms - before.at_ms) / 1e3;
        if seconds <= 0.0 {
            return 0.0;
        }
        let grown: u64 = counters
            .iter()
            .map(|counter| {
                let sum = |snapshot: &Snapshot| match worker {
                    Some(worker) => count(&snapshot.workers[worker].counts, counter),
                    None => snapshot.total(counter),
                };
                sum(last).saturating_sub(sum(before))
            })
            .sum();
        grown as f64 / seconds
    }

    /// Returns how late timers were since the oldest snapshot: those of one worker, or all.
    pub(super) fn lateness(&self, worker: Option<usize>, stage: Stage) -> Buckets {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => last.since(first, worker, stage),
            _ => Buckets::default(),
        }
    }

    /// Returns the p99 of all timers between each two snapshots, in ns, from the oldest to the
    /// newest. Where no timer fired it is `None`.
    pub(super) fn high(&self, stage: Stage) -> Vec<Option<u64>> {
        let pairs = self.0.iter().zip(self.0.iter().skip(1));
        pairs
            .map(|(before, now)| now.bound(&now.since(before, None, stage), 0.99))
            .collect()
    }

    /// Returns the time that the history covers, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        match (self.0.front(), self.0.back()) {
            (Some(first), Some(last)) => (last.at_ms - first.at_ms) / 1e3,
            _ => 0.0,
        }
    }
}

/// Returns the value of a counter.
fn count(counts: &HashMap<String, u64>, counter: &str) -> u64 {
    counts.get(counter).copied().unwrap_or(0)
}

impl Snapshot {
    /// Returns the sum of a counter over all workers and helpers.
    pub(super) fn total(&self, counter: &str) -> u64 {
        let workers = self.workers.iter().map(|worker| &worker.counts);
        workers
            .chain([&self.helpers.counts])
            .map(|counts| count(counts, counter))
            .sum()
    }

    /// Returns how late timers were since an earlier snapshot: those of one worker, or all.
    fn since(&self, before: &Self, worker: Option<usize>, stage: Stage) -> Buckets {
        let mut buckets = Buckets::default();
        for (index, now) in self.workers.iter().enumerate() {
            if worker.is_none_or(|worker| worker == index) {
                let old = before.workers.get(index);
                buckets.add(
                    now.lateness.of(stage),
                    old.map(|old| old.lateness.of(stage)),
                );
            }
        }
        if worker.is_none() {
            let old = before.helpers.lateness.of(stage);
            buckets.add(self.helpers.lateness.of(stage), Some(old));
        }
        buckets
    }

    /// Returns the upper bound of the bucket of a quantile, in ns, or `None` if there are no
    /// timers. The last bucket has no upper bound, so this is that of the bucket before.
    pub(super) fn bound(&self, buckets: &Buckets, quantile: f64) -> Option<u64> {
        let bucket = buckets.quantile(quantile)?;
        let upto = &self.bounds_ns[..self.bounds_ns.len().min(bucket + 1)];
        upto.iter().rev().find_map(|bound| *bound)
    }

    /// Returns the stalls by job, those of the newest stall first.
    pub(super) fn stalls_by_job(&self) -> Vec<Stalls<'_>> {
        let mut jobs: Vec<Stalls<'_>> = Vec::new();
        for stall in self.stalls.iter().rev() {
            let (job, spawned) = (&*stall.job, stall.spawned.as_deref().unwrap_or(""));
            match jobs
                .iter_mut()
                .find(|of| (of.job, of.spawned) == (job, spawned))
            {
                Some(of) => {
                    of.times += 1;
                    of.longest_ms = of.longest_ms.max(stall.elapsed_ms);
                }
                None => jobs.push(Stalls {
                    job,
                    spawned,
                    times: 1,
                    longest_ms: stall.elapsed_ms,
                }),
            }
        }
        jobs
    }
}
