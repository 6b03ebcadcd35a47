//! The watch: samples the process and its runtime, window by window.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use tourbillon::{
    Runtime,
    metrics::{LatenessHistogram, RuntimeMetrics},
};
use tourbillon_cli::{
    figures::{Lateness, rounded},
    proc,
};

use super::{shared::Shared, tally::Count};

/// Returns the value. Records an error as a fault, so that the soak continues.
pub(super) fn or_fault<T>(shared: Shared, said: Result<T, String>) -> Option<T> {
    said.map_err(|error| shared.faults.add("a read of /proc failed", error))
        .ok()
}

/// Interval between samples.
const POLL: Duration = Duration::from_millis(50);
/// Stop if no timer has ended for this long.
const STALLED: Duration = Duration::from_secs(300);

/// The figures of one window.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Window {
    /// End of the window, in s from the start.
    pub(super) at: f64,
    /// Length, in s.
    pub(super) seconds: f64,
    /// Resident memory at the end, in bytes.
    pub(super) rss: u64,
    /// Minimum and maximum number of descriptors.
    pub(super) fds: [usize; 2],
    /// Minimum and maximum number of threads.
    pub(super) threads: [usize; 2],
    /// Median number of pending timers.
    pub(super) pending: usize,
    /// Cancelled timers that are still in their stores: median and maximum.
    pub(super) garbage: [usize; 2],
    /// Median of the garbage as a share of its bound, in the worst shard. Above 1 is too much.
    pub(super) garbage_share: f64,
    /// Timers per second: armed, fired, cancelled, moved.
    pub(super) armed: f64,
    pub(super) fired: f64,
    pub(super) cancelled: f64,
    pub(super) moved: f64,
    /// CPU time of the whole process, in s.
    pub(super) cpu_seconds: f64,
    /// Lateness of the timers' runs, by the program's clock, in µs.
    pub(super) late_us: Lateness,
    /// Lateness at which the runtime took timers from their stores, in µs: median and 99th
    /// percentile.
    pub(super) wake_late_us: [f64; 2],
}

impl Window {
    /// Returns timers armed and cancelled per second.
    pub(super) fn rate(&self) -> f64 {
        self.armed + self.cancelled
    }

    /// Returns timers armed and cancelled per second of CPU time, of which a busy machine gives
    /// less.
    pub(super) fn rate_of_cpu(&self) -> f64 {
        self.rate() * self.seconds / self.cpu_seconds.max(0.01)
    }
}

/// Returns the bound of a shard's garbage: 64 or a quarter of its pending timers, plus what one
/// sweep has in progress (256 and one percent).
pub(super) fn garbage_bound(pending: usize) -> usize {
    let part = (pending / 4).max(64);
    part + part / 100 + 256
}

/// Returns the garbage as a share of its bound, in the worst shard.
pub(super) fn garbage_share(metrics: &RuntimeMetrics) -> f64 {
    let shares = metrics
        .workers()
        .iter()
        .map(|worker| worker.garbage() as f64 / garbage_bound(worker.pending()) as f64);
    shares.fold(0.0, f64::max)
}

/// Returns the median; of an even number of values, the upper one.
pub(super) fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("none is NaN"));
    values.get(values.len() / 2).copied()
}

/// Returns the length of a window. A run has 60 windows of at least 5 s, or 12 if it is shorter
/// than a minute.
pub(super) fn window(duration: Duration) -> Duration {
    if duration < Duration::from_secs(60) {
        (duration / 12).max(Duration::from_millis(100))
    } else {
        (duration / 60).max(Duration::from_secs(5))
    }
}

/// The samples of one window.
#[derive(Default)]
struct Samples {
    fds: Vec<usize>,
    threads: Vec<usize>,
    pending: Vec<usize>,
    garbage: Vec<usize>,
    garbage_share: Vec<f64>,
}

fn bounds(values: &[usize]) -> [usize; 2] {
    let of = |value: Option<&usize>| value.copied().unwrap_or(0);
    [of(values.iter().min()), of(values.iter().max())]
}

/// Counters at the start of a window.
struct Before {
    at: Instant,
    cpu: f64,
    counts: [u64; 4],
    wake: LatenessHistogram,
}

const COUNTS: [Count; 4] = [Count::Armed, Count::Fired, Count::Cancelled, Count::Moved];

/// Samples the process.
pub(super) struct Watch<'a> {
    shared: Shared,
    runtime: &'a Runtime,
    start: Instant,
}

impl<'a> Watch<'a> {
    pub(super) fn new(shared: Shared, runtime: &'a Runtime) -> Self {
        let start = Instant::now();
        Self {
            shared,
            runtime,
            start,
        }
    }

