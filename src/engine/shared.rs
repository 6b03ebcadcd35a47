//! The state that all threads of a runtime share: queues, clocks, registries, and the shutdown.

use std::{iter, sync::Arc};

use arc_swap::ArcSwap;
use crossbeam::utils::CachePadded;
use tourbillon_pool::Period;
use tourbillon_sched::Limit;
use tourbillon_shards::{DrainedTimers, Kind, Names, Outcome};

use crate::{
    clock::runtime_clock::Clock,
    engine::{
        blocking::pool::Blocking,
        clocks::shard::{ClockShard, Clocks},
        config::Config,
        core::{Core, WorkerShard},
        groups::{GroupId, Groups, Options, Table},
        helpers::known::Helpers,
        id::Id,
        job::{Job, Order, TaskJob},
        lifecycle::Lifecycle,
        limits::Limits,
        local,
        mates::{Group, groups},
        paused::state::Quiescence,
        queues::Queues,
        recorder::Flight,
        task_core::{meta::TaskMeta, registry::Registry},
        watchdog::{rescuers::Rescuers, stall::Stalls},
    },
    error::{ArmError, GroupError},
    metrics::{
        counters::{Counter, Counters},
        recorder::Recorder,
    },
    sys::{
        cpu::RuntimeMask,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    util::{
        budget,
        contained::{each_or, forget},
    },
};

/// The workers of a runtime, by index. Empty before it runs and after it has ended.
pub(crate) type Workers = Vec<Arc<WorkerShard>>;

/// The number of parts of the table of timer names, per worker.
const NAME_PARTS: usize = 4;

/// The state of a runtime.
#[expect(
    missing_debug_implementations,
    reason = "not nameable outside of the crate"
)]
pub struct Shared {
    pub(crate) id: Id,
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    /// The cores of the threads that are not pinned.
    pub(crate) mask: Arc<RuntimeMask>,
    pub(crate) tasks: Registry<TaskMeta>,
    /// The threads for blocking code.
    pub(crate) blocking: CachePadded<Blocking<TaskJob>>,
    /// The helper threads, which run while workers are blocked.
    pub(crate) helpers: Helpers<WorkerShard>,
    /// How many workers are in `block_in_place`. A helper may run in place of each.
    pub(crate) in_place: AtomicUsize,
    /// Which threads wait. A paused clock advances when all of them do.
    pub(crate) quiescence: CachePadded<Quiescence>,
    pub(crate) workers: ArcSwap<Workers>,
    /// The metrics of each worker. They are here, so that they stay readable after the workers have
    /// ended.
    pub(crate) recorders: Box<[Arc<Recorder>]>,
    /// The stalls that were reported last.
    pub(crate) stalls: ArcSwap<Stalls>,
    pub(crate) flight: Flight,
    pub(crate) names: Arc<Names<Core>>,
    /// The queues that all workers share.
    pub(crate) queues: Queues<Job, DrainedTimers<Core>>,
    /// The wall clock and the boot-time clock, and their timers.
    pub(crate) clocks: Clocks,
    /// Whether the runtime runs, stops, or has ended.
    pub(crate) lifecycle: Lifecycle,
    /// The groups by which tasks share the workers' time.
    pub(crate) task_groups: Groups,
    /// The workers that share each core, if any do.
    pub(crate) groups: Box<[CachePadded<Group>]>,
    /// How many workers take part.
    pub(crate) limit: Limit,
    /// What sets that number.
    pub(crate) limits: Limits,
    /// Limits how many workers rescue others at once.
    pub(crate) rescuers: Rescuers,
    /// Whether a thread that arms a callback looks at the bound of pending ones, or at its group.
    pub(crate) arms_by_rules: AtomicBool,
    /// How many callback timers are pending. Counted only if the runtime has a bound.
    pending: CachePadded<AtomicUsize>,
    /// Whether the tasks were cancelled because one has panicked.
    #[cfg(feature = "facade")]
    pub(crate) has_panicked: std::sync::atomic::AtomicBool,
    #[cfg(all(feature = "facade", tokio_unstable))]
    pub(crate) unstable: CachePadded<crate::metrics::unstable::OfRuntime>,
    /// When a worker last began to look for unused memory of the shards, in ns by the kernel's
    /// clock.
    pub(crate) tidied: Period,
    /// Whether a subscriber was told that the runtime runs.
    #[cfg(feature = "tracing")]
    pub(crate) is_announced: std::sync::atomic::AtomicBool,
}

