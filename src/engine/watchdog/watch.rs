//! The job that a worker runs, as its peers can read it.

use std::{num::NonZeroU64, ptr, sync::TryLockError, time::Duration};

use crossbeam::utils::CachePadded;
use tourbillon_shards::TypeName;

use crate::{
    engine::watchdog::stall::Stall,
    metrics::{
        activity::{Activity, JobName, JobRef},
        spawned::Spawned,
    },
    sys::sync::{
        Mutex,
        atomic::{
            AtomicBool, AtomicPtr, AtomicU64,
            Ordering::{Acquire, Relaxed, Release},
            fence,
        },
    },
    util::lock::lock,
};

/// How many times [`Watch::activity`] tries to read the name of a job while the worker goes on to
/// other jobs.
const LOOKS: usize = 3;

/// The threshold that turns stall reports off, in ns.
pub(crate) const OFF: u64 = u64::MAX;

/// A worker's present job, and what its peers have seen of it.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) job: CachePadded<Published>,
    pub(super) seen: Mutex<Seen>,
}

/// A worker's job. It has a cache line of its own because the worker writes it for each job.
#[derive(Debug)]
pub(super) struct Published {
    /// The number of the job whose name is being written, or was written last.
    pub(super) begun: AtomicU64,
    name: AtomicPtr<TypeName>,
    /// Null if the job is not a task.
    spawned: AtomicPtr<()>,
    /// The number of the job that `name` belongs to. Zero if the worker is in no job.
    named: AtomicU64,
    /// Whether the worker searches for work. A hint.
    searches: AtomicBool,
    /// The span that armed the timer of job `origin_of`. Jobs without a span leave both as they
    /// are.
    origin: AtomicU64,
    origin_of: AtomicU64,
}

/// What peers have seen of a worker's jobs.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The number of the job at the last look, and when that job was first seen, in ns.
    job: u64,
    since: u64,
    /// The number of the last job that a peer reported.
    reported: u64,
}

