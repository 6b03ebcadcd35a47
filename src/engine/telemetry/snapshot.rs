//! Snapshots of a runtime: its metrics, and the stalls that were reported.

use std::{sync::Arc, time::Duration};

use tourbillon_shards::Shard;

use crate::{
    clock::other::OtherClock,
    engine::{
        blocking::pool::BlockingJob,
        clocks::shard::ClockShard,
        core::{Core, WorkerShard},
        handle::Handle,
        local,
        shared::Shared,
        watchdog::stall::{RecentStall, Stall},
    },
    metrics::{
        ClockMetrics, GroupMetrics, RuntimeMetrics, WorkerMetrics,
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

/// Returns the metrics of the groups of tasks, the default one first.
fn groups(shared: &Shared) -> Vec<GroupMetrics> {
    let Some(groups) = shared.task_groups.table() else {
        return Vec::new();
    };
    // The jobs of the default group are in the injector and in the deques.
    let mut others = shared.queues.len();
    shared.each_core(|core| others += core.stealer.len());
    let groups = groups.iter();
    groups
        .map(|group| group.metrics(std::mem::take(&mut others)))
        .collect()
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

/// Returns what the calling thread does as a worker or helper, with the job that it runs, or `None`
/// on any other thread.
///
/// It is as in [`Handle::activities`]. It only reads, so a signal handler may call it: a profiler
/// then knows which job it has interrupted.
///
/// ```
/// use tourbillon::{metrics::Activity, runtime::worker_activity, task};
///
/// async fn served() -> &'static str {
///     task::label("GET /report");
///     let (activity, job) = worker_activity().unwrap();
///     assert_eq!(activity, Activity::Running);
///     job.unwrap().label.unwrap()
/// }
/// let runtime = tourbillon::Runtime::new().unwrap();
/// assert_eq!(runtime.block_on(runtime.spawn(served())).unwrap(), "GET /report");
/// assert!(worker_activity().is_none());
/// ```
pub fn worker_activity() -> Option<(Activity, Option<JobName>)> {
    local::with_local(|local| {
        let shard = &local?.shard;
        Some(shard.owner().activity(shard))
    })
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

impl Handle {
    /// Returns a snapshot of what the runtime has done and has to do. See
    /// [`metrics`](crate::metrics).
    ///
    /// It takes some µs for each worker, so call it at most a few times a second. Counters are read
    /// without a lock. Two numbers are read under a lock, which is held only for that read: those
    /// of the blocking threads (the lock that
    /// [`spawn_blocking`](crate::task::blocking::spawn_blocking) takes), and for each worker the
    /// number of tasks [pinned](crate::metrics::WorkerMetrics::pinned_tasks) to it (the lock that
    /// such a task takes when it begins and ends).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
    /// let timer = runtime.handle().after(Duration::from_secs(60), || ());
    /// let metrics = runtime.metrics();
    /// assert_eq!(metrics.num_workers(), 2);
    /// assert_eq!(metrics.total().armed(), 1);
    /// # timer.cancel();
    /// ```
    pub fn metrics(&self) -> RuntimeMetrics {
        let shared = self.shared();
        // Read the records before the list of workers: those that are listed then have all of their
        // numbers in these records.
        let records: Vec<_> = shared.recorders.iter().map(|it| it.read()).collect();
        let mut done = Record::default();
        records.iter().for_each(|record| done += record);
        let workers = shared.workers.load();
        let active_workers = shared.active_workers(workers.len());
        let workers = workers.iter().zip(&records);
        let (alive_tasks, spawned_tasks) = shared.tasks.counts();
        RuntimeMetrics {
            workers: workers
                .map(|(shard, record)| worker(shard, record))
                .collect(),
            active_workers,
            done,
            helpers: shared.helpers.metrics(shared),
            wall_clock: clock(shared, OtherClock::Wall),
            boot_clock: clock(shared, OtherClock::Boot),
            groups: groups(shared),
            injector_depth: shared.queues.len(),
            alive_tasks,
            spawned_tasks,
            blocking: shared.blocking.metrics(),
            throttled: quota::throttled().unwrap_or_default(),
        }
    }

    /// Returns the current activity of each worker, by worker number, with the job that it runs:
    /// see [`WorkerMetrics::activity`](crate::metrics::WorkerMetrics::activity).
    ///
    /// It takes only a few loads for each worker, so it may be called hundreds of times a second.
    /// The list is empty once the runtime has ended.
    ///
    /// ```
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
    /// assert_eq!(runtime.handle().activities().len(), 2);
    /// ```
    pub fn activities(&self) -> Vec<(Activity, Option<JobName>)> {
        let workers = self.shared().workers.load();
        let workers = workers.iter();
        workers.map(|shard| shard.owner().activity(shard)).collect()
    }

    /// Returns the numbers that the system gives to the threads of the workers and helpers, as in
    /// `/proc/self/task`.
    ///
    /// A thread that has not begun is not among them. The thread of a current-thread runtime is
    /// that of the last `block_on`.
    ///
    /// ```
    /// let runtime = tourbillon::runtime::Builder::new().worker_threads(2).build().unwrap();
    /// assert!(runtime.handle().threads().len() <= 2);
    /// ```
    pub fn threads(&self) -> Vec<u32> {
        let mut threads = Vec::new();
        self.shared().each_core(|core| {
            threads.push(core.thread.load(Ordering::Relaxed));
        });
        threads.retain(|&thread| thread != 0);
        threads
    }

    /// Returns whether the job of a stall of this runtime still runs. The job may end at any moment
    /// after that.
    pub fn still_runs(&self, stall: &Stall) -> bool {
        let mut runs = false;
        self.shared().each_core(|core| {
            let is_at = || core.watchdog.watch.number() == Some(stall.job_number);
            runs |= core.index == stall.worker && stall.is_running && is_at();
        });
        runs
    }

    /// Adds the text of a stack to a recent stall of this runtime, so that all that shows stalls
    /// shows it: [`recent_stalls`](Handle::recent_stalls), the
    /// [flight recorder](crate::flight::Snapshot::stacks), and with feature `tracing` an event. The
    /// crate `tourbillon-stacks` does it.
    ///
    /// The text has a line for each function, innermost first. The last 16 of a stall are kept.
    pub fn add_stack(&self, stall: &Stall, stack: Arc<str>) {
        self.shared()
            .stalls
            .rcu(|stalls| stalls.with_stack(stall.number, &stack));
        #[cfg(feature = "tracing")]
        crate::engine::watchdog::report::trace(&Stall {
            stacks: vec![stack],
            ..stall.clone()
        });
    }

    /// Returns the jobs of [`spawn_blocking`](crate::task::spawn_blocking) that run, oldest first.
    /// They may block, so they are no [stalls](crate::runtime::Builder::stall_threshold).
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// for running in runtime.handle().blocking_jobs() {
    ///     println!("{} has run for {:?}", running.job, running.elapsed);
    /// }
    /// ```
    pub fn blocking_jobs(&self) -> Vec<BlockingJob> {
        self.shared().blocking.running()
    }

    /// Returns the last 64 reported [stalls](crate::runtime::Builder::stall_threshold), oldest
    /// first. Each has its number: 1, 2, 3 and so on.
    ///
    /// ```
    /// let runtime = tourbillon::Runtime::new().unwrap();
    /// for recent in runtime.handle().recent_stalls() {
    ///     println!("{} at {:?}: {}", recent.stall.number, recent.at, recent.stall);
    /// }
    /// ```
    pub fn recent_stalls(&self) -> Vec<RecentStall> {
        let stalls = self.shared().stalls.load_full();
        let recent = stalls.recent.iter();
        recent.map(|stall| RecentStall::clone(stall)).collect()
    }
}