/// All shards of a runtime that have timers: those of the workers and of the clocks.
pub(crate) struct Shards {
    pub(crate) workers: Arc<Workers>,
    clocks: Arc<Vec<Arc<ClockShard>>>,
}

impl Shards {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &WorkerShard> {
        let clocks = self.clocks.iter().map(|clock| &clock.shard);
        self.workers.iter().chain(clocks).map(|shard| &**shard)
    }
}

/// Queues a task that is ready to run, on the calling worker if any worker may run it.
#[inline]
pub(crate) fn schedule(task: TaskJob, order: Order) {
    local::with_local(|local| match local {
        // The worker of this thread keeps its runtime alive, so the two can be compared by address.
        Some(local) if task.metadata().home().is_plain_of(local.shared()) => {
            local.schedule(task, order);
        }
        _ => schedule_elsewhere(task),
    });
}

/// Queues a task in the queue of its group, or in the injector of its runtime.
fn schedule_elsewhere(task: TaskJob) {
    // As soon as the task is queued, another thread may run it to its end and drop it. So hold the
    // runtime here.
    let home = task.metadata().home().clone();
    if let Some(shared) = home.shared() {
        match home.group() {
            GroupId::DEFAULT => shared.inject(Job::Task(task)),
            group => shared.queue_in(group, Job::Task(task)),
        }
    }
}

impl Shared {
    pub(crate) fn new(config: Config, mask: RuntimeMask, workers: usize) -> Self {
        Self {
            id: Id::fresh(),
            clock: Clock::new(),
            mask: Arc::new(mask),
            tasks: Registry::new(workers),
            blocking: CachePadded::default(),
            helpers: Helpers::default(),
            in_place: AtomicUsize::new(0),
            quiescence: CachePadded::default(),
            workers: ArcSwap::from_pointee(Vec::new()),
            recorders: (0..workers)
                .map(|_| {
                    #[allow(unused_mut, reason = "without tokio_unstable there are no histograms")]
                    let mut recorder = Recorder::new(workers);
                    #[cfg(all(feature = "facade", tokio_unstable))]
                    config.facade.measures.add_to(&mut recorder);
                    Arc::new(recorder)
                })
                .collect(),
            stalls: ArcSwap::default(),
            flight: Flight::new(&config, workers),
            names: Arc::new(Names::new(workers * NAME_PARTS)),
            queues: Queues::new(workers),
            clocks: Clocks::new(NAME_PARTS),
            lifecycle: Lifecycle::new(workers),
            task_groups: Groups::new(),
            groups: groups(&config, workers),
            limit: Limit::new(),
            limits: Limits::default(),
            rescuers: Rescuers::new(config.cores, config.rescue_latency),
            arms_by_rules: AtomicBool::new(config.max_timers.is_some()),
            pending: CachePadded::new(AtomicUsize::new(0)),
            tidied: Period::new(),
            #[cfg(feature = "facade")]
            has_panicked: false.into(),
            #[cfg(all(feature = "facade", tokio_unstable))]
            unstable: CachePadded::default(),
            #[cfg(feature = "tracing")]
            is_announced: false.into(),
            config,
        }
    }

    /// Queues a job from a remote thread in the injector, and wakes a worker.
    pub(crate) fn inject(&self, job: Job) {
        #[cfg(all(feature = "facade", tokio_unstable))]
        if matches!(job, Job::Task(_)) {
            self.unstable.remote_schedules.add(1);
        }
        self.queues.push(job);
        self.wake_for_injected();
    }

