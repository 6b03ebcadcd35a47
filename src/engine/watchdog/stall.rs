//! A stall: a job that keeps its worker for too long, as it is reported.

use std::{collections::VecDeque, fmt, panic::Location, sync::Arc, time::Duration};

use crate::{clock::instant::Instant, metrics::activity::JobName};

/// A function that is told of stalls.
pub(crate) type StallHook = Arc<dyn Fn(&Stall) + Send + Sync>;

/// How many stalls are kept.
const STALLS: usize = 64;

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

/// A stall that was reported, and when.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecentStall {
    /// How many were reported before it, and one.
    pub number: u64,
    /// When it was reported, by the clock of the runtime.
    pub at: Instant,
    /// What was reported.
    pub stall: Stall,
}

/// The stalls that were reported last. Who reports one makes a new list, so that nobody waits for who reads it; of
/// addresses, since memory of more than 1,024 bytes may take glibc tens of ms where very many tasks have just been freed,
/// and that would be a stall.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stalls {
    count: u64,
    pub(crate) recent: VecDeque<Arc<RecentStall>>,
}

impl Stalls {
    /// The list with one more.
    #[must_use]
    pub(crate) fn with(&self, stall: &Stall, at: Instant) -> Self {
        let number = self.count + 1;
        let mut recent = VecDeque::with_capacity(STALLS);
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
