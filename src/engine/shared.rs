//! What all threads of a runtime share.

use std::sync::Arc;

use arc_swap::ArcSwap;
use crossbeam::utils::CachePadded;
use tourbillon_shards::{Names, SearchClaim};

use crate::{
    clock::runtime_clock::Clock,
    engine::{
        blocking::pool::Blocking,
        clocks::owner::Clocks,
        config::Config,
        context::spread,
        core::{Core, WorkerShard},
        helpers::known::Helpers,
        job::{Ending, Job, Order, TaskJob},
        lifecycle::Lifecycle,
        local,
        paused::state::Quiescence,
        queues::Queues,
        task_core::{meta::TaskMeta, registry::Registry},
        watchdog::{rescuers::Rescuers, stall::Stalls},
    },
    error::ArmError,
    metrics::{
        counters::{Counter, Counters},
        recorder::Recorder,
    },
    sys::sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    util::contained::contained,
};

/// The workers of a runtime, by their numbers. Empty before it runs and after it has ended.
pub(crate) type Workers = Vec<Arc<WorkerShard>>;

/// The parts of the table of names, for each worker.
const NAME_PARTS: usize = 4;

/// The state of a runtime.
#[expect(missing_debug_implementations, reason = "nobody outside can name it")]
pub struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) tasks: Registry<TaskMeta>,
    /// The threads that may block.
    pub(crate) blocking: CachePadded<Blocking<TaskJob>>,
    /// The threads that come when no worker does.
    pub(crate) helpers: Helpers<WorkerShard>,
    /// How many workers are in `block_in_place`, each of which may have a helper in its place.
    pub(crate) in_place: AtomicUsize,
    /// Who waits, for a clock that is paused.
    pub(crate) quiescence: CachePadded<Quiescence>,
    pub(crate) workers: ArcSwap<Workers>,
    /// What each worker writes down. Here, so that it can be read when they have ended.
    pub(crate) recorders: Box<[Arc<Recorder>]>,
    /// The stalls that were reported last.
    pub(crate) stalls: ArcSwap<Stalls>,
    pub(crate) names: Arc<Names<Core>>,
    /// The queues that all workers share.
    pub(crate) queues: Queues<Job, Box<dyn Ending>>,
    /// The wall clock and the boot-time clock, and their timers.
    pub(crate) clocks: Clocks,
    /// Whether the runtime runs, stops, or has ended.
    pub(crate) lifecycle: Lifecycle,
    /// Those that come to the aid of others.
    pub(crate) rescuers: Rescuers,
    /// Pending callback timers, counted only where there is a bound.
    pending: CachePadded<AtomicUsize>,
    /// When a worker last began to look at the shards' memory, in ns by the kernel's clock.
    pub(crate) tidied: AtomicU64,
}

/// Queues a task that became ready, and that any worker of its runtime may run.
#[inline]
pub(crate) fn schedule(task: TaskJob, order: Order) {
    local::with_local(|local| match local {
        // The thread keeps the runtime.
        Some(local) if task.metadata().home().is_of(local.shared()) => local.schedule(task, order),
        _ => schedule_elsewhere(task),
    });
}

fn schedule_elsewhere(task: TaskJob) {
    // As soon as it is queued another thread may run it to its end, and with it goes what it keeps.
    let home = task.metadata().home().clone();
    if let Some(shared) = home.shared() {
        shared.inject(Job::Task(task));
    }
}

impl Shared {
    pub(crate) fn new(config: Config, workers: usize) -> Self {
        Self {
            clock: Clock::new(),
            tasks: Registry::new(workers),
            blocking: CachePadded::default(),
            helpers: Helpers::default(),
            in_place: AtomicUsize::new(0),
            quiescence: CachePadded::default(),
            workers: ArcSwap::from_pointee(Vec::new()),
            recorders: (0..workers)
                .map(|_| Arc::new(Recorder::new(workers)))
                .collect(),
            stalls: ArcSwap::default(),
            names: Arc::new(Names::new(workers * NAME_PARTS)),
            queues: Queues::new(workers),
            clocks: Clocks::new(NAME_PARTS),
            lifecycle: Lifecycle::new(workers),
            rescuers: Rescuers::on(config.cores),
            pending: CachePadded::new(AtomicUsize::new(0)),
            tidied: AtomicU64::new(0),
            config,
        }
    }

    /// Queues a job from outside of the workers.
    pub(crate) fn inject(&self, job: Job) {
        self.queues.push(job);
        self.wake_one();
        // Behind the fence of `wake_one`: either who drains for the last time sees the job, or we
        // see that it has.
        if self.queues.is_drained() {
            self.drain_injector();
        }
    }

    /// Queues what is to be run or told: on this worker, if the calling thread is one.
    pub(crate) fn deliver(&self, job: Job) {
        local::with_local(|local| match local {
            Some(local) if local.is_of(self) => {
                local.deque.push(job);
                self.wake_one();
            }
            _ => self.inject(job),
        });
    }