    /// Makes a group of tasks.
    pub(crate) fn make_group(&self, options: &Options) -> Result<GroupId, GroupError> {
        let (default, workers) = (&self.config.default_group, self.recorders.len());
        // Before a thread can be in the group.
        self.arms_by_rules.store(true, Ordering::Relaxed);
        self.task_groups.make(options, default, workers)
    }

    /// Returns the groups of tasks, and makes the default one if there is none.
    pub(crate) fn make_groups(&self) -> &Table {
        let (default, workers) = (&self.config.default_group, self.recorders.len());
        self.task_groups.make_table(default, workers)
    }

    /// Queues a job in the queue of its group, which is not the default one, and wakes a worker. In
    /// a batch of a worker, that is done once at the end.
    #[cold]
    pub(crate) fn queue_in(&self, group: GroupId, job: Job) {
        if let Some(table) = self.task_groups.table() {
            table.get(group).push(job);
            let batches =
                |local: Option<&local::Local>| local.is_some_and(local::Local::batches_for_groups);
            if !local::with_local_of(self, batches) {
                self.wake_for_injected();
            }
        }
    }

    /// Returns the job if it is in the default group. Another one goes to the queue of its group.
    pub(crate) fn unless_grouped(&self, job: Job) -> Option<Job> {
        match self.task_groups.table() {
            None => Some(job),
            Some(_) => match job.group() {
                GroupId::DEFAULT => Some(job),
                group => {
                    self.queue_in(group, job);
                    None
                }
            },
        }
    }

    /// Wakes a worker for a job that the caller has put into the injector, or into the queue of a
    /// group.
    pub(crate) fn wake_for_injected(&self) {
        self.wake_one();
        // After the fence in `wake_one`: either the thread that drains these queues for the last
        // time sees the job, or this thread sees that they are drained.
        if self.queues.is_drained() {
            self.drain_injected();
        }
    }

    /// Takes a job out of the injector, or out of the queue of any group.
    pub(crate) fn take_injected(&self) -> Option<Job> {
        self.queues.steal().or_else(|| self.task_groups.take())
    }

    /// Queues an outcome delivery or a task: in the queue of its group, on the calling worker, or in
    /// the injector.
    pub(crate) fn deliver(&self, job: Job) {
        let Some(job) = self.unless_grouped(job) else {
            return;
        };
        local::with_local_of(self, |local| match local {
            Some(local) => {
                // Not right here: the present job may hold a lock that the callback takes.
                local.deque.push(job);
                self.wake_one();
            }
            None => self.inject(job),
        });
    }

    /// Returns the shards of the workers.
    pub(crate) fn workers(&self) -> Arc<Workers> {
        self.workers.load_full()
    }

    /// Returns the shards of the workers and of the clocks.
    pub(crate) fn shards(&self) -> Shards {
        Shards {
            workers: self.workers(),
            clocks: self.clocks.all(),
        }
    }

    /// Returns how many callbacks still have to take their timers' outcomes.
    pub(crate) fn owes(&self) -> usize {
        let shards = self.shards();
        shards.iter().map(|shard| shard.owner().owes()).sum()
    }

