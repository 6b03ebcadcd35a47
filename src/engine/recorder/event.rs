//! The events of the recorder.

use crate::metrics::activity::JobName;

/// Processor time that a thread could have used and did not get, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lost {
    /// Other threads had the core.
    pub preempted: u64,
    /// The hypervisor ran another machine.
    pub stolen: u64,
    /// The process had used up its CPU quota.
    pub throttled: u64,
}

impl Lost {
    /// Splits this into at most `most` ns, and the rest.
    pub(crate) fn split(self, most: u64) -> (Self, Self) {
        let throttled = self.throttled.min(most);
        let stolen = self.stolen.min(most - throttled);
        let preempted = self.preempted.min(most - throttled - stolen);
        let first = Self {
            preempted,
            stolen,
            throttled,
        };
        let rest = Self {
            preempted: self.preempted - preempted,
            stolen: self.stolen - stolen,
            throttled: self.throttled - throttled,
        };
        (first, rest)
    }
}

/// A rescue of a worker's timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Rescue {
    /// The number of the stuck worker.
    pub from: usize,
    /// When the peer came.
    pub came: u64,
}

impl Rescue {
    /// Creates a rescue from worker `from` at `came`, for tests of programs that read snapshots.
    pub fn new(from: usize, came: u64) -> Self {
        Self { from, came }
    }
}

/// Why a thread woke a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// There is work to search for.
    Search,
    /// A timer or a task was left for this worker, which slept past it: a *tickle*.
    Update,
}

/// What a thread did or saw. All numbers that are no counts are in ns; moments count from when the
/// runtime was built.
///
/// In [light](crate::flight::Recording::Light) recording a ring has only what took 200 µs or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The worker goes to sleep.
    Parked {
        /// When the sleep is to end. `None` if only a wake-up ends it.
        until: Option<u64>,
    },
    /// The worker is back from a sleep.
    Resumed {
        /// When the sleep was to end, as in [`Parked`](Event::Parked).
        until: Option<u64>,
        /// The time at the end of the sleep in which the worker waited for a core.
        lost: Lost,
    },
    /// The worker is back in its loop, after it has run jobs.
    Turn {
        /// How long the jobs took together.
        took: u64,
        /// How many there were.
        jobs: u64,
        /// The last of them, if it is known.
        last: Option<JobName>,
        /// The part of the time in which the worker waited for a core.
        lost: Lost,
    },
    /// The worker was in its loop before this moment, and ran no job.
    Looped {
        /// For how long.
        took: u64,
        /// The part of the time in which the worker waited for a core.
        lost: Lost,
    },
    /// The worker has taken timers from their store, and queued them.
    Taken {
        /// The lateness of the first of them.
        late: u64,
        /// How late the first of them may run.
        tolerance: u64,
        /// How many there are.
        count: u64,
        /// Since when each batch has left due timers behind.
        left: Option<u64>,
        /// The rescue, if the timers are those of a stuck worker.
        rescue: Option<Rescue>,
        /// What the stuck worker was at.
        stuck_in: Option<JobName>,
    },
    /// A timer is run: its callback begins, or its task is polled.
    TimerRan {
        /// How late it is.
        late: u64,
        /// When it was taken from its store.
        taken: u64,
        /// The worker that owns the timer. `None` for timers of other clocks.
        home: Option<usize>,
        /// How late the timer may run.
        tolerance: u64,
        /// The callback or the task, if it is known.
        timer: Option<JobName>,
    },
    /// A job begins.
    JobBegan {
        /// The number of the job, counted by the worker.
        number: u64,
        /// The job, if it is known.
        job: Option<JobName>,
    },
    /// This thread wakes a worker.
    WokeWorker {
        /// The number of the worker.
        worker: usize,
        /// What for.
        why: WakeReason,
    },
    /// The worker took jobs from the queue of another one.
    Stole {
        /// The number of the other worker.
        from: usize,
        /// How many jobs.
        jobs: u64,
    },
    /// A job that holds a worker is reported: while it runs, when it is over, or both.
    Stalled {
        /// The [number](crate::runtime::Stall::number) of the stall.
        number: u64,
        /// The number of that worker.
        worker: usize,
        /// Whether the job still runs.
        is_running: bool,
        /// For how long it has held the worker.
        elapsed: u64,
        /// The job. `None` if it is not known which of several jobs it was.
        job: Option<JobName>,
    },
    /// The wall clock was set.
    Stepped {
        /// How far forward. It is negative if the clock was set back.
        by: i64,
    },
    /// The machine was suspended.
    Suspended {
        /// For how long.
        length: u64,
    },
    /// A timer was armed.
    Armed {
        /// When it is due.
        deadline: u64,
    },
    /// A timer of another worker was moved.
    Moved,
}
