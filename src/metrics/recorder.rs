//! Where the threads of a runtime write down what they do, each in a place of its own.

use std::{
    cell::Cell,
    ops::AddAssign,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use crossbeam::utils::CachePadded;

use super::{
    counters::{Counter, Counters, Counts},
    histogram::{LatenessHistogram, Recorded},
};

/// What a worker, or a helper, writes down.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Written by the worker.
    pub(crate) own: CachePadded<Counters>,
    /// Written by other threads.
    foreign: Stripes,
    /// Written by the worker, as all that follows.
    pub(crate) late: Late,
    /// Jobs that it took from the queue of each worker.
    steals_from: Box<[Counter]>,
    /// Timers and tasks that it took from each worker that was busy.
    rescued_from: Box<[Counter]>,
}

/// How late timers were, by where they waited for so long.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// From the deadline to when they were taken from the store.
    pub(crate) wake: Recorded,
    /// From there to when they ran, of some.
    pub(crate) queue: Recorded,
    /// Of those that came from a worker that was busy: as `wake`, where they are, too.
    pub(crate) rescued: Recorded,
}

impl Recorder {
    /// Of a thread in a runtime with so many workers.
    pub(crate) fn new(workers: usize) -> Self {
        let for_each_worker = || (0..workers).map(|_| Counter::default()).collect();
        Self {
            own: CachePadded::default(),
            foreign: Stripes::default(),
            late: Late::default(),
            steals_from: for_each_worker(),
            rescued_from: for_each_worker(),
        }
    }

    /// The counters for the calling thread, which is another than the worker.
    pub(crate) fn foreign(&self) -> &Counters {
        self.foreign.own()
    }

    /// Counts jobs taken from the queue of another. For the worker.
    pub(crate) fn stole(&self, jobs: u64, from: usize) {
        self.own.steal_operations.add_alone(1);
        self.own.jobs_stolen.add_alone(jobs);
        // A helper is no worker, and has no number among them.
        if let Some(count) = self.steals_from.get(from) {
            count.add_alone(jobs);
        }
    }

    /// Counts what was taken from another that is busy. For the worker.
    pub(crate) fn rescued(&self, timers: u64, tasks: u64, from: usize) {
        self.own.rescued_timers.add_alone(timers);
        self.own.rescued_tasks.add_alone(tasks);
        if let Some(count) = self.rescued_from.get(from) {
            count.add_alone(timers + tasks);
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = self.own.read();
        counts += &self.foreign.read();
        counts
    }

    pub(crate) fn read(&self) -> Record {
        let all = |counters: &[Counter]| counters.iter().map(Counter::get).collect();
        Record {
            counts: self.counts(),
            wake_lateness: self.late.wake.read(),
            queue_lateness: self.late.queue.read(),
            rescued_lateness: self.late.rescued.read(),
            steals_from: all(&self.steals_from),
            rescued_from: all(&self.rescued_from),
        }
    }
}

/// What a thread has written down, or several together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) counts: Counts,
    pub(crate) wake_lateness: LatenessHistogram,
    pub(crate) queue_lateness: LatenessHistogram,
    pub(crate) rescued_lateness: LatenessHistogram,
    pub(crate) steals_from: Vec<u64>,
    pub(crate) rescued_from: Vec<u64>,
}

impl AddAssign<&Self> for Record {
    fn add_assign(&mut self, other: &Self) {
        self.counts += &other.counts;
        self.wake_lateness += &other.wake_lateness;
        self.queue_lateness += &other.queue_lateness;
        self.rescued_lateness += &other.rescued_lateness;
        add_each(&mut self.steals_from, &other.steals_from);
        add_each(&mut self.rescued_from, &other.rescued_from);
    }
}

fn add_each(sums: &mut Vec<u64>, more: &[u64]) {
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    sums.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
}

/// Counters that many threads write at once: several sets, so that few threads write the same one. The line
/// of a counter that two threads write goes to and fro between them with each timer that they arm.
#[derive(Debug, Default)]
pub(crate) struct Stripes([CachePadded<Counters>; STRIPES]);

const STRIPES: usize = 4;

impl Stripes {
    /// The set of the calling thread.
    pub(crate) fn own(&self) -> &Counters {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
        let stripe = STRIPE.with(|stripe| {
            if stripe.get() == usize::MAX {
                stripe.set(THREADS.fetch_add(1, Relaxed) % STRIPES);
            }
            stripe.get()
        });
        &self.0[stripe]
    }

    pub(crate) fn read(&self) -> Counts {
        let mut counts = Counts::default();
        for stripe in &self.0 {
            counts += &stripe.read();
        }
        counts
    }
}
