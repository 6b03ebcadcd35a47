//! How often workers wake up, depending on the timers' tolerance.
//!
//! 20,000 recurring timers of one second, each with a random phase, run on one worker and on two.
//! The tolerance grows from row to row. It measures for some seconds: how often workers went to
//! sleep, which equals their wake-ups; the CPU time of the process; and the callbacks' lateness.
//!
//! Run `cargo bench --bench tolerance`.

#[path = "../src/bin/tourbillon/disturbance.rs"]
#[allow(dead_code, reason = "shared with the program, which uses all of it")]
mod disturbance;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use disturbance::Meter;
use tourbillon::{CancelOnDrop, Runtime};

const TIMERS: usize = 20_000;
const PERIOD: Duration = Duration::from_secs(1);
const MEASURED: Duration = Duration::from_secs(5);
const TOLERANCES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
];

/// Phases within a period from the generator MINSTD, equal for all rows.
struct Phases(u64);

impl Iterator for Phases {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.0 = self.0 * 48_271 % 0x7fff_ffff;
        Some(PERIOD.mul_f64(self.0 as f64 / f64::from(0x7fff_ffff)))
    }
}

/// The lateness of each run, in ns.
struct Lateness {
    measuring: AtomicBool,
    runs: AtomicUsize,
    nanos: Vec<AtomicUsize>,
}

impl Lateness {
    fn new() -> Arc<Self> {
        let room = TIMERS * (MEASURED.as_secs() as usize + 2);
        Arc::new(Self {
            measuring: AtomicBool::new(false),
            runs: AtomicUsize::new(0),
            nanos: (0..room).map(|_| AtomicUsize::new(0)).collect(),
        })
    }

    /// Records a run of a timer that is due at `first` and each period after it.
    fn note(&self, first: Instant) {
        if !self.measuring.load(Relaxed) {
            return;
        }
        let since = Instant::now()
            .checked_duration_since(first)
            .expect("no timer is early");
        let run = self.runs.fetch_add(1, Relaxed);
        if let Some(nanos) = self.nanos.get(run) {
            nanos.store((since.as_nanos() % PERIOD.as_nanos()) as usize, Relaxed);
        }
    }

    fn sorted_ms(&self) -> Vec<f64> {
        let runs = self.runs.load(Relaxed).min(self.nanos.len());
        let nanos = self.nanos[..runs].iter().map(|nanos| nanos.load(Relaxed));
        let mut nanos: Vec<_> = nanos.collect();
        nanos.sort_unstable();
        nanos.into_iter().map(|nanos| nanos as f64 / 1e6).collect()
    }
}

/// Measures and prints one row.
fn row(workers: usize, tolerance: Duration) {
    let runtime = Runtime::builder()
        .worker_threads(workers)
        .build()
        .expect("a runtime of a few workers");
    let lateness = Lateness::new();
    // All timers start after all are armed.
    let start = Instant::now() + PERIOD;
    let timers: Vec<CancelOnDrop> = Phases(1)
        .take(TIMERS)
        .enumerate()
        .map(|(index, phase)| {
            let (first, lateness) = (start + phase, lateness.clone());
            let timer = runtime
                .handle()
                .timer_every(PERIOD)
                .on_worker(index % workers)
                .tolerance(tolerance)
                .start(move || lateness.note(first));
            timer.reset_at(first);
            timer.cancel_on_drop()
        })
        .collect();
    assert!(Instant::now() < start, "too slow to arm them in a period");
    // Wait one period to settle, and half a period, to avoid a round moment.
    thread::sleep((start + PERIOD * 3 / 2).saturating_duration_since(Instant::now()));

    // Measure only in the steady state.
    let (parks, begun) = (runtime.metrics().total().parks, Instant::now());
    let meter = Meter::start();
    lateness.measuring.store(true, Relaxed);
    thread::sleep(MEASURED);
    lateness.measuring.store(false, Relaxed);
    let seconds = begun.elapsed().as_secs_f64();
    let disturbance = meter.read();
    let parks = runtime.metrics().total().parks - parks;
    drop(timers);

    let sorted = lateness.sorted_ms();
    let percentile = |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
    println!(
        "{workers:>7}  {:>9}  {:>7.0}  {:>10.0}  {:>8.1}  {:>8.2}  {:>8.2}  {disturbance}",
        format!("{} ms", tolerance.as_millis()),
        sorted.len() as f64 / seconds,
        parks as f64 / seconds,
        disturbance.cpu * 1e3 / seconds,
        percentile(50),
        percentile(99),
    );
}

fn main() {
    println!("workers  tolerance   runs/s  wake-ups/s  CPU ms/s   late p50  p99 (ms)  the machine");
    for workers in [1, 2] {
        for tolerance in TOLERANCES {
            row(workers, tolerance);
        }
    }
}
