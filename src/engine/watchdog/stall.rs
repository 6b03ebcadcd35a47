//! The report of a stall: a job that keeps its worker for too long.

use std::{
    collections::VecDeque, fmt, num::NonZeroU64, panic::Location, sync::Arc, time::Duration,
};

use crate::{clock::instant::Instant, metrics::activity::JobName};

/// The user's function that is called with each stall.
pub(crate) type StallHook = Arc<dyn Fn(&Stall) + Send + Sync>;

/// How many stalls are kept.
const STALLS: usize = 64;

/// A job that kept its worker for too long: see
/// [`Builder::stall_threshold`](crate::runtime::Builder::stall_threshold).
///
/// `Display` gives one line for a log:
///
/// ```text
/// worker 2 is stuck in task shop::main (spawned at src/main.rs:31:9), for 100.4ms so far
/// worker 0 was stuck in callback shop::expire, for 312.0ms
/// worker 0 was away for 260.1ms and ran 9 jobs, the last of them callback shop::expire
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The worker's number. The number of a [helper](crate::runtime::Builder::helpers) is above
    /// those of all workers.
    pub worker: usize,
    /// Whether it is a helper.
    pub is_helper: bool,
    /// The [name of the task](crate::task::Builder::name), if it has one. Otherwise the type of the
    /// task's future or of the timer's callback, as given by [`std::any::type_name`]. A closure
    /// goes by the function that contains it.
    pub job: &'static str,
    /// Where the task was spawned. `None` for timers.
    pub spawned: Option<&'static Location<'static>>,
    /// How long the job has run, in real time. This includes the time in which the kernel runs
    /// other threads, and the time in which the runtime's clock is paused.
    ///
    /// For a job that still [runs](Stall::is_running), it is the time since a peer first saw the
    /// job, so it is too short by the time before that. For a job that is over, it is the time in
    /// which the worker was away from its loop.
    pub elapsed: Duration,
    /// Whether the job was still running when the stall was found.
    pub is_running: bool,
    /// How many jobs ran in that time. It is 1 if it is certain which job it was. It is more if no
    /// peer watched, and the worker found the stall when it came back to its loop. Then these jobs
    /// together took so long, and [`job`](Stall::job) is the last of them, which need not be the
    /// slow one.
    pub jobs: u64,
    /// The span that armed the timer. `None` for tasks, and without feature `tracing`.
    #[cfg_attr(not(feature = "tracing"), allow(dead_code, reason = "no event has it"))]
    pub(crate) origin: Option<NonZeroU64>,
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (worker, elapsed, jobs) = (self.worker, self.elapsed, self.jobs);
        f.write_str(if self.is_helper { "helper" } else { "worker" })?;
        // It is certain which job it was only if that job still runs, or was the only one.
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

/// A stall that was reported, with its number and time.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentStall {
    /// The number of this stall, counted from 1 over all stalls of the runtime.
    pub number: u64,
    /// When it was reported, by the clock of the runtime.
    pub at: Instant,
    /// What was reported.
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
    /// Returns a list with `stall` appended, and without the oldest if it is full.
    #[must_use]
    pub(crate) fn with(&self, stall: &Stall, at: Instant) -> Self {
        let number = self.count + 1;
        let mut recent = VecDeque::with_capacity(STALLS);
        // Leave out the oldest, so that the list never outgrows its first allocation.
        let dropped = (self.recent.len() + 1).saturating_sub(STALLS);
        recent.extend(self.recent.iter().skip(dropped).cloned());
        recent.push_back(Arc::new(RecentStall {
            number,
            at,
            stall: stall.clone(),
        }));
        Self {
            count: number,
            recent,
        }
    }
}
