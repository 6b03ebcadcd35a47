//! Looking at a runtime: its metrics, and the stalls that were reported.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tourbillon_shards::{Owner, Shard};

use crate::{
    api::handle::Handle,
    clock::{instant::Instant, other::OtherClock},
    engine::{
        clocks::ClockShard,
        core::{Core, WorkerShard},
        shared::Shared,
        watchdog::stall::Stall,
    },
    metrics::{
        ClockMetrics, RuntimeMetrics, WorkerMetrics,
        activity::{Activity, JobName},
        recorder::Record,
    },
    sys::sync::atomic::Ordering,
};

/// How many stalls are kept.
const STALLS: usize = 64;

/// A stall that was reported, and when.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentStall {
    /// How many were reported before it, and one.
    pub number: u64,
    /// When it was reported, by the clock of the runtime.
    pub at: Instant,
    /// What was reported.
    pub stall: Stall,
}

/// The stalls that were reported last. Who reports one makes a new list, so that nobody waits for who reads it; of
/// addresses, since memory of more than 1,024 bytes may take glibc tens of ms where very many tasks have just been freed,
/// and that would be a stall.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    count: u64,
    recent: VecDeque<Arc<RecentStall>>,
}

impl Stalls {
    /// The list with one more.
    #[must_use]
    pub(crate) fn with(&self, stall: &Stall, at: Instant) -> Self {
        let number = self.count + 1;
        let mut recent = VecDeque::with_capacity(STALLS);
        let dropped = (self.recent.len() + 1).saturating_sub(STALLS);
        recent.extend(self.recent.iter().skip(dropped).cloned());
        recent.push_back(Arc::new(RecentStall {
            number,
            at,
            stall: stall.clone(),
        }));
        Self {
            count: number,
            recent,
        }
    }
}

/// A look at a shard: how many timers are stored, pending and garbage.
fn timers<O: Owner>(shard: &Shard<O>) -> (usize, usize, usize) {
    let (stored, garbage) = (shard.stored(), shard.garbage());
    (stored, stored.saturating_sub(garbage), garbage)
}

fn worker(shard: &WorkerShard, record: &Record) -> WorkerMetrics {
    let core = shard.owner();
    let tasks = &core.shared.tasks;
    let (stored, pending, garbage) = timers(shard);
    let (activity, job) = core.activity(shard);
    let record = record.clone();
    WorkerMetrics {
        counts: record.counts,
        stored,
        pending,
        garbage,
        queue_depth: core.stealer.len(),
        pinned_tasks: tasks.len(tasks.list_of_pinned(core.index)),
        sweeps: shard.sweeps(),
        wake_lateness: record.wake_lateness,
        queue_lateness: record.queue_lateness,
        rescued_lateness: record.rescued_lateness,
        timer_advance: Duration::from_nanos(core.recorder.advance.get()),
        steals_from: record.steals_from,
        rescued_from: record.rescued_from,
        cpu: core.pinned_to(),
        activity,
        job,
    }
}

/// What threads that are no workers have done with the timers of a clock, and what stands there.
fn clock(shared: &Shared, kind: OtherClock) -> ClockMetrics {
    let counts = shared.clock_counters[kind as usize].read();
    let Some(shard) = shared.clock_shard(kind) else {
        return ClockMetrics {
            counts,
            sweeps: shared.clock_sweeps[kind as usize].load(Ordering::Acquire),
            ..ClockMetrics::default()
        };
    };
    let (stored, pending, garbage) = timers(&shard);
    ClockMetrics {
        counts,
        stored,
        pending,
        garbage,
        sweeps: sweeps(shared, kind, &shard),
    }
}

/// How often the inbox of a clock was swept, which is not forgotten.
fn sweeps(shared: &Shared, kind: OtherClock, shard: &ClockShard) -> u64 {
    let sweeps = shard.sweeps();
    let known = shared.clock_sweeps[kind as usize].fetch_max(sweeps, Ordering::AcqRel);
    known.max(sweeps)
}

/// Keeps what would go with the shards of the clocks. Before they are let go of.
pub(crate) fn keep_sweeps(shared: &Shared) {
    for clock in shared.clocks().iter() {
        sweeps(shared, clock.owner().kind(), clock);
    }
}

impl Core {
    /// What the worker of `shard`, which is its, is at.
    fn activity(&self, shard: &WorkerShard) -> (Activity, Option<JobName>) {
        if shard.parker().is_awake() {
            self.watch.activity()
        } else {
            (Activity::Parked, None)
        }
    }

    /// The core of the machine that it is pinned to.
    fn pinned_to(&self) -> Option<usize> {
        let pins = self.shared.config.pins.as_ref()?;
        pins.get(self.index).copied()
    }
}

impl Handle {
    /// What the runtime has done, and what it has to do. See [`metrics`](crate::metrics).
    ///
    /// It takes some microseconds for each worker: to be called a few times a second. Counters are read without a
    /// lock. Two figures are under one that others may wait for, for the moment in which a number is read: the blocking
    /// threads' (which [`spawn_blocking`](crate::task::blocking::spawn_blocking) takes), and, one worker after the other, that
    /// of the tasks that are [pinned](WorkerMetrics::pinned_tasks) to it (taken where one of these begins and ends).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::Runtime::builder().worker_threads(2).build().unwrap();
    /// let timer = runtime.after(Duration::from_secs(60), || ());
    /// let metrics = runtime.metrics();
    /// assert_eq!(metrics.num_workers(), 2);
    /// assert_eq!(metrics.total().armed(), 1);
    /// # timer.cancel();
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        let shared = self.shared();
        // Before the list of the workers: those that are on it have written all of theirs to these.
        let records: Vec<_> = shared.recorders.iter().map(|it| it.read()).collect();
        let mut done = Record::default();
        records.iter().for_each(|record| done += record);
        let workers = shared.workers.load();
        let workers = workers.iter().zip(&records);
        let (alive_tasks, spawned_tasks) = shared.tasks.counts();
        RuntimeMetrics {
            workers: workers
                .map(|(shard, record)| worker(shard, record))
                .collect(),
            done,
            helpers: shared.helpers.metrics(shared),
            wall_clock: clock(shared, OtherClock::Wall),
            boot_clock: clock(shared, OtherClock::Boot),
            injector_depth: shared.injector.len(),
            alive_tasks,
            spawned_tasks,
            blocking: shared.blocking.metrics(),
        }
    }

    /// What each worker is at, by its number, and at which job: see
    /// [`WorkerMetrics::activity`](crate::metrics::WorkerMetrics::activity). Some loads for each worker, for who looks
    /// hundreds of times a second. Empty once the runtime has ended.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::builder().worker_threads(2).build().unwrap();
    /// assert_eq!(runtime.handle().activities().len(), 2);
    /// ```
    pub fn activities(&self) -> Vec<(Activity, Option<JobName>)> {
        let workers = self.shared().workers.load();
        let workers = workers.iter();
        workers.map(|shard| shard.owner().activity(shard)).collect()
    }

    /// The last 64 [stalls](crate::runtime::Builder::stall_threshold) that were reported, the oldest first, with their numbers:
    /// 1, 2, 3 and so on.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// for recent in runtime.handle().recent_stalls() {
    ///     println!("{} at {:?}: {}", recent.number, recent.at, recent.stall);
    /// }
    /// ```
    pub fn recent_stalls(&self) -> Vec<RecentStall> {
        let stalls = self.shared().stalls.load_full();
        let recent = stalls.recent.iter();
        recent.map(|stall| RecentStall::clone(stall)).collect()
    }
}
