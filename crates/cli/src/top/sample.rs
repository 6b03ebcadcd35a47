//! Snapshots of a runtime, and what has happened between them.

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::Deserialize;
use tourbillon_flight::own_line;

use super::bounds::{AtMost, Counts, Text, sum};

/// The most workers, and the most buckets of a histogram: many times what an inspector sends.
const WORKERS: usize = 4_096;
const BUCKETS: usize = 1_024;
/// The most groups of tasks.
const GROUPS: usize = 256;
/// The most stalls, stacks, and functions of a stack.
const STALLS: usize = 10_000;
const STACKS: usize = 2_000;
const FUNCTIONS: usize = 100;

/// A snapshot, as the inspector sends it. Fields that `top` does not show are left out.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) tourbillon: Text,
    pub(super) pid: u32,
    /// Identifies the inspector: a process that begins anew has another one.
    instance: Text,
    at_ms: f64,
    pub(super) uptime_ms: f64,
    pub(super) workers: AtMost<Worker, WORKERS>,
    helpers: Helpers,
    /// Older programs send none.
    #[serde(default)]
    pub(super) groups: AtMost<Group, GROUPS>,
    pub(super) global_queue_depth: u64,
    pub(super) alive_tasks: u64,
    pub(super) stalls: AtMost<Stall, STALLS>,
    /// Stacks of stalls, each once. Older programs send none.
    #[serde(default)]
    stacks: AtMost<AtMost<Text, FUNCTIONS>, STACKS>,
    /// The upper bounds of the histogram's buckets, in ns. The last one has none.
    bounds_ns: AtMost<Option<u64>, BUCKETS>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) activity: Text,
    pub(super) job: Option<Job>,
    counts: Counts,
    pub(super) pending: u64,
    pub(super) queue_depth: u64,
    lateness: Lateness,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Job {
    /// What the job says about itself.
    pub(super) label: Option<Text>,
    pub(super) name: Text,
    /// Older programs send none.
    #[serde(default)]
    pub(super) group: Option<Text>,
}

/// A group of tasks.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Group {
    pub(super) name: Text,
    busy_ms: f64,
    pub(super) queued: u64,
}

#[derive(Clone, Debug, Deserialize)]
struct Helpers {
    counts: Counts,
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
    buckets: AtMost<(usize, u64), BUCKETS>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Stall {
    /// What the job says about itself.
    label: Option<Text>,
    /// `None` if it is not known which of several jobs it was.
    job: Option<Text>,
    spawned: Option<Text>,
    /// Older programs send none.
    #[serde(default)]
    group: Option<Text>,
    elapsed_ms: f64,
    /// The places of its stacks.
    #[serde(default)]
    stacks: AtMost<usize, FUNCTIONS>,
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
        for &(bucket, count) in now.buckets.iter() {
            let old = earlier.as_mut().and_then(|old| old.remove(&bucket));
            let grown = count.saturating_sub(old.unwrap_or(0));
            if grown > 0 {
                let count = self.0.entry(bucket).or_default();
                *count = count.saturating_add(grown);
            }
        }
    }

    pub(super) fn timers(&self) -> u64 {
        sum(self.0.values().copied())
    }

    /// Returns the bucket of a quantile, or `None` if there are no timers.
    fn quantile(&self, quantile: f64) -> Option<usize> {
        let rank = (quantile * self.timers() as f64).ceil().max(1.0) as u64;
        let mut seen = 0_u64;
        self.0.iter().find_map(|(&bucket, &count)| {
            seen = seen.saturating_add(count);
            (seen >= rank).then_some(bucket)
        })
    }
}

/// The stalls of one job.
#[derive(Debug)]
pub(super) struct Stalls<'a> {
    pub(super) label: Option<&'a str>,
    pub(super) job: &'a str,
    pub(super) spawned: &'a str,
    pub(super) group: Option<&'a str>,
    pub(super) times: usize,
    pub(super) longest_ms: f64,
    /// The places of their stacks, each with a count.
    stacks: BTreeMap<usize, usize>,
}

/// Number of snapshots that are kept.
const KEPT: usize = 61;
/// How many bytes the snapshots that are kept have together, as they were sent: many times what
/// those of a real program have. The newest two are kept in any case.
const KEPT_BYTES: usize = 16 << 20;

/// The last snapshots of one program, from the oldest to the newest.
#[derive(Debug, Default)]
pub(super) struct History {
    snapshots: VecDeque<Snapshot>,
    /// The size of each of them.
    sizes: VecDeque<usize>,
}

