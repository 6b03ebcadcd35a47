//! Late timers that are not explained yet: by when which thread took and ran each.

use tourbillon::{
    flight::{Rescue, Thread},
    metrics::JobName,
};

use crate::Analysis;

/// A batch of timers that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch {
    pub(crate) at: u64,
    pub(crate) late: u64,
    pub(crate) tolerance: u64,
    /// The worker that owns the timers.
    pub(crate) home: usize,
    pub(crate) left: Option<u64>,
    pub(crate) rescue: Option<Rescue>,
    pub(crate) stuck_in: Option<JobName>,
    pub(crate) by: Thread,
}

/// A timer that ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) at: u64,
    pub(crate) late: u64,
    pub(crate) taken: u64,
    pub(crate) tolerance: u64,
    pub(crate) timer: Option<JobName>,
    pub(crate) by: Thread,
}

impl Batch {
    /// Returns the deadline of its first timer.
    pub(crate) fn deadline(&self) -> u64 {
        self.at.saturating_sub(self.late)
    }
}

impl Run {
    pub(crate) fn deadline(&self) -> u64 {
        self.at.saturating_sub(self.late)
    }
}

/// A late timer, as far as its own events tell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// A timer of worker `home` that ran.
    Ran { run: Run, home: usize },
    /// A timer of the wall clock or the boot-time clock. The machine was suspended, and the clock
    /// was set, by `jumps`.
    OtherClock { run: Run, jumps: (u64, u64) },
    /// The first timer of a batch, which was not seen to run.
    Taken(Batch),
}

/// A late timer that is not explained yet: see [`Analysis::find`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Found {
    pub(crate) kind: Kind,
    /// From its deadline until it was taken from its store.
    pub wake: Stage,
    /// From there until it ran, if it was seen to run.
    pub queue: Option<Stage>,
    /// Whether a peer took it from a stuck worker.
    pub is_rescued: bool,
}

/// A stage of a timer's lateness, as the histograms of
/// [`WorkerMetrics`](tourbillon::metrics::WorkerMetrics) have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The thread in whose histogram it is.
    pub thread: Thread,
    /// When the stage ended, in ns since the runtime was built.
    pub at: u64,
    /// How long it took, in ns.
    pub late: u64,
}

/// What identifies a timer in several snapshots of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The worker that owns the timer. `None` for timers of the wall clock and the boot-time clock.
    pub home: Option<usize>,
    /// The deadline, in ns since the runtime was built.
    pub deadline: u64,
    /// When it ran, in ns since the runtime was built, if that was seen.
    pub ran: Option<u64>,
}

impl Key {
    /// Returns whether `self` was seen to run, and `other`, which was only seen to be taken, may be
    /// that timer.
    pub fn completes(self, other: Self) -> bool {
        let is_due = (self.home, self.deadline) == (other.home, other.deadline);
        is_due && self.ran.is_some() && other.ran.is_none()
    }
}

impl Found {
    pub(crate) fn new(kind: Kind, analysis: &Analysis<'_>) -> Self {
        let (run, home) = match kind {
            Kind::Ran { run, home } => (run, Some(home)),
            Kind::OtherClock { run, .. } => (run, None),
            Kind::Taken(batch) => {
                return Self {
                    kind,
                    wake: Stage {
                        thread: batch.by,
                        at: batch.at,
                        late: batch.late,
                    },
                    queue: None,
                    is_rescued: batch.rescue.is_some(),
                };
            }
        };
        // The batch knows the moment exactly, and the thread.
        let batch = home.and_then(|home| analysis.batch_of(run.taken, home));
        let taken = batch.map_or(run.taken, |batch| batch.at);
        let taken = taken.clamp(run.deadline(), run.at);
        let thread = batch.map_or(home.map_or(run.by, Thread::Worker), |batch| batch.by);
        Self {
            kind,
            wake: Stage {
                thread,
                at: taken,
                late: taken - run.deadline(),
            },
            queue: Some(Stage {
                thread: run.by,
                at: run.at,
                late: run.at - taken,
            }),
            is_rescued: batch.is_some_and(|batch| batch.rescue.is_some()),
        }
    }

    /// Returns what identifies the timer in other snapshots.
    pub fn key(&self) -> Key {
        let (home, deadline) = match self.kind {
            Kind::Ran { run, home } => (Some(home), run.deadline()),
            Kind::OtherClock { run, .. } => (None, run.deadline()),
            Kind::Taken(batch) => (Some(batch.home), batch.deadline()),
        };
        Key {
            home,
            deadline,
            ran: self.queue.map(|queue| queue.at),
        }
    }

    /// Returns the lateness of both stages, in ns.
    pub fn late(&self) -> u64 {
        self.wake.late + self.queue.map_or(0, |queue| queue.late)
    }
}
