//! The queue and the counts of the threads for blocking jobs.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    mem,
    time::{Duration, Instant},
};

use crate::{
    engine::{blocking::bounds::Bounded, groups::GroupId, threads::Threads},
    metrics::{
        BlockingMetrics,
        activity::{JobName, JobRef},
    },
    sys::{
        self,
        sync::{
            Condvar, Mutex,
            atomic::{AtomicUsize, Ordering, fence},
        },
    },
    util::lock::lock,
};

/// A job of [`spawn_blocking`](crate::task::spawn_blocking) that runs: see
/// [`Handle::blocking_jobs`](crate::Handle::blocking_jobs).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BlockingJob {
    /// The number of the job, which no other blocking job of the runtime has.
    pub number: u64,
    /// The number that the system gives to its thread, as in `/proc/self/task`.
    pub thread: u32,
    /// The job, as a task.
    pub job: JobName,
    /// How long it has run, in real time.
    pub elapsed: Duration,
}

/// A job that runs: its number, its thread, and when it began.
pub(super) struct Running {
    pub(super) number: u64,
    pub(super) thread: u32,
    pub(super) job: JobRef,
    pub(super) since: Instant,
}

/// The blocking threads of a runtime, and their queue.
pub(crate) struct Blocking<J> {
    pub(super) state: Mutex<State<J>>,
    /// Idle threads wait for jobs here.
    pub(super) work: Condvar,
    /// The thread that shuts the runtime down waits here until all threads have ended.
    pub(super) ended: Condvar,
    /// How many threads have something to do and are in no `block_on`. Claimed and starting threads
    /// count, too.
    pub(super) busy: AtomicUsize,
}

pub(super) struct State<J> {
    /// Queued jobs by their numbers, so that an aborted job can be removed from the middle.
    pub(super) queue: BTreeMap<u64, J>,
    /// The jobs that wait for others of their group before they are queued.
    pub(super) bounded: Bounded<J>,
    /// Jobs that run, one for each busy thread, in any order.
    pub(super) running: Vec<Running>,
    /// The number of the next job.
    pub(super) next: u64,
    /// How many threads there are.
    pub(super) threads: usize,
    /// How many more have run their last job, and call the hook of their end.
    pub(super) leaving: usize,
    /// How many threads are idle and not claimed.
    pub(super) idle: usize,
    /// How many idle threads a new job has claimed that have not woken yet.
    pub(super) claimed: usize,
    pub(super) handles: Threads,
    /// Whether the queue is closed: no job is accepted any more.
    pub(super) stopping: bool,
    /// How many accepted jobs a shutdown dropped at its deadline.
    pub(super) dropped: u64,
}

impl<J> Default for Blocking<J> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                queue: BTreeMap::new(),
                bounded: Bounded::default(),
                running: Vec::new(),
                next: 0,
                threads: 0,
                leaving: 0,
                idle: 0,
                claimed: 0,
                handles: Threads::default(),
                stopping: false,
                dropped: 0,
            }),
            work: Condvar::new(),
            ended: Condvar::new(),
            busy: AtomicUsize::new(0),
        }
    }
}

impl<J> State<J> {
    /// Notes that a queued or running job of this group, which has a bound, is over. Another one
    /// is queued in its place.
    pub(super) fn over(&mut self, group: GroupId) {
        self.queue.extend(self.bounded.over(group));
    }

    /// Takes all jobs out that do not run.
    pub(super) fn take_all(&mut self) -> Vec<J> {
        let queued = mem::take(&mut self.queue).into_values();
        queued.chain(self.bounded.clear()).collect()
    }
}

impl<J> Blocking<J> {
    /// Returns whether any thread has something to do. If it returns `false`, the caller sees all
    /// effects of the jobs that have ended.
    pub(crate) fn is_busy(&self) -> bool {
        // Pairs with the fence of a thread that becomes idle. Either this sees it idle, or that
        // thread sees that the clock is paused, and judges by itself.
        fence(Ordering::SeqCst);
        self.busy.load(Ordering::Acquire) > 0
    }

    /// Closes the queue, and tells the threads to end when it is empty.
    pub(crate) fn stop(&self) {
        lock(&self.state).stopping = true;
        self.work.notify_all();
    }

    /// Returns the jobs that run, oldest first.
    pub(crate) fn running(&self) -> Vec<BlockingJob> {
        let state = lock(&self.state);
        let now = sys::clock::instant();
        let job = |running: &Running| BlockingJob {
            number: running.number,
            thread: running.thread,
            job: running.job.name(),
            elapsed: now.saturating_duration_since(running.since),
        };
        let mut jobs: Vec<_> = state.running.iter().map(job).collect();
        drop(state);
        jobs.sort_by_key(|job| (Reverse(job.elapsed), job.number));
        jobs
    }

    pub(crate) fn metrics(&self) -> BlockingMetrics {
        let state = lock(&self.state);
        BlockingMetrics {
            threads: state.threads,
            idle: state.idle,
            queued: state.queue.len() + state.bounded.waiting(),
            dropped: state.dropped,
        }
    }
}
