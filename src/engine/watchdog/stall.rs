//! Jobs that keep their worker for too long, and who finds them.
//!
//! A worker [publishes](Watch::begin) the number and the name of each job that it begins, and reads no
//! clock for it. Time is told by who looks: a peer that [looks](look) at the worker twice, and sees the
//! same number; or, where nobody looks, the worker itself, which finds on [its way
//! back](was_away) to its loop that it was away for long.
//!
//! | word | written by |
//! |---|---|
//! | `begun`, `name`, `spawned`, `named` | the worker |
//! | `seen` | who looks, under the lock |
//!
//! The name is of the job whose number is in `named`, and in `begun` as well once the name has been read:
//! a sequence lock of two numbers. Who reads `named` sees that job's name or a later one's (release,
//! acquire); if it was a later one's, its number is in `begun` by then (the two fences). All that is
//! pointed to is static: what is read of a job that has ended meanwhile is stale, and never freed.

use std::{
    fmt,
    panic::Location,
    ptr,
    sync::{Arc, TryLockError},
    time::Duration,
};

use crossbeam::utils::CachePadded;
use tourbillon_shards::TypeName;

use crate::{
    engine::core::Core,
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

/// A function that is told of stalls.
pub(crate) type StallHook = Arc<dyn Fn(&Stall) + Send + Sync>;

/// How often somebody looks at what a worker is at that has gone on to another job meanwhile.
const LOOKS: usize = 3;

/// The threshold that is never reached, in ns.
pub(crate) const OFF: u64 = u64::MAX;

/// A job that kept its worker for too long: see
/// [`Builder::stall_threshold`](crate::runtime::Builder::stall_threshold).
///
/// What it displays is a line for a log:
///
/// ```text
/// worker 2 is stuck in task shop::main::{{closure}} (spawned at src/main.rs:31:9), for 100.4ms so far
/// worker 0 was stuck in callback shop::expire, for 312.0ms
/// worker 0 was away for 260.1ms and ran 9 jobs, the last of them callback shop::expire
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The worker's number; of a [helper](crate::runtime::Builder::helpers) a number above those of all workers.
    pub worker: usize,
    /// Whether it is a helper.
    pub is_helper: bool,
    /// The type of the job: of a task its future's, of a timer its callback's, as
    /// [`std::any::type_name`] has it. A closure goes by the function that it stands in.
    pub job: &'static str,
    /// Where the task was spawned. Timers have none.
    pub spawned: Option<&'static Location<'static>>,
    /// How long it has run, in real time: that for which the kernel lets the worker wait counts, and
    /// that for which the runtime's clock is paused. Of a job that [runs](Stall::is_running) it is what
    /// was seen of it, by which it is too short by as much as nobody looked before; of one that is over
    /// it is the time in which the worker was not in its loop.
    pub elapsed: Duration,
    /// Whether it was still running when this was found out.
    pub is_running: bool,
    /// How many jobs ran in that time. One, if it is certain which job it was. More, if nobody watched
    /// and the worker found out when it came back to its loop: together they took so long, and
    /// [`job`](Stall::job) is the last of them, which may or may not be the one to blame.
    pub jobs: u64,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, elapsed, jobs) = (self.worker, self.elapsed, self.jobs);
        f.write_str(if self.is_helper { "helper" } else { "worker" })?;
        match (self.is_running, jobs) {
            (true, _) => write!(f, " {worker} is stuck in ")?,
            (false, ..=1) => write!(f, " {worker} was stuck in ")?,
            (false, _) => write!(
                f,
                " {worker} was away for {elapsed:.1?} and ran {jobs} jobs, the last of them "
            )?,
        }
        let (name, spawned) = (self.job, self.spawned);
        JobName { name, spawned }.fmt(f)?;
        match (self.is_running, jobs) {
            (true, _) => write!(f, ", for {elapsed:.1?} so far"),
            (false, ..=1) => write!(f, ", for {elapsed:.1?}"),
            (false, _) => Ok(()),
        }
    }
}

/// What a worker is at, and who has seen it there.
#[derive(Debug)]
pub(crate) struct Watch {
    job: CachePadded<Published>,
    seen: Mutex<Seen>,
}

