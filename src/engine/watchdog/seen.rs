//! What peers have seen of a worker's jobs, and the stall that they found.

use std::{num::NonZeroU64, time::Duration};

use crate::{engine::watchdog::stall::Stall, metrics::activity::JobRef};

/// What peers have seen of a worker's jobs, and the stall that they found.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) sight: Option<Sight>,
    pub(super) stall: Option<Open>,
    /// Up to where a peer has seen the end of a stall: what came before needs no second report.
    pub(super) over: InLoop,
}

/// The job that peers saw last.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sight {
    pub(super) number: u64,
    /// When it was first seen, and when last, in ns.
    pub(super) since: u64,
    pub(super) until: u64,
    pub(super) what: Option<JobRef>,
    pub(super) origin: Option<NonZeroU64>,
}

/// A stall that is not yet reported to its end.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) stall: Stall,
    /// When peers first saw its job, in ns.
    pub(super) since: u64,
    pub(super) course: Course,
}

/// How far the report of a stall is. A hook is user code, so no lock is held while it runs; yet it
/// must not hear of the end first.
///
/// ```text
/// Found ──> Reporting ──> Reported ──> (none)    the reporter, twice; then the end
///   │           └───────> Ended ─────> (none)    the end; then the reporter
///   └──────────────────────────────> (none)      the end, if it comes first: one report for all
/// ```
///
/// The end is noted by the worker, or by a peer that sees the worker at a later job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Course {
    /// A peer has found it, and will report it.
    Found,
    /// A thread reports that the job runs.
    Reporting,
    /// That is reported.
    Reported,
    /// The job ended while a thread reported that it runs. This thread reports the end, too.
    Ended,
}

/// When a worker was last in its loop, and after how many jobs. Only the worker reads it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InLoop {
    pub(crate) at: u64,
    /// How many jobs had run by then.
    pub(crate) jobs: u64,
}

impl Seen {
    /// Notes that the worker has left all jobs before `number`, as it was seen at `now`. Returns
    /// whether this is the end of a stall that the caller is to report.
    pub(super) fn left(&mut self, number: u64, now: u64) -> bool {
        let open = self.stall.as_ref();
        let open = open.filter(|it| it.stall.is_running && it.stall.job_number < number);
        let Some(since) = open.map(|it| it.since) else {
            return false;
        };
        self.over = InLoop::at(now, number - 1);
        let Some(stall) = self.end(since, now) else {
            return false;
        };
        self.stall = Some(Open {
            stall,
            since,
            course: Course::Found,
        });
        true
    }

    /// Notes that the job of the stall has run from `since` to `until`, in ns, and is over. Returns
    /// the stall if the caller is to report that.
    pub(super) fn end(&mut self, since: u64, until: u64) -> Option<Stall> {
        let open = self.stall.as_mut()?;
        open.stall.is_running = false;
        open.stall.elapsed = Duration::from_nanos(until.saturating_sub(since));
        if open.course == Course::Reporting {
            open.course = Course::Ended;
            return None;
        }
        self.stall.take().map(|open| open.stall)
    }
}

impl Sight {
    /// Returns since when the job is known to have run, in ns, in a turn that began at `from`.
    pub(super) fn begun(&self, from: InLoop) -> u64 {
        match self.number == from.jobs + 1 {
            true => from.at,
            false => self.since,
        }
    }
}

/// Returns a stall that is over, and that has no number yet.
pub(super) fn stall(
    worker: usize,
    elapsed: u64,
    jobs: u64,
    what: Option<JobRef>,
    origin: Option<NonZeroU64>,
) -> Stall {
    Stall {
        number: 0,
        worker,
        is_helper: false,
        thread: 0,
        job: what.map(JobRef::name),
        elapsed: Duration::from_nanos(elapsed),
        is_running: false,
        jobs,
        stacks: Vec::new(),
        job_number: 0,
        what,
        origin,
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
        (
            self.jobs.saturating_sub(last.jobs),
            self.at.saturating_sub(last.at),
        )
    }
}
