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
    /// By how much earlier than its deadline the last sleep was to end, in ns.
    pub(crate) advance: Counter,
    /// Jobs that it took from the queue of each worker.
    steals_from: PerWorker,
    /// Timers and tasks that it took from each worker that was busy.
    rescued_from: PerWorker,
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
        Self {
            own: CachePadded::default(),
            foreign: Stripes::default(),
            late: Late::default(),
            advance: Counter::default(),
            steals_from: PerWorker::new(workers),
            rescued_from: PerWorker::new(workers),
        }
    }

    /// The counters for the calling thread, which is another than the worker.
    #[inline]
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

/// A counter for each worker, on lines of the cache where nothing else is: what another thread writes down may have
/// been given the memory beside these.
#[derive(Debug)]
struct PerWorker {
    lines: Box<[CachePadded<[Counter; LINE]>]>,
    workers: usize,
}

/// How many counters share what [`CachePadded`] pads to.
const LINE: usize = 16;

impl PerWorker {
    fn new(workers: usize) -> Self {
        let lines = workers.div_ceil(LINE);
        Self {
            lines: (0..lines).map(|_| CachePadded::default()).collect(),
            workers,
        }
    }

    fn iter(&self) -> impl Iterator<Item = &Counter> {
        let counters = self.lines.iter().flat_map(|line| line.iter());
        counters.take(self.workers)
    }

    /// The counter of a worker, if there is one of this number.
    fn get(&self, worker: usize) -> Option<&Counter> {
        let counter = self.lines.get(worker / LINE)?.get(worker % LINE);
        counter.filter(|_| worker < self.workers)
    }

    fn read(&self) -> Vec<u64> {
        self.iter().map(Counter::get).collect()
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
    /// Returns the set of the calling thread.
    #[inline]
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

#[cfg(all(test, not(tourbillon_no_metrics)))]
mod tests {
    use std::mem::{align_of_val, offset_of};

    use super::*;

    /// The bytes of a line of the cache.
    const BYTES: usize = 64;

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
    fn what_is_written_often_is_beside_nothing_that_others_write() {
        let recorder = Recorder::new(3);
        assert!(align_of_val(&recorder) >= BYTES);
        assert!(align_of_val(&recorder.steals_from.lines[0]) >= BYTES);
        // A timer's whole way is within one line.
        assert_eq!(offset_of!(Counters, armed_local), 0);
        for end in [
            offset_of!(Counters, armed_remote),
            offset_of!(Counters, refreshed),
            offset_of!(Counters, fired),
            offset_of!(Counters, cancelled),
            offset_of!(Counters, shut_down),
            offset_of!(Counters, callbacks),
        ] {
            assert!(end + size_of::<Counter>() <= BYTES);
        }
    }
}