/// When a worker was last in its loop, and after how many jobs. Only the worker reads it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InLoop {
    pub(crate) at: u64,
    /// How many jobs had run by then.
    pub(super) jobs: u64,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self {
            job: CachePadded::new(Published {
                begun: AtomicU64::new(0),
                name: AtomicPtr::new(ptr::null_mut()),
                spawned: AtomicPtr::new(ptr::null_mut()),
                named: AtomicU64::new(0),
                searches: AtomicBool::new(false),
                origin: AtomicU64::new(0),
                origin_of: AtomicU64::new(0),
            }),
            seen: Mutex::default(),
        }
    }

    /// Publishes that the worker begins job `number`, which is not zero.
    #[inline]
    pub(crate) fn begin(&self, number: u64, name: &'static TypeName, spawned: Option<Spawned>) {
        let job = &*self.job;
        job.begun.store(number, Relaxed);
        // Before the name: a thread that reads this name and then `begun` sees the new number, and
        // so knows that the name belongs to a later job.
        fence(Release);
        job.name.store(ptr::from_ref(name).cast_mut(), Relaxed);
        let spawned = spawned.map_or(ptr::null_mut(), Spawned::as_ptr);
        job.spawned.store(spawned, Relaxed);
        // Last, with release: a reader of this number sees the name that belongs to it, or a later
        // one.
        job.named.store(number, Release);
    }

    /// Publishes that the worker is in its loop, and in no job.
    #[inline]
    pub(crate) fn end(&self) {
        // Relaxed: a thread that reads zero reads no name.
        self.job.named.store(0, Relaxed);
    }

    /// Publishes whether the worker searches for work.
    #[inline]
    pub(crate) fn searches(&self, searches: bool) {
        self.job.searches.store(searches, Relaxed);
    }

    /// Publishes the span that armed the timer of the present job.
    #[allow(dead_code, reason = "without feature `tracing`, timers have no spans")]
    pub(crate) fn comes_from(&self, origin: NonZeroU64) {
        let job = &*self.job;
        // After `begin`, so that its fence orders these as it orders the name.
        job.origin.store(origin.get(), Relaxed);
        job.origin_of.store(job.begun.load(Relaxed), Release);
    }

    /// Returns the span that armed the timer of job `number`. `None` if there is none, or if the
    /// worker has begun another job since.
    pub(super) fn origin_of(&self, number: u64) -> Option<NonZeroU64> {
        let of = self.job.origin_of.load(Acquire);
        let origin = self.job.origin.load(Relaxed);
        fence(Acquire);
        let is_same = of == number && self.job.begun.load(Relaxed) == number;
        NonZeroU64::new(origin).filter(|_| is_same)
    }

    /// Returns the present activity of a worker that does not sleep.
    pub(crate) fn activity(&self) -> (Activity, Option<JobName>) {
        let of = |job: Option<JobRef>| match job {
            Some(JobRef {
                spawned: Some(_), ..
            }) => Activity::Running,
            _ => Activity::Firing,
        };
        for _ in 0..LOOKS {
            let Some(number) = self.number() else {
                let searches = self.job.searches.load(Relaxed);
                let activity = match searches {
                    true => Activity::Stealing,
                    false => Activity::Polling,
                };
                return (activity, None);
            };
            // The worker may begin another job between the two looks. Then look again.
            if let Some(job) = self.job_of(number) {
                return (of(Some(job)), Some(job.name()));
            }
        }
        // The worker went on to another job at each try. Report the kind of the last job, without a
        // name that may belong to another one.
        (of(self.job_ref()), None)
    }

    /// Replaces the name of the present job. Only the thread that runs the job calls this, if it
    /// knows a better name.
    pub(super) fn rename(&self, name: &'static TypeName) {
        self.job.name.store(ptr::from_ref(name).cast_mut(), Relaxed);
    }

    /// Returns the name and place that were published last, of whichever job. `None` before the
    /// first job.
    pub(crate) fn job_ref(&self) -> Option<JobRef> {
        let name = self.job.name.load(Relaxed);
        let spawned = self.job.spawned.load(Relaxed);
        // SAFETY: `begin` made `name` of a static reference, and `spawned` of a `Spawned`; or they
        // are null.
        let (name, spawned) = unsafe { (name.as_ref(), Spawned::from_ptr(spawned)) };
        name.map(|name| JobRef { name, spawned })
    }

    /// Returns the number of the job that the worker began last.
    pub(crate) fn begun(&self) -> u64 {
        self.job.begun.load(Relaxed)
    }

    /// Returns the number of the worker's present job, or `None` if it is in no job.
    pub(super) fn number(&self) -> Option<u64> {
        match self.job.named.load(Acquire) {
            0 => None,
            number => Some(number),
        }
    }

    /// Returns the name and place of job `number`, unless the worker has begun another job since.
    pub(super) fn job_of(&self, number: u64) -> Option<JobRef> {
        let job = self.job_ref();
        fence(Acquire);
        job.filter(|_| self.job.begun.load(Relaxed) == number)
    }

    /// Implements [`look`](super::report::look).
    pub(super) fn look(&self, worker: usize, threshold: u64, now: u64) -> Option<Stall> {
        let mut seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(seen)) => seen.into_inner(),
            // Another peer looks.
            Err(TryLockError::WouldBlock) => return None,
        };
        // Read the number under the lock. If the worker has reported this job itself (`away`), the
        // lock shows that the job is over.
        let number = self.number()?;
        if seen.job != number {
            // No peer has seen this job before. The worker reads no clock when it begins a job, so
            // the time counts from here.
            seen.job = number;
            seen.since = now;
            return None;
        }
        let elapsed = now.saturating_sub(seen.since);
        if seen.reported == number || elapsed < threshold {
            return None;
        }
        // If another job has begun in this moment, the worker itself reports the former one.
        let origin = self.origin_of(number);
        let JobName { name, spawned } = self.job_of(number)?.name();
        seen.reported = number;
        Some(Stall {
            worker,
            is_helper: false,
            job: name,
            spawned,
            elapsed: Duration::from_nanos(elapsed),
            is_running: true,
            jobs: 1,
            origin,
        })
    }

    /// Implements [`was_away`](super::report::was_away). Called by the worker, which is in no job.
    pub(super) fn away(
        &self,
        worker: usize,
        threshold: u64,
        from: InLoop,
        to: InLoop,
    ) -> Option<Stall> {
        // Nothing to report if the time is short, if no job ran in it, or if a peer has reported
        // one of these jobs.
        let elapsed = to.at.saturating_sub(from.at);
        if threshold == OFF
            || elapsed < threshold
            || to.jobs == from.jobs
            || lock(&self.seen).reported > from.jobs
        {
            return None;
        }
        let JobName { name, spawned } = self.job_ref()?.name();
        let jobs = to.jobs - from.jobs;
        // Of several jobs, another one may be the slow one.
        let origin = self.origin_of(to.jobs).filter(|_| jobs == 1);
        Some(Stall {
            worker,
            is_helper: false,
            job: name,
            spawned,
            elapsed: Duration::from_nanos(elapsed),
            is_running: false,
            jobs,
            origin,
        })
    }
}

impl InLoop {
    /// Returns the state of a worker that is in its loop at `now`, in real time in ns, after `jobs`
    /// jobs.
    pub(crate) fn at(now: u64, jobs: u64) -> Self {
        Self { at: now, jobs }
    }

    /// Returns how many jobs have run since `last`, and how long that took, in ns.
    pub(crate) fn since(self, last: Self) -> (u64, u64) {
        (self.jobs - last.jobs, self.at.saturating_sub(last.at))
    }
}