impl History {
    /// Adds a snapshot. One of another process or runtime begins the history anew.
    pub(super) fn push(&mut self, snapshot: Snapshot, bytes: usize) {
        let is_other = |last: &Snapshot| {
            last.instance != snapshot.instance || last.workers.len() != snapshot.workers.len()
        };
        if self.snapshots.back().is_some_and(is_other) {
            self.snapshots.clear();
            self.sizes.clear();
        }
        self.snapshots.push_back(snapshot);
        self.sizes.push_back(bytes);
        let is_over = |sizes: &VecDeque<usize>| {
            sizes.len() > KEPT || (sizes.len() > 2 && sizes.iter().sum::<usize>() > KEPT_BYTES)
        };
        while is_over(&self.sizes) {
            self.snapshots.pop_front();
            self.sizes.pop_front();
        }
    }

    /// Returns the newest snapshot.
    pub(super) fn last(&self) -> Option<&Snapshot> {
        self.snapshots.back()
    }

    /// Returns the newest two snapshots, if there are two.
    fn last_two(&self) -> Option<[&Snapshot; 2]> {
        let mut newest = self.snapshots.iter().rev();
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
        let grown = counters.iter().map(|counter| {
            let of = |snapshot: &Snapshot| match worker {
                Some(worker) => snapshot.workers[worker].counts.get(counter),
                None => snapshot.total(counter),
            };
            of(last).saturating_sub(of(before))
        });
        sum(grown) as f64 / seconds
    }

    /// Returns how many cores a group of tasks has taken since the last snapshot.
    pub(super) fn cores_of(&self, group: usize) -> f64 {
        let Some([before, last]) = self.last_two() else {
            return 0.0;
        };
        let of = |snapshot: &Snapshot| snapshot.groups.get(group).map_or(0.0, |it| it.busy_ms);
        let elapsed = last.at_ms - before.at_ms;
        match elapsed > 0.0 {
            true => (of(last) - of(before)).max(0.0) / elapsed,
            false => 0.0,
        }
    }

    /// Returns how late timers were since the oldest snapshot: those of one worker, or all.
    pub(super) fn lateness(&self, worker: Option<usize>, stage: Stage) -> Buckets {
        match (self.snapshots.front(), self.snapshots.back()) {
            (Some(first), Some(last)) => last.since(first, worker, stage),
            _ => Buckets::default(),
        }
    }

    /// Returns the p99 of all timers between each two snapshots, in ns, from the oldest to the
    /// newest. Where no timer fired it is `None`.
    pub(super) fn high(&self, stage: Stage) -> Vec<Option<u64>> {
        let pairs = self.snapshots.iter().zip(self.snapshots.iter().skip(1));
        pairs
            .map(|(before, now)| now.bound(&now.since(before, None, stage), 0.99))
            .collect()
    }

    /// Returns the time that the history covers, in seconds.
    pub(super) fn seconds(&self) -> f64 {
        match (self.snapshots.front(), self.snapshots.back()) {
            (Some(first), Some(last)) => (last.at_ms - first.at_ms) / 1e3,
            _ => 0.0,
        }
    }
}

impl Snapshot {
    /// Returns the sum of a counter over all workers and helpers.
    pub(super) fn total(&self, counter: &str) -> u64 {
        let workers = self.workers.iter().map(|worker| &worker.counts);
        let all = workers.chain([&self.helpers.counts]);
        sum(all.map(|counts| counts.get(counter)))
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
        let upto = &self.bounds_ns[..self.bounds_ns.len().min(bucket.saturating_add(1))];
        upto.iter().rev().find_map(|bound| *bound)
    }

    /// Returns the stalls by job, those of the newest stall first.
    pub(super) fn stalls_by_job(&self) -> Vec<Stalls<'_>> {
        let mut jobs: Vec<Stalls<'_>> = Vec::new();
        let mut places = HashMap::new();
        for stall in self.stalls.iter().rev() {
            let job = stall
                .job
                .as_deref()
                .unwrap_or("one of several jobs, which were not timed");
            let spawned = stall.spawned.as_deref().unwrap_or("");
            let label = stall.label.as_deref();
            let group = stall.group.as_deref();
            let key = (label, job, spawned, group);
            let place = *places.entry(key).or_insert(jobs.len());
            if place == jobs.len() {
                jobs.push(Stalls {
                    label,
                    job,
                    spawned,
                    group,
                    times: 0,
                    longest_ms: stall.elapsed_ms,
                    stacks: BTreeMap::new(),
                });
            }
            let of = &mut jobs[place];
            of.times += 1;
            of.longest_ms = of.longest_ms.max(stall.elapsed_ms);
            for &place in &*stall.stacks {
                *of.stacks.entry(place).or_default() += 1;
            }
        }
        jobs
    }

    /// Returns the line of the stack that these stalls had most often, and how often they had it,
    /// of how many stacks. The line is that of the innermost function of the user.
    pub(super) fn line_of(&self, stalls: &Stalls<'_>) -> Option<(&str, usize, usize)> {
        let (place, times) = stalls.stacks.iter().max_by_key(|(_, times)| **times)?;
        let lines = self.stacks.get(*place)?;
        let line = own_line(lines.iter().map(|line| &**line))?;
        Some((line, *times, stalls.stacks.values().sum()))
    }
}