    /// Samples for `duration`, or until the soak is stopped. Calls `at_sample` with the elapsed
    /// time after each sample.
    pub(super) fn run(
        &self,
        duration: Duration,
        mut at_sample: impl FnMut(Duration, &[Window]),
    ) -> Vec<Window> {
        let window = window(duration);
        let mut windows = Vec::new();
        let mut alive = (0, Instant::now());
        // Memory grows until each slot has had a timer. Wait for that before the first window.
        let slots = self.shared.slots.len() as u64;
        while self.count(Count::Made) < slots
            && self.start.elapsed() < duration
            && !self.shared.is_stopping()
        {
            at_sample(self.start.elapsed(), &windows);
            thread::sleep(POLL.min(window / 4));
        }
        while self.start.elapsed() < duration && !self.shared.is_stopping() {
            // Sample the gauges during the window, and the counters at its ends.
            let before = or_fault(self.shared, self.before());
            let began = Instant::now();
            let mut samples = Samples::default();
            while began.elapsed() < window && !self.shared.is_stopping() {
                or_fault(self.shared, self.sample(&mut samples));
                at_sample(self.start.elapsed(), &windows);
                thread::sleep(POLL.min(window / 4));
            }
            // Skip a window that was cut short.
            if let Some(before) = before
                && began.elapsed() >= window
            {
                windows.extend(or_fault(self.shared, self.window(&before, &samples)));
            }
            // Give up if timers stopped ending.
            let ended = self.count(Count::Fired) + self.count(Count::Cancelled);
            if ended > alive.0 {
                alive = (ended, Instant::now());
            } else if alive.1.elapsed() > STALLED {
                let what = "timers stopped ending";
                self.shared.faults.add(what, format_args!("after {ended}"));
                self.shared.stop();
            }
        }
        windows
    }

    fn count(&self, what: Count) -> u64 {
        self.shared.tally.get(what)
    }

    fn before(&self) -> Result<Before, String> {
        self.shared.tally.take_lateness();
        Ok(Before {
            cpu: proc::cpu_seconds()?,
            at: Instant::now(),
            counts: COUNTS.map(|what| self.count(what)),
            wake: self.runtime.metrics().wake_lateness(),
        })
    }

    fn sample(&self, samples: &mut Samples) -> Result<(), String> {
        samples.fds.push(proc::descriptors()?);
        samples.threads.push(proc::threads()?);
        let metrics = self.runtime.metrics();
        let workers = metrics.workers();
        samples
            .pending
            .push(workers.iter().map(|it| it.pending()).sum());
        samples
            .garbage
            .push(workers.iter().map(|it| it.garbage()).sum());
        samples.garbage_share.push(garbage_share(&metrics));
        Ok(())
    }

    fn window(&self, before: &Before, samples: &Samples) -> Result<Window, String> {
        let seconds = before.at.elapsed().as_secs_f64();
        let mut rates = [0.0; 4];
        for (i, what) in COUNTS.into_iter().enumerate() {
            let more = self.count(what) - before.counts[i];
            rates[i] = (more as f64 / seconds).round();
        }
        let [armed, fired, cancelled, moved] = rates;
        let wake = self.runtime.metrics().wake_lateness().since(&before.wake);
        let micros = |q| {
            wake.quantile(q)
                .map_or(0.0, |late| late.as_nanos() as f64 / 1e3)
        };
        Ok(Window {
            at: rounded(self.start.elapsed().as_secs_f64()),
            seconds: rounded(seconds),
            rss: proc::resident_bytes()?,
            fds: bounds(&samples.fds),
            threads: bounds(&samples.threads),
            pending: median(samples.pending.iter().copied()).unwrap_or(0),
            garbage: [
                median(samples.garbage.iter().copied()).unwrap_or(0),
                bounds(&samples.garbage)[1],
            ],
            garbage_share: rounded(median(samples.garbage_share.iter().copied()).unwrap_or(0.0)),
            armed,
            fired,
            cancelled,
            moved,
            cpu_seconds: rounded(proc::cpu_seconds()? - before.cpu),
            late_us: Lateness::of(&self.shared.tally.take_lateness()),
            wake_late_us: [micros(0.5), micros(0.99)],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_sixty_or_long_enough() {
        let window = |seconds| window(Duration::from_secs(seconds)).as_secs_f64();
        assert_eq!(window(7_200), 120.0);
        assert_eq!(window(900), 15.0);
        assert_eq!(window(60), 5.0);
        assert_eq!(window(12), 1.0);
        assert_eq!(window(1), 0.1);
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3, 1, 2]), Some(2));
        assert_eq!(median([4.0, 1.0]), Some(4.0));
        assert_eq!(median::<u8>([]), None);
    }

    #[test]
    fn the_garbage_bound_matches_the_documented_one() {
        assert_eq!(garbage_bound(0), 64 + 256);
        assert_eq!(garbage_bound(40_000), 10_000 + 100 + 256);
    }
}
