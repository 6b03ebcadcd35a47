//! Looking at the process and its runtime, window by window.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;
use tourbillon::{
    Runtime,
    metrics::{LatenessHistogram, RuntimeMetrics},
};

use super::{books::Books, tally::Count};
use crate::{
    figures::{Lateness, rounded},
    proc,
};

/// What the system said; what it did not say is noted as a fault, and the soak goes on.
pub(super) fn seen<T>(books: Books, said: Result<T, String>) -> Option<T> {
    said.map_err(|error| books.faults.add("the system did not tell", error))
        .ok()
}

/// How often gauges are looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// With no timer ended for so long, something is broken, and there is no use in going on.
const STALLED: Duration = Duration::from_secs(300);

/// What was seen in one window.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Window {
    /// When it ended, from the start, in s.
    pub(super) at: f64,
    /// How long it was, in s.
    pub(super) seconds: f64,
    /// The memory of the process at its end, in bytes.
    pub(super) rss: u64,
    /// The fewest and the most descriptors.
    pub(super) fds: [usize; 2],
    /// The fewest and the most threads.
    pub(super) threads: [usize; 2],
    /// The median of the timers that waited.
    pub(super) pending: usize,
    /// The median of cancelled timers of which their shards had not heard; and the most.
    pub(super) garbage: [usize; 2],
    /// The median of how much of its bound garbage took, shard by shard: more than 1 is too much.
    pub(super) garbage_share: f64,
    /// Timers armed, ended by running and by being cancelled, and moved, in a second.
    pub(super) armed: f64,
    pub(super) fired: f64,
    pub(super) cancelled: f64,
    pub(super) moved: f64,
    /// Processor time of the whole process, in s.
    pub(super) cpu_seconds: f64,
    /// How late timers ran, by the program's own books, in µs.
    pub(super) late_us: Lateness,
    /// How late they were taken from their stores, by the runtime's: the median, and of 100 the 99th, in µs.
    pub(super) wake_late_us: [f64; 2],
}

impl Window {
    /// Timers armed and cancelled in a second.
    pub(super) fn rate(&self) -> f64 {
        self.armed + self.cancelled
    }

    /// The same, in a second of processor time, of which a busy machine gives less.
    pub(super) fn rate_of_cpu(&self) -> f64 {
        self.rate() * self.seconds / self.cpu_seconds.max(0.01)
    }
}

/// So much garbage a shard may have, while so many of its timers wait: 64, or a quarter of those, and what is being
/// swept, which is 256 at a time and a hundredth more.
pub(super) fn garbage_bound(pending: usize) -> usize {
    let part = (pending / 4).max(64);
    part + part / 100 + 256
}

/// How much of its bound the garbage takes, in the shard where it is the most.
pub(super) fn garbage_share(metrics: &RuntimeMetrics) -> f64 {
    let shares = metrics
        .workers()
        .iter()
        .map(|worker| worker.garbage as f64 / garbage_bound(worker.pending) as f64);
    shares.fold(0.0, f64::max)
}

/// The middle one; of two, the upper.
pub(super) fn median<T: Copy + PartialOrd>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).expect("none is NaN"));
    values.get(values.len() / 2).copied()
}

/// How long windows are: 60 in all, but for at least 5 s; in a run of less than a minute, 12.
pub(super) fn window(duration: Duration) -> Duration {
    if duration < Duration::from_secs(60) {
        (duration / 12).max(Duration::from_millis(100))
    } else {
        (duration / 60).max(Duration::from_secs(5))
    }
}

/// Gauges, as they were at each glance of a window.
#[derive(Default)]
struct Glances {
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

/// What only grows, as it was when the window began.
struct Before {
    at: Instant,
    cpu: f64,
    counts: [u64; 4],
    wake: LatenessHistogram,
}

const COUNTS: [Count; 4] = [Count::Armed, Count::Fired, Count::Cancelled, Count::Moved];

/// Who looks.
pub(super) struct Watch<'a> {
    books: Books,
    runtime: &'a Runtime,
    start: Instant,
}

impl<'a> Watch<'a> {
    pub(super) fn new(books: Books, runtime: &'a Runtime) -> Self {
        let start = Instant::now();
        Self {
            books,
            runtime,
            start,
        }
    }

    /// Looks for so long, or until somebody ends it; calls `at_glance` with how long it has been.
    pub(super) fn run(
        &self,
        duration: Duration,
        mut at_glance: impl FnMut(Duration, &[Window]),
    ) -> Vec<Window> {
        let window = window(duration);
        let mut windows = Vec::new();
        let mut alive = (0, Instant::now());
        // Memory grows until each slot has had a timer: that is no trend.
        let slots = self.books.slots.len() as u64;
        while self.count(Count::Made) < slots
            && self.start.elapsed() < duration
            && !self.books.is_stopping()
        {
            at_glance(self.start.elapsed(), &windows);
            thread::sleep(GLANCE.min(window / 4));
        }
        while self.start.elapsed() < duration && !self.books.is_stopping() {
            let before = seen(self.books, self.before());
            let began = Instant::now();
            let mut glances = Glances::default();
            while began.elapsed() < window && !self.books.is_stopping() {
                seen(self.books, self.glance(&mut glances));
                at_glance(self.start.elapsed(), &windows);
                thread::sleep(GLANCE.min(window / 4));
            }
            // One that was cut short says little.
            if let Some(before) = before
                && began.elapsed() >= window
            {
                windows.extend(seen(self.books, self.window(&before, &glances)));
            }
            let ended = self.count(Count::Fired) + self.count(Count::Cancelled);
            if ended > alive.0 {
                alive = (ended, Instant::now());
            } else if alive.1.elapsed() > STALLED {
                let what = "timers have ended no more";
                self.books.faults.add(what, format_args!("{ended} had"));
                self.books.stop();
            }
        }
        windows
    }

    fn count(&self, what: Count) -> u64 {
        self.books.tally.get(what)
    }

    fn before(&self) -> Result<Before, String> {
        self.books.tally.take_lateness();
        Ok(Before {
            cpu: proc::cpu_seconds()?,
            at: Instant::now(),
            counts: COUNTS.map(|what| self.count(what)),
            wake: self.runtime.metrics().wake_lateness(),
        })
    }

    fn glance(&self, glances: &mut Glances) -> Result<(), String> {
        glances.fds.push(proc::descriptors()?);
        glances.threads.push(proc::threads()?);
        let metrics = self.runtime.metrics();
        let workers = metrics.workers();
        glances
            .pending
            .push(workers.iter().map(|it| it.pending).sum());
        glances
            .garbage
            .push(workers.iter().map(|it| it.garbage).sum());
        glances.garbage_share.push(garbage_share(&metrics));
        Ok(())
    }

    fn window(&self, before: &Before, glances: &Glances) -> Result<Window, String> {
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
            fds: bounds(&glances.fds),
            threads: bounds(&glances.threads),
            pending: median(glances.pending.iter().copied()).unwrap_or(0),
            garbage: [
                median(glances.garbage.iter().copied()).unwrap_or(0),
                bounds(&glances.garbage)[1],
            ],
            garbage_share: rounded(median(glances.garbage_share.iter().copied()).unwrap_or(0.0)),
            armed,
            fired,
            cancelled,
            moved,
            cpu_seconds: rounded(proc::cpu_seconds()? - before.cpu),
            late_us: Lateness::of(&self.books.tally.take_lateness()),
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
    fn the_bound_of_garbage_is_that_of_the_metrics() {
        assert_eq!(garbage_bound(0), 64 + 256);
        assert_eq!(garbage_bound(40_000), 10_000 + 100 + 256);
    }
}