    /// Counts an event of the calling thread: on its own counters if it is a worker of this
    /// runtime, otherwise on those of `foreign`, which many threads share.
    pub(crate) fn count_or<'a>(
        &self,
        counter: impl Fn(&Counters) -> &Counter,
        foreign: impl FnOnce() -> &'a Counters,
    ) {
        local::with_local_of(self, |local| match local {
            Some(local) => counter(&local.shard.owner().recorder.own).add_alone(1),
            // Several threads write these counters, so this takes a read-modify-write.
            None => counter(foreign()).add(1),
        });
    }

    /// Queues a task of this runtime that is ready to run.
    #[inline]
    pub(crate) fn schedule(&self, task: TaskJob, order: Order) {
        local::with_local_of(self, |local| match local {
            Some(local) => local.schedule(task, order),
            None => self.inject(Job::Task(task)),
        });
    }

    /// Returns whether a peer is called if one of so many workers is stuck. On a clock that was
    /// ever paused none is.
    pub(crate) fn is_watched(&self, workers: usize) -> bool {
        !self.clock.was_paused() && self.config.is_watched(workers)
    }

    /// Returns how many workers are awake. It is a hint.
    pub(crate) fn awake(&self) -> usize {
        let asleep = self.queues.searchers.parked() + self.retired_asleep();
        self.recorders.len().saturating_sub(asleep)
    }

    /// Calls `f` for each worker, and then for each helper.
    pub(crate) fn each_core(&self, mut f: impl FnMut(&Core)) {
        for worker in self.workers.load().iter() {
            f(worker.owner());
        }
        for helper in &self.helpers.known.load().list {
            f(helper.owner());
        }
    }

    /// Returns whether the threads in `block_on` run the runtime, and not workers' own threads.
    pub(crate) fn is_current_thread(&self) -> bool {
        self.config.is_current_thread()
    }

    /// Returns how many helpers may run now.
    #[inline]
    pub(crate) fn most_helpers(&self) -> usize {
        self.config.helpers.1 + self.in_place.load(Ordering::Relaxed)
    }

    /// Returns how many jobs the workers have run.
    pub(crate) fn jobs_run(&self) -> u64 {
        let workers = self.workers.load();
        let own = workers.iter().map(|worker| &worker.owner().recorder.own);
        own.map(|own| own.polls.get() + own.callbacks.get()).sum()
    }

    /// Counts a new pending callback timer. Fails if the limit is reached and `bounded` is true.
    #[inline]
    pub(crate) fn admit_timer(&self, bounded: bool) -> Result<(), ArmError> {
        let Some(max_timers) = self.config.max_timers else {
            return Ok(());
        };
        // A runtime that is shut down says so, and not that it is full: its shards end each timer.
        let admits = |pending| !bounded || pending < max_timers || self.is_stopping();
        let admit = |pending| admits(pending).then_some(pending + 1);
        match self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(ArmError::Full { max_timers }),
        }
    }

    /// Counts a timer that has ended with `how`. Sleeps do not count for `max_timers`, and neither
    /// do timers that were refused.
    #[inline]
    pub(crate) fn release_timer(&self, kind: Kind, how: Outcome) {
        let counts = kind != Kind::Sleep && how != Outcome::Refused;
        if counts && self.config.max_timers.is_some() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Runs `f`, the loop of a worker or of a `block_on`, in which each poll has a budget.
    pub(crate) fn around_polls<R>(&self, f: impl FnOnce() -> R) -> R {
        let f = || budget::around_polls(f);
        #[cfg(feature = "facade")]
        let f = || self.config.facade.around(f);
        f()
    }

    /// Returns whether the tasks were cancelled because one has panicked.
    #[inline]
    pub(crate) fn has_panicked(&self) -> bool {
        #[cfg(feature = "facade")]
        return self.has_panicked.load(Ordering::Relaxed);
        #[cfg(not(feature = "facade"))]
        false
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping()
    }

    /// Tells the workers to leave their loops, and the blocking threads to end after their last
    /// job.
    pub(crate) fn stop(&self) {
        // Its fence pairs with that of a worker that parks: the worker sees the flag, or is woken.
        self.lifecycle.set_stopping();
        self.blocking.stop();
        self.wake_all();
    }

    /// Wakes all workers, clocks and helpers, whatever they wait for.
    pub(crate) fn wake_all(&self) {
        for shard in self.shards().iter() {
            shard.wake();
        }
        self.helpers.wake_all();
    }

    /// Ends all jobs in the injector and in the queues of the groups, without running them.
    pub(crate) fn drain_injected(&self) {
        // Destructors and outcome callbacks are user code, and may panic.
        each_or(iter::from_fn(|| self.take_injected()), Job::end, forget);
    }
}
