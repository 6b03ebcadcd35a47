//! The counters and histograms that each thread of a runtime writes.

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

/// The counters and histograms of a worker or helper.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Written by the worker alone.
    pub(crate) own: CachePadded<Counters>,
    /// Written by other threads.
    foreign: Stripes,
    /// Written by the worker alone, like all fields below.
    pub(crate) late: Late,
    /// The current wake-up latency compensation, in ns.
    pub(crate) advance: Counter,
    /// How often the worker woke up from a sleep: as often as it went to sleep, or once less.
    pub(crate) unparks: Counter,
    #[cfg(all(feature = "facade", tokio_unstable))]
    pub(crate) unstable: CachePadded<super::unstable::OfWorker>,
    /// Jobs stolen from each worker's queue.
    steals_from: PerWorker,
    /// Timers and tasks taken from each stuck worker.
    rescued_from: PerWorker,
}

/// Timer lateness, by stage.
#[derive(Debug, Default)]
pub(crate) struct Late {
    /// From the deadline until taken from the store.
    pub(crate) wake: Recorded,
    /// From there until run. A sample.
    pub(crate) queue: Recorded,
    /// The part of `wake` that was taken from stuck workers.
    pub(crate) rescued: Recorded,
}

impl Recorder {
    /// Creates the recorder of a thread in a runtime with `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            own: CachePadded::default(),
            foreign: Stripes::default(),
            late: Late::default(),
            advance: Counter::default(),
            unparks: Counter::default(),
            #[cfg(all(feature = "facade", tokio_unstable))]
            unstable: CachePadded::default(),
            steals_from: PerWorker::new(workers),
            rescued_from: PerWorker::new(workers),
        }
    }

    /// Returns the counters for the calling thread, which is not the worker.
    #[inline]
    pub(crate) fn foreign(&self) -> &Counters {
        self.foreign.own()
    }

    /// Counts jobs stolen from another queue. For the worker.
    pub(crate) fn stole(&self, jobs: u64, from: usize) {
        self.own.steal_operations.add_alone(1);
        self.own.jobs_stolen.add_alone(jobs);
        // `from` may be a helper, which has no counter here.
        if let Some(count) = self.steals_from.get(from) {
            count.add_alone(jobs);
        }
    }

    /// Counts timers and tasks taken from a stuck worker. For the worker.
    pub(crate) fn rescued(&self, timers: u64, tasks: u64, from: usize) {
        self.own.rescued_timers.add_alone(timers);
        self.own.rescued_tasks.add_alone(tasks);
        // As in `stole`: a helper has no counter here.
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
        Record {
            counts: self.counts(),
            wake_lateness: self.late.wake.read(),
            queue_lateness: self.late.queue.read(),
            rescued_lateness: self.late.rescued.read(),
            steals_from: self.steals_from.read(),
            rescued_from: self.rescued_from.read(),
        }
    }
}

/// A counter per worker, on cache lines of their own: adjacent memory may belong to data that other
/// threads write.
#[derive(Debug)]
struct PerWorker {
    lines: Box<[CachePadded<[Counter; COUNTERS_PER_LINE]>]>,
    workers: usize,
}

/// The number of counters that fit into what [`CachePadded`] pads to.
const COUNTERS_PER_LINE: usize = 16;

impl PerWorker {
    fn new(workers: usize) -> Self {
        let lines = workers.div_ceil(COUNTERS_PER_LINE);
        Self {
            lines: (0..lines).map(|_| CachePadded::default()).collect(),
            workers,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Counter> {
        let counters = self.lines.iter().flat_map(|line| line.iter());
        counters.take(self.workers)
    }

    /// Returns the counter of a worker, or `None` if the number is out of range.
    fn get(&self, worker: usize) -> Option<&Counter> {
        let counter = self
            .lines
            .get(worker / COUNTERS_PER_LINE)?
            .get(worker % COUNTERS_PER_LINE);
        counter.filter(|_| worker < self.workers)
    }

    fn read(&self) -> Vec<u64> {
        self.iter().map(Counter::get).collect()
    }
}

/// A snapshot of one or several recorders.
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
    // A sum begins empty, before the first record is added.
    if sums.len() < more.len() {
        sums.resize(more.len(), 0);
    }
    sums.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
}

/// Counters that many threads write, split into several sets so that few threads share one.
///
/// If two threads write a counter, its cache line moves between their cores with each write.
#[derive(Debug, Default)]
pub(crate) struct Stripes([CachePadded<Counters>; STRIPES]);

const STRIPES: usize = 4;

impl Stripes {
    /// Returns the set of the calling thread.
    #[inline]
    pub(crate) fn own(&self) -> &Counters {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local!(static STRIPE: Cell<usize> = const { Cell::new(usize::MAX) });
        // Assign the sets to threads in turn.
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

#[cfg(all(test, not(tourbillon_no_metrics)))]
mod tests {
    use std::mem::{align_of_val, offset_of};

    use super::*;

    /// The size of a cache line in bytes.
    const LINE_BYTES: usize = 64;

    #[test]
    fn each_worker_has_a_counter() {
        for workers in [0, 1, 15, 16, 17, 40] {
            let counters = PerWorker::new(workers);
            for i in 0..workers {
                counters.get(i).unwrap().add_alone(i as u64 + 1);
            }
            assert!(counters.get(workers).is_none());
            assert!(counters.get(usize::MAX).is_none());
            let expected: Vec<_> = (1..=workers as u64).collect();
            assert_eq!(counters.read(), expected);
        }
    }

    #[test]
    fn hot_counters_share_no_cache_line_with_other_writers() {
        let recorder = Recorder::new(3);
        assert!(align_of_val(&recorder) >= LINE_BYTES);
        assert!(align_of_val(&recorder.steals_from.lines[0]) >= LINE_BYTES);
        // The counters of a timer's life are on one line.
        assert_eq!(offset_of!(Counters, armed_local), 0);
        for end in [
            offset_of!(Counters, armed_remote),
            offset_of!(Counters, refreshed),
            offset_of!(Counters, fired),
            offset_of!(Counters, cancelled),
            offset_of!(Counters, shut_down),
            offset_of!(Counters, callbacks),
        ] {
            assert!(end + size_of::<Counter>() <= LINE_BYTES);
        }
    }
}