    /// The workers' shards.
    pub(crate) fn workers(&self) -> Arc<Workers> {
        self.workers.load_full()
    }

    /// How many callbacks are still to be told how their timers ended.
    pub(crate) fn owes(&self) -> usize {
        let workers: usize = self
            .workers
            .load()
            .iter()
            .map(|worker| worker.owner().owes())
            .sum();
        workers + self.clocks.owes()
    }

    /// Counts as the calling worker's, if the thread is one of this runtime's, or else with those counters, which
    /// many threads share.
    pub(crate) fn count_or<'a>(
        &self,
        counter: impl Fn(&Counters) -> &Counter,
        foreign: impl FnOnce() -> &'a Counters,
    ) {
        local::with_local(|local| match local {
            Some(local) if local.is_of(self) => {
                counter(&local.shard.owner().recorder.own).add_alone(1);
            }
            _ => counter(foreign()).add(1),
        });
    }

    /// Queues a task of this runtime that became ready.
    #[inline]
    pub(crate) fn schedule(&self, task: TaskJob, order: Order) {
        local::with_local(|local| match local {
            Some(local) if local.is_of(self) => local.schedule(task, order),
            _ => self.inject(Job::Task(task)),
        });
    }

    /// After work was queued: wakes a worker to search for it, if one sleeps and none searches.
    #[inline]
    pub(crate) fn wake_one(&self) {
        self.queues
            .searchers
            .wake_one(|| self.wake_any(), || self.has_work());
    }

    #[cold]
    fn wake_any(&self) -> bool {
        let workers = self.workers.load();
        let first = spread::spread();
        (0..workers.len())
            .map(|i| &workers[(first + i) % workers.len()])
            .any(|worker| {
                let claim = worker.parker().claim_for_search();
                if claim == SearchClaim::Asleep {
                    worker.owner().wake_to_search();
                }
                claim != SearchClaim::Refused
            })
    }

    /// How many workers are awake. A hint.
    pub(crate) fn awake(&self) -> usize {
        let workers = self.recorders.len();
        workers.saturating_sub(self.queues.searchers.parked())
    }

    /// Whether there is work in any queue that a searcher looks at.
    pub(crate) fn has_work(&self) -> bool {
        let is_full = |owner: &Core| (!owner.stealer.is_empty()).then_some(());
        !self.queues.is_empty() || self.find_deque(0, is_full).is_some()
    }

    /// Asks those who have deques, workers and helpers, for the first that answers; begins with the
    /// worker of this number.
    pub(crate) fn find_deque<R>(
        &self,
        first: usize,
        mut ask: impl FnMut(&Core) -> Option<R>,
    ) -> Option<R> {
        let workers = self.workers.load();
        let found = (0..workers.len())
            .find_map(|i| ask(workers[first.wrapping_add(i) % workers.len()].owner()));
        if found.is_some() || self.queues.searchers.helpers() == 0 {
            return found;
        }
        let helpers = self.helpers.known.load();
        helpers.list.iter().find_map(|helper| ask(helper.owner()))
    }

    /// How many helpers there may be now.
    #[inline]
    pub(crate) fn most_helpers(&self) -> usize {
        self.config.helpers.1 + self.in_place.load(Ordering::Relaxed)
    }

    /// How many jobs the workers have run.
    pub(crate) fn jobs_run(&self) -> u64 {
        let workers = self.workers.load();
        let own = workers.iter().map(|worker| &worker.owner().recorder.own);
        own.map(|own| own.polls.get() + own.callbacks.get()).sum()
    }

    /// Counts a callback timer in, if there is room.
    #[inline]
    pub(crate) fn admit_timer(&self, bounded: bool) -> Result<(), ArmError> {
        let Some(max_timers) = self.config.max_timers else {
            return Ok(());
        };
        let admit = |pending| (!bounded || pending < max_timers).then_some(pending + 1);
        match self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, admit)
        {
            Ok(_) => Ok(()),
            Err(_) => Err(ArmError::Full { max_timers }),
        }
    }

    /// Counts a callback timer out.
    #[inline]
    pub(crate) fn release_timer(&self) {
        if self.config.max_timers.is_some() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.lifecycle.is_stopping()
    }

    /// Tells the workers to end, and the blocking threads to end when they are through.
    pub(crate) fn stop(&self) {
        self.lifecycle.set_stopping();
        self.blocking.stop();
        self.wake_all();
    }

    /// Wakes all workers, and has all clocks served, whatever they wait for.
    pub(crate) fn wake_all(&self) {
        for clock in self.clocks.all().iter() {
            clock.wake();
        }
        for worker in self.workers.load().iter() {
            worker.wake();
        }
        self.helpers.wake_all();
    }

    pub(crate) fn drain_injector(&self) {
        while let Some(job) = self.queues.steal() {
            contained(|| job.end());
        }
    }
}
