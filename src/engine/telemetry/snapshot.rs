//! Snapshots of a runtime: its metrics, and the stalls that were reported.

use std::time::Duration;

use tourbillon_shards::Shard;

use crate::{
    clock::other::OtherClock,
    engine::{
        clocks::shard::ClockShard,
        core::{Core, WorkerShard},
        shared::Shared,
        watchdog::stall::RecentStall,
    },
    metrics::{
        ClockMetrics, RuntimeMetrics, WorkerMetrics,
        activity::{Activity, JobName},
        recorder::Record,
    },
    sys::{quota, sync::atomic::Ordering},
};

/// Returns how many timers of a shard are stored, pending and garbage.
fn timers(shard: &Shard<Core>) -> (usize, usize, usize) {
    let (stored, garbage) = (shard.stored(), shard.garbage());
    (stored, stored.saturating_sub(garbage), garbage)
}

/// Returns the metrics of one worker. `record` is a copy of its recorder.
fn worker(shard: &WorkerShard, record: &Record) -> WorkerMetrics {
    let core = shard.owner();
    let tasks = &core.shared.tasks;
    let (stored, pending, garbage) = timers(shard);
    // Each number is read on its own, so numbers of one snapshot may differ by work done meanwhile.
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

/// Returns the metrics of a clock: its stored timers, and the counts of threads that are not
/// workers.
fn clock(shared: &Shared, kind: OtherClock) -> ClockMetrics {
    let counts = shared.clocks.counts(kind);
    // After the runtime has ended only the counters are left.
    let Some(clock) = shared.clocks.get(kind) else {
        return ClockMetrics {
            counts,
            sweeps: shared.clocks.sweeps[kind as usize].load(Ordering::Acquire),
            ..ClockMetrics::default()
        };
    };
    let (stored, pending, garbage) = timers(&clock.shard);
    ClockMetrics {
        counts,
        stored,
        pending,
        garbage,
        sweeps: sweeps(shared, &clock),
    }
}

/// Returns how often the inbox of a clock was swept. The number is also kept in `shared`.
fn sweeps(shared: &Shared, clock: &ClockShard) -> u64 {
    let sweeps = clock.shard.sweeps();
    // Several threads may read the shard's number at once. The greatest one stays, also when the
    // shard has gone.
    let known = shared.clocks.sweeps[clock.kind as usize].fetch_max(sweeps, Ordering::AcqRel);
    known.max(sweeps)
}

/// Keeps the sweep counts of the clocks in `shared`. Call it before their shards are dropped.
pub(crate) fn keep_sweeps(shared: &Shared) {
    for clock in shared.clocks.all().iter() {
        sweeps(shared, clock);
    }
}

impl Core {
    /// Returns the current activity of this core's worker, whose shard is `shard`.
    fn activity(&self, shard: &WorkerShard) -> (Activity, Option<JobName>) {
        // The watch keeps no sign of a sleep, so ask the parked word first.
        if shard.parker().is_awake() {
            self.watchdog.watch.activity()
        } else {
            (Activity::Parked, None)
        }
    }

    /// Returns the processor core that the worker is pinned to.
    fn pinned_to(&self) -> Option<usize> {
        let pins = self.shared.config.pins.as_ref()?;
        pins.get(self.index).copied()
    }
}

/// Returns what the runtime has done, and what it has to do.
pub(crate) fn metrics(shared: &Shared) -> RuntimeMetrics {
    // Read the records before the list of workers: those that are listed then have all of their
    // numbers in these records.
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
        injector_depth: shared.queues.len(),
        alive_tasks,
        spawned_tasks,
        blocking: shared.blocking.metrics(),
        throttled: quota::throttled().unwrap_or_default(),
    }
}

/// Returns the current activity of each worker, by worker number.
pub(crate) fn activities(shared: &Shared) -> Vec<(Activity, Option<JobName>)> {
    let workers = shared.workers.load();
    let workers = workers.iter();
    workers.map(|shard| shard.owner().activity(shard)).collect()
}

/// Returns the stalls that were reported last, oldest first.
pub(crate) fn recent_stalls(shared: &Shared) -> Vec<RecentStall> {
    let stalls = shared.stalls.load_full();
    let recent = stalls.recent.iter();
    recent.map(|stall| RecentStall::clone(stall)).collect()
}
