//! The report of a stall: a job that keeps its worker for too long.

use std::{collections::VecDeque, fmt, num::NonZeroU64, sync::Arc, time::Duration};

use crate::{
    clock::instant::Instant,
    metrics::activity::{JobName, JobRef},
};

/// The user's function that is called with each stall.
pub(crate) type StallHook = Arc<dyn Fn(&Stall) + Send + Sync>;

/// How many stalls are kept.
const STALLS: usize = 64;
/// How many stacks are kept of each.
const STACKS: usize = 16;

/// A job that kept its worker for too long: see
/// [`Builder::stall_threshold`](crate::runtime::Builder::stall_threshold).
///
/// `Display` gives one line for a log:
///
/// ```text
/// worker 2 is stuck in task shop::main (spawned at src/main.rs:31:9), for 100.4ms so far
/// worker 0 was stuck in callback shop::expire, for 312.0ms
/// worker 0 was away for 260.1ms and ran 9 jobs, which were not timed
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The number of this stall, counted from 1 over all stalls of the runtime. If a job is
    /// reported while it runs, the report of its end has the same number.
    pub number: u64,
    /// The worker's number. The number of a [helper](crate::runtime::Builder::helpers) is above
    /// those of all workers.
    pub worker: usize,
    /// Whether it is a helper.
    pub is_helper: bool,
    /// The number that the system gives to the worker's thread, as in `/proc/self/task`.
    pub thread: u32,
    /// The job. `None` if it is not known which of several [jobs](Stall::jobs) took the time.
    pub job: Option<JobName>,
    /// How long the job has run, in real time. This includes the time in which the kernel runs
    /// other threads, and the time in which the runtime's clock is paused.
    ///
    /// For a job that still [runs](Stall::is_running), it is the time since a peer first saw the
    /// job, so it is too short by the time before that. For a job that is over, it is its whole
    /// length, with the short jobs that ran before the worker read the clock again.
    pub elapsed: Duration,
    /// Whether the job still runs. If so, a second report with the same [number](Stall::number)
    /// follows when it is over.
    pub is_running: bool,
    /// How many jobs ran in that time: 1 if the job is known. It is more if no peer watched, and
    /// the worker found the stall when it came back to its loop. From then on, the workers time
    /// each job for a minute, so that the next stall has a name.
    pub jobs: u64,
    /// The stacks that were [added](crate::Handle::add_stack) to the stall, oldest first.
    pub stacks: Vec<Arc<str>>,
    /// The number of the job, if a peer has found it while it ran.
    pub(crate) job_number: u64,
    /// The job, as the flight recorder writes it.
    pub(crate) what: Option<JobRef>,
    /// The span that armed the timer. `None` for tasks, and without feature `tracing`.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "no event has it"))]
    pub(crate) origin: Option<NonZeroU64>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, elapsed, jobs) = (self.worker, self.elapsed, self.jobs);
        f.write_str(if self.is_helper { "helper" } else { "worker" })?;
        match (self.job, self.is_running) {
            (Some(job), true) => write!(f, " {worker} is stuck in {job}, for {elapsed:.1?} so far"),
            (Some(job), false) => write!(f, " {worker} was stuck in {job}, for {elapsed:.1?}"),
            (None, _) => write!(
                f,
                " {worker} was away for {elapsed:.1?} and ran {jobs} jobs, which were not timed"
            ),
        }
    }
}

/// A stall that was reported, with its time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentStall {
    /// When it was reported first, by the clock of the runtime.
    pub at: Instant,
    /// What was reported last.
    pub stall: Stall,
}

/// The stalls that were reported last.
///
/// A report makes a new list, so that a report never waits for a reader. The list has pointers, to
/// stay below 1,024 bytes: a larger allocation may take glibc tens of ms if very many tasks have
/// just been freed, and that would be a stall itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    count: u64,
    pub(crate) recent: VecDeque<Arc<RecentStall>>,
}

impl Stalls {
    /// Returns the number of the next stall.
    pub(crate) fn next(&self) -> u64 {
        self.count + 1
    }

    /// Returns a list with `stall`. If its number is new, the stall is appended, and the oldest is
    /// left out if the list is full. Otherwise it takes the place of its former report.
    #[must_use]
    pub(crate) fn with(&self, stall: &Stall, at: Instant) -> Self {
        let is_new = stall.number == self.next();
        let mut recent = VecDeque::with_capacity(STALLS);
        // Leave out the oldest, so that the list never outgrows its first allocation.
        let dropped = (self.recent.len() + usize::from(is_new)).saturating_sub(STALLS);
        recent.extend(self.recent.iter().skip(dropped).cloned());
        let entry = |at| {
            let stall = stall.clone();
            Arc::new(RecentStall { at, stall })
        };
        if is_new {
            recent.push_back(entry(at));
        } else if let Some(former) = recent.iter_mut().find(|it| it.stall.number == stall.number) {
            *former = entry(former.at);
        }
        Self {
            count: self.count.max(stall.number),
            recent,
        }
    }

    /// Returns the stacks that were added to a stall.
    pub(crate) fn stacks(&self, number: u64) -> Vec<Arc<str>> {
        let found = self.recent.iter().find(|it| it.stall.number == number);
        found.map_or_else(Vec::new, |it| it.stall.stacks.clone())
    }

    /// Returns all stacks that were added, each with the number of its stall.
    pub(crate) fn all_stacks(&self) -> Vec<(u64, Arc<str>)> {
        let of = |stall: &Stall| {
            let number = stall.number;
            stall
                .stacks
                .clone()
                .into_iter()
                .map(move |stack| (number, stack))
        };
        self.recent.iter().flat_map(|it| of(&it.stall)).collect()
    }

    /// Returns a list in which a stall of this number has one more stack. The oldest is left out if
    /// there are too many.
    #[must_use]
    pub(crate) fn with_stack(&self, number: u64, stack: &Arc<str>) -> Self {
        let mut list = self.clone();
        let found = list.recent.iter_mut();
        for recent in found.filter(|it| it.stall.number == number) {
            let stacks = &mut Arc::make_mut(recent).stall.stacks;
            stacks.drain(..(stacks.len() + 1).saturating_sub(STACKS));
            stacks.push(stack.clone());
        }
        list
    }
}