/// A worker's job. A cache line of its own: it is written for each job.
#[derive(Debug)]
struct Published {
    /// The number of the job whose name is being written, or was.
    begun: AtomicU64,
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
struct Seen {
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
    jobs: u64,
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
    fn rename(&self, name: &'static TypeName) {
        self.job.name.store(ptr::from_ref(name).cast_mut(), Relaxed);
    }

    /// The number of the job that the worker began last.
    pub(crate) fn begun(&self) -> u64 {
        self.job.begun.load(Relaxed)
    }

    /// The number of the job that the worker is at, if it is at one.
    fn number(&self) -> Option<u64> {
        match self.job.named.load(Acquire) {
            0 => None,
            number => Some(number),
        }
    }

    /// What is published now, of whatever job.
    fn name(&self) -> (&'static str, Option<&'static Location<'static>>) {
        let name = self.job.name.load(Relaxed);
        let spawned = self.job.spawned.load(Relaxed);
        // SAFETY: both are null or were made of static references.
        let (name, spawned) = unsafe { (name.as_ref(), spawned.as_ref()) };
        (name.map_or("", TypeName::get), spawned)
    }

    /// What the job of this number is, if the worker has not begun another since.
    fn name_of(&self, number: u64) -> Option<(&'static str, Option<&'static Location<'static>>)> {
        let name = self.name();
        fence(Acquire);
        (self.job.begun.load(Relaxed) == number).then_some(name)
    }

    /// See [`look`].
    fn look(&self, worker: usize, threshold: u64, now: u64) -> Option<Stall> {
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
    fn away(&self, worker: usize, threshold: u64, from: InLoop, to: InLoop) -> Option<Stall> {
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

/// Looks at a worker that is awake, and answers what there is to [report](report) if it has been at its job
/// for too long. To be called now and then, by any thread but the worker's.
///
/// `now` is what [`Clock::real`](crate::clock::runtime_clock::Clock::real) says, in ns. A job counts from the first look
/// that sees it.
pub(crate) fn look(core: &Core, now: u64) -> Option<Stall> {
    let threshold = core.shared.config.stall_threshold;
    if threshold == OFF {
        return None;
    }
    let stall = core.watch.look(core.index, threshold, now);
    stall.map(|stall| Stall {
        is_helper: core.is_helper,
        ..stall
    })
}

/// The worker is back in its loop: reports what kept it, if that took too long and no peer has.
pub(crate) fn was_away(core: &Core, last: &mut InLoop, jobs: u64) {
    let threshold = core.shared.config.stall_threshold;
    let now = InLoop::at(core.shared.clock.real(), jobs);
    let from = std::mem::replace(last, now);
    if let Some(mut stall) = core.watch.away(core.index, threshold, from, now) {
        stall.is_helper = core.is_helper;
        report(core, &stall);
    }
}

/// For a job that runs a callback whose type it does not know: `name` is.
#[cfg(feature = "cron")]
pub(crate) fn this_job_is(name: &'static TypeName) {
    crate::engine::context::with_local(|local| {
        if let Some(local) = local {
            local.shard.owner().watch.rename(name);
        }
    });
}

/// Tells whoever wants to know: the hook is foreign code.
#[cold]
pub(crate) fn report(core: &Core, stall: &Stall) {
    // As the worker's that stalled, whoever counts.
    core.recorder.foreign().stalls.add(1);
    let clock = &core.shared.clock;
    let at = clock.instant(clock.now());
    core.shared.stalls.rcu(|stalls| stalls.with(stall, at));
    #[cfg(feature = "tracing")]
    core.contain(|| trace(stall));
    if let Some(hook) = &core.shared.config.on_stall {
        core.contain(|| hook(stall));
    }
}

#[cfg(feature = "tracing")]
fn trace(stall: &Stall) {
    tracing::warn!(
        target: "tourbillon::stall",
        worker = stall.worker,
        is_helper = stall.is_helper,
        job = stall.job,
        spawned = stall.spawned.map(tracing::field::display),
        elapsed_ms = u64::try_from(stall.elapsed.as_millis()).unwrap_or(u64::MAX),
        is_running = stall.is_running,
        jobs = stall.jobs,
        "a worker is kept from its timers and sockets"
    );
}

#[cfg(test)]
#[path = "stall_tests.rs"]
mod tests;
