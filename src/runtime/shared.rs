//! What all threads of a runtime share.

use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use crossbeam::{deque::Injector, utils::CachePadded};
use tourbillon_shards::{SearchClaim, Searchers};

use super::{
    builder::Config,
    context,
    core::WorkerShard,
    handle::Handle,
    local::{Job, Order, TaskJob, steal},
    quiescence::Quiescence,
};
use crate::{error::ArmError, task::registry::Registry, time::Clock};

/// The workers of a runtime, by their numbers. Empty before it runs and after it has ended.
pub(crate) type Workers = Vec<Arc<WorkerShard>>;

/// The state of a runtime.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) tasks: Registry,
    /// Who waits, for a clock that is paused.
    pub(super) quiescence: CachePadded<Quiescence>,
    pub(super) workers: ArcSwap<Workers>,
    pub(super) injector: CachePadded<Injector<Job>>,
    pub(super) searchers: CachePadded<Searchers>,
    /// Pending callback timers, counted only where there is a bound.
    pending: CachePadded<AtomicUsize>,
    /// Set when the runtime is to end: workers leave their loops.
    stopping: AtomicBool,
    /// Set when nobody will look at the injector any more.
    drained: AtomicBool,
    /// How many workers have not left their loops.
    running: Mutex<usize>,
    left: Condvar,
}

/// Locks a mutex that no panic can leave in a bad state.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(config: Config, workers: usize) -> Self {
        Self {
            clock: Clock::new(),
            tasks: Registry::new(workers),
            quiescence: CachePadded::default(),
            workers: ArcSwap::from_pointee(Vec::new()),
            injector: CachePadded::new(Injector::new()),
            searchers: CachePadded::new(Searchers::new(workers)),
            pending: CachePadded::new(AtomicUsize::new(0)),
            stopping: AtomicBool::new(false),
            drained: AtomicBool::new(false),
            running: Mutex::new(workers),
            left: Condvar::new(),
            config,
        }
    }

    /// Queues a job from outside of the workers.
    pub(super) fn inject(&self, job: Job) {
        self.injector.push(job);
        self.wake_one();
        // Behind the fence of `wake_one`: either who drains for the last time sees the job, or we
        // see that it has.
        if self.drained.load(Ordering::Acquire) {
            self.drain_injector();
        }
    }

    /// Queues a task that became ready.
    pub(crate) fn schedule(&self, task: TaskJob, order: Order) {
        context::with_local(|local| match local {
            Some(local) if local.is_of(self) => local.schedule(task, order),
            _ => self.inject(Job::Task(task)),
        });
    }

    /// After work was queued: wakes a worker to search for it, if one sleeps and none searches.
    #[inline]
    pub(super) fn wake_one(&self) {
        self.searchers
            .wake_one(|| self.wake_any(), || self.has_work());
    }

    #[cold]
    fn wake_any(&self) -> bool {
        let workers = self.workers.load();
        let first = context::spread();
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

    /// Whether there is work in any queue that a searcher looks at.
    pub(super) fn has_work(&self) -> bool {
        !self.injector.is_empty()
            || self
                .workers
                .load()
                .iter()
                .any(|worker| !worker.owner().stealer.is_empty())
    }

    /// Counts a callback timer in, if there is room.
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
    pub(crate) fn release_timer(&self) {
        if self.config.max_timers.is_some() {
            self.pending.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Tells the workers to end.
    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        self.wake_workers();
    }

    /// Wakes all workers, whatever they sleep for.
    pub(super) fn wake_workers(&self) {
        for worker in self.workers.load().iter() {
            worker.wake();
        }
    }

    /// Called by each worker once, when it has left its loop. The last ends what is left: nobody
    /// runs anything any more.
    pub(super) fn leave(self: &Arc<Self>) {
        let last = {
            let mut running = lock(&self.running);
            if *running > 1 {
                *running -= 1;
                false
            } else {
                true
            }
        };
        if last {
            let handle = Handle::new(self.clone());
            context::with_ending(&handle, || self.end_all());
            drop(handle);
            *lock(&self.running) = 0;
        }
        self.left.notify_all();
    }

    /// Ends what nobody will run any more, on the last worker. Dropping tasks may wake, spawn and
    /// arm others; those end likewise.
    fn end_all(&self) {
        for worker in self.workers.load().iter() {
            super::end_orphans(worker.owner(), worker.close());
            for waker in worker.owner().reactor.close() {
                super::contain(worker.owner(), || waker.wake());
            }
        }
        // Each task that is alive is queued by this, and dropped by what follows.
        for waker in self.tasks.close() {
            waker.wake();
        }
        self.drained.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        for worker in self.workers.load().iter() {
            while let Some(job) = steal(|| worker.owner().stealer.steal()) {
                super::contain(worker.owner(), || drop(job));
            }
        }
        self.drain_injector();
        self.quiescence.close();
        // The workers' cores refer to this, and this to them.
        self.workers.store(Arc::default());
    }

    fn drain_injector(&self) {
        while let Some(job) = steal(|| self.injector.steal()) {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(job)));
        }
    }

    /// Waits until all workers have left, for `timeout` at most; true if they have.
    pub(super) fn wait_for_end(&self, timeout: Option<Duration>) -> bool {
        let running = lock(&self.running);
        match timeout {
            None => {
                let ended = self.left.wait_while(running, |running| *running > 0);
                drop(ended.unwrap_or_else(PoisonError::into_inner));
                true
            }
            Some(timeout) => {
                let waited = self
                    .left
                    .wait_timeout_while(running, timeout, |running| *running > 0);
                !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            }
        }
    }
}
