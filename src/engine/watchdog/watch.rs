//! The job that a worker runs, as its peers can read it.

use std::{num::NonZeroU64, ptr, sync::TryLockError};

use crossbeam::utils::CachePadded;
use tourbillon_shards::TypeName;

use crate::{
    engine::watchdog::{
        seen::{Course, InLoop, Open, Seen, Sight, stall},
        stall::Stall,
    },
    metrics::{
        activity::{Activity, JobName, JobRef},
        label::Label,
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
    /// The label of job `label_of`, or null if that job was given several. Jobs without a label
    /// leave both as they are.
    label: AtomicPtr<()>,
    label_of: AtomicU64,
    /// The name of the group of job `group_of`, or null if that is the default one. Jobs of a
    /// runtime without groups leave both as they are.
    group: AtomicPtr<()>,
    group_of: AtomicU64,
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
                label: AtomicPtr::new(ptr::null_mut()),
                label_of: AtomicU64::new(0),
                group: AtomicPtr::new(ptr::null_mut()),
                group_of: AtomicU64::new(0),
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

    /// Publishes the label of the present job. Only the thread that runs the job calls this. A
    /// second label that differs takes the first one away: which of them took the time is not
    /// known.
    pub(crate) fn set_label(&self, label: Label) {
        let job = &*self.job;
        let number = job.named.load(Relaxed);
        let has_one = job.label_of.load(Relaxed) == number;
        let label = match has_one && job.label.load(Relaxed) != label.as_ptr() {
            true => ptr::null_mut(),
            false => label.as_ptr(),
        };
        // As an origin, ordered by the fence of `begin`.
        job.label.store(label, Relaxed);
        job.label_of.store(number, Release);
    }

    /// Returns the label of job `number`. `None` if there is none, or if the worker has begun
    /// another job since.
    fn label_of(&self, number: u64) -> Option<Label> {
        let of = self.job.label_of.load(Acquire);
        let label = self.job.label.load(Relaxed);
        fence(Acquire);
        let is_same = of == number && self.job.begun.load(Relaxed) == number;
        // SAFETY: `set_label` made it of a `Label`, or it is null.
        let label = unsafe { Label::from_ptr(label) };
        label.filter(|_| is_same)
    }

    /// Publishes the group of job `number`, which the worker is about to [begin](Watch::begin).
    /// `None` is the default group.
    pub(crate) fn begin_in(&self, number: u64, group: Option<Label>) {
        let job = &*self.job;
        job.begun.store(number, Relaxed);
        // Before the group, as in `begin` before the name: a thread that reads this group and then
        // `begun` sees the new number.
        fence(Release);
        let group = group.map_or(ptr::null_mut(), Label::as_ptr);
        job.group.store(group, Relaxed);
        // With release, as the number of a label. The release of `named`, in `begin`, comes later:
        // a reader of that number sees both words, or those of a later job.
        job.group_of.store(number, Release);
    }

    /// Returns the group of job `number`. `None` if that is the default one, or if the worker has
    /// begun another job since: the caller then finds another number in `begun`.
    pub(super) fn group_of(&self, number: u64) -> Option<Label> {
        if self.job.group_of.load(Acquire) != number {
            return None;
        }
        let group = self.job.group.load(Relaxed);
        fence(Acquire);
        let is_same = self.job.begun.load(Relaxed) == number;
        // SAFETY: `begin_in` made it of a `Label`, or it is null.
        let group = unsafe { Label::from_ptr(group) };
        group.filter(|_| is_same)
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
        let number = self.begun();
        name.map(|name| JobRef {
            name,
            spawned,
            label: self.label_of(number),
            group: self.group_of(number),
        })
    }

    /// Returns the number of the job that the worker began last.
    pub(crate) fn begun(&self) -> u64 {
        self.job.begun.load(Relaxed)
    }

    /// Returns the number of the worker's present job, or `None` if it is in no job.
    pub(crate) fn number(&self) -> Option<u64> {
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
    pub(super) fn look(&self, worker: usize, threshold: u64, now: u64) -> bool {
        let mut seen = match self.seen.try_lock() {
            Ok(seen) => seen,
            Err(TryLockError::Poisoned(seen)) => seen.into_inner(),
            // Another peer looks.
            Err(TryLockError::WouldBlock) => return false,
        };
        // Read the number under the lock. If the worker has ended a stall itself (`away`), the lock
        // shows that the job is over.
        let Some(number) = self.number() else {
            return false;
        };
        // The name belongs to this job, or the worker has begun another one in this moment.
        let (what, origin) = (self.job_of(number), self.origin_of(number));
        let former = seen.sight.filter(|sight| sight.number == number);
        let Some(former) = former else {
            // No peer has seen this job before. The worker reads no clock when it begins a job, so
            // the time counts from here.
            seen.sight = Some(Sight {
                number,
                since: now,
                until: now,
                what,
                origin,
            });
            return seen.left(number, now);
        };
        let sight = Sight {
            until: now.max(former.until),
            what: what.or(former.what),
            origin: origin.or(former.origin),
            ..former
        };
        seen.sight = Some(sight);
        let elapsed = now.saturating_sub(sight.since);
        // A stall whose end is not reported yet comes first.
        if seen.stall.is_some() || elapsed < threshold || sight.what.is_none() {
            return false;
        }
        seen.stall = Some(Open {
            stall: Stall {
                is_running: true,
                job_number: number,
                ..stall(worker, elapsed, 1, sight.what, sight.origin)
            },
            since: sight.since,
            course: Course::Found,
        });
        true
    }

    /// Returns the stall that a [look](Watch::look) found, for the calling thread to report it. If
    /// its job still runs, the thread then calls [`end_report`](Watch::end_report).
    pub(super) fn begin_report(&self) -> Option<Stall> {
        let mut seen = lock(&self.seen);
        let open = seen.stall.as_mut();
        let open = open.filter(|open| open.course == Course::Found)?;
        if open.stall.is_running {
            open.course = Course::Reporting;
            return Some(open.stall.clone());
        }
        seen.stall.take().map(|open| open.stall)
    }

    /// Notes that `stall`, whose job still ran, is reported. If the job has ended meanwhile, this
    /// returns what the caller is to report of that.
    pub(super) fn end_report(&self, stall: &Stall) -> Option<Stall> {
        let mut seen = lock(&self.seen);
        let open = seen.stall.as_mut()?;
        open.stall.number = stall.number;
        if open.course == Course::Ended {
            return seen.stall.take().map(|open| open.stall);
        }
        open.course = Course::Reported;
        None
    }

    /// Implements [`was_away`](super::report::was_away). Called by the worker, which is in no job.
    pub(super) fn away(
        &self,
        worker: usize,
        threshold: u64,
        from: InLoop,
        to: InLoop,
    ) -> Option<Stall> {
        let is_long = |(jobs, took): (u64, u64)| jobs > 0 && took >= threshold;
        if threshold == OFF || !is_long(to.since(from)) {
            return None;
        }
        let mut seen = lock(&self.seen);
        // 1. A peer has found one of these jobs. It is over.
        let open = seen.stall.as_ref();
        if let Some(open) = open.filter(|it| it.stall.is_running && it.stall.job_number > from.jobs)
        {
            // The first job of the turn began when the turn did.
            let is_first = open.stall.job_number == from.jobs + 1;
            let since = if is_first { from.at } else { open.since };
            return seen.end(since, to.at);
        }
        // 2. Leave out what a peer has seen to be over.
        let from = match seen.over.jobs > from.jobs {
            true => seen.over,
            false => from,
        };
        let (jobs, elapsed) = to.since(from);
        if !is_long((jobs, elapsed)) {
            return None;
        }
        // 3. A single job took the time. Of several, one is known only if peers saw it for most of
        //    the time.
        if jobs == 1 {
            let origin = self.origin_of(to.jobs);
            return Some(stall(worker, elapsed, jobs, self.job_ref(), origin));
        }
        let most = seen.sight.filter(|sight| {
            let seen = sight.until.saturating_sub(sight.begun(from));
            sight.number > from.jobs && sight.what.is_some() && seen > elapsed / 2
        });
        Some(match most {
            Some(it) => {
                let elapsed = to.at.saturating_sub(it.begun(from));
                stall(worker, elapsed, 1, it.what, it.origin)
            }
            None => stall(worker, elapsed, jobs, None, None),
        })
    }
}
