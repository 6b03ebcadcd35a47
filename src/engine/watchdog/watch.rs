//! What a worker is at, as its peers see it.

use std::{panic::Location, ptr, sync::TryLockError, time::Duration};

use crossbeam::utils::CachePadded;
use tourbillon_shards::TypeName;

use crate::{
    engine::watchdog::stall::Stall,
    metrics::activity::{Activity, JobName},
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

/// How often somebody looks at what a worker is at that has gone on to another job meanwhile.
const LOOKS: usize = 3;

/// The threshold that is never reached, in ns.
pub(crate) const OFF: u64 = u64::MAX;

/// What a worker is at, and who has seen it there.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(super) job: CachePadded<Published>,
    pub(super) seen: Mutex<Seen>,
}

/// A worker's job. A cache line of its own: it is written for each job.
#[derive(Debug)]
pub(super) struct Published {
    /// The number of the job whose name is being written, or was.
    pub(super) begun: AtomicU64,
    name: AtomicPtr<TypeName>,
    /// Null for what is no task.
    spawned: AtomicPtr<Location<'static>>,
    /// The number of the job whose name it is; zero while there is none.
    named: AtomicU64,
    /// Whether the worker searches for work. A hint.
    searches: AtomicBool,
}

/// What was seen of a worker.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The job, and when it was seen first.
    job: u64,
    since: u64,
    /// The last job that was reported.
    reported: u64,
}

/// When a worker was last in its loop, for itself.
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
            }),
            seen: Mutex::default(),
        }
    }

    /// The worker begins its job of this number, which is not zero.
    #[inline]
    pub(crate) fn begin(
        &self,
        number: u64,
        name: &'static TypeName,
        spawned: Option<&'static Location<'static>>,
    ) {
        let job = &*self.job;
        job.begun.store(number, Relaxed);
        // Before the name: who reads the name and then `begun` sees that it is a later job's.
        fence(Release);
        job.name.store(ptr::from_ref(name).cast_mut(), Relaxed);
        let spawned = spawned.map_or(ptr::null(), ptr::from_ref);
        job.spawned.store(spawned.cast_mut(), Relaxed);
        job.named.store(number, Release);
    }

    /// The worker is in its loop, and not in a job.
    #[inline]
    pub(crate) fn end(&self) {
        self.job.named.store(0, Release);
    }

    /// The worker begins to search for work, or has.
    #[inline]
    pub(crate) fn searches(&self, searches: bool) {
        self.job.searches.store(searches, Relaxed);
    }

    /// What a worker is at that does not sleep.
    pub(crate) fn activity(&self) -> (Activity, Option<JobName>) {
        let at = |spawned: Option<_>| match spawned {
            Some(_) => Activity::Running,
            None => Activity::Firing,
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
            if let Some((name, spawned)) = self.name_of(number) {
                return (at(spawned), Some(JobName { name, spawned }));
            }
        }
        // At some job all the time, and each time at another.
        let (_, spawned) = self.name();
        (at(spawned), None)
    }

    /// Who runs the worker's present job knows a better name for it.
    #[cfg(any(test, feature = "cron"))]
    pub(super) fn rename(&self, name: &'static TypeName) {
        self.job.name.store(ptr::from_ref(name).cast_mut(), Relaxed);
    }

    /// The number of the job that the worker began last.
    pub(crate) fn begun(&self) -> u64 {
        self.job.begun.load(Relaxed)
    }

    /// The number of the job that the worker is at, if it is at one.
    pub(super) fn number(&self) -> Option<u64> {
        match self.job.named.load(Acquire) {
            0 => None,
            number => Some(number),
        }
    }

    /// What is published now, of whatever job.
    pub(super) fn name(&self) -> (&'static str, Option<&'static Location<'static>>) {
        let name = self.job.name.load(Relaxed);
        let spawned = self.job.spawned.load(Relaxed);
        // SAFETY: both are null or were made of static references.
        let (name, spawned) = unsafe { (name.as_ref(), spawned.as_ref()) };
        (name.map_or("", TypeName::get), spawned)
    }

    /// What the job of this number is, if the worker has not begun another since.
    pub(super) fn name_of(
        &self,
        number: u64,
    ) -> Option<(&'static str, Option<&'static Location<'static>>)> {
        let name = self.name();
        fence(Acquire);
        (self.job.begun.load(Relaxed) == number).then_some(name)
    }

    /// See [`look`].
    pub(super) fn look(&self, worker: usize, threshold: u64, now: u64) -> Option<Stall> {
        let mut seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(seen)) => seen.into_inner(),
            // Somebody else looks.
            Err(TryLockError::WouldBlock) => return None,
        };
        // Under the lock: the worker may have reported it itself.
        let number = self.number()?;
        if seen.job != number {
            seen.job = number;
            seen.since = now;
            return None;
        }
        let elapsed = now.saturating_sub(seen.since);
        if seen.reported == number || elapsed < threshold {
            return None;
        }
        let (job, spawned) = self.name_of(number)?;
        seen.reported = number;
        Some(Stall {
            worker,
            is_helper: false,
            job,
            spawned,
            elapsed: Duration::from_nanos(elapsed),
            is_running: true,
            jobs: 1,
        })
    }

    /// See [`was_away`]. By the worker, which is not in a job.
    pub(super) fn away(
        &self,
        worker: usize,
        threshold: u64,
        from: InLoop,
        to: InLoop,
    ) -> Option<Stall> {
        let elapsed = to.at.saturating_sub(from.at);
        if threshold == OFF
            || elapsed < threshold
            || to.jobs == from.jobs
            || lock(&self.seen).reported > from.jobs
        {
            return None;
        }
        let (job, spawned) = self.name();
        Some(Stall {
            worker,
            is_helper: false,
            job,
            spawned,
            elapsed: Duration::from_nanos(elapsed),
            is_running: false,
            jobs: to.jobs - from.jobs,
        })
    }
}

impl InLoop {
    /// The worker is in its loop at `now`, by the real clock in ns, after so many jobs.
    pub(crate) fn at(now: u64, jobs: u64) -> Self {
        Self { at: now, jobs }
    }

    /// How many jobs ran since then, and how long that took, in ns.
    pub(crate) fn since(self, last: Self) -> (u64, u64) {
        (self.jobs - last.jobs, self.at.saturating_sub(last.at))
    }
}
