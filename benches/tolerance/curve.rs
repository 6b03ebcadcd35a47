//! Processor time against tolerance: tasks that sleep, and callbacks that arm the next one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{Figures, System, Used, table};

const TOLERANCES: [Duration; 5] = [
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_millis(2),
    Duration::from_millis(5),
];
/// The mean of the waits.
const MEAN: Duration = Duration::from_millis(100);
const SETTLES: Duration = Duration::from_millis(400);
const MEASURED: Duration = Duration::from_secs(2);

/// One sequence of waits, with the lateness of each that ended while it was measured.
struct Waits {
    random: u64,
    flags: Arc<Flags>,
    late: Vec<u64>,
    /// Takes `late` at the end.
    results: Sender<Vec<u64>>,
}

#[derive(Default)]
struct Flags {
    measuring: AtomicBool,
    stopping: AtomicBool,
}

impl Waits {
    /// Returns the next deadline, from the generator MINSTD.
    fn next(&mut self) -> Instant {
        self.random = self.random * 48_271 % 0x7fff_ffff;
        let part = self.random as f64 / f64::from(0x7fff_ffff);
        Instant::now() + MEAN.mul_f64(0.5 + part)
    }

    /// Records that the wait until `deadline` is over. Returns whether another one follows.
    fn is_over(&mut self, deadline: Instant) -> bool {
        let late = Instant::now().checked_duration_since(deadline);
        let late = late.expect("no timer is early");
        if self.flags.measuring.load(Relaxed) {
            self.late.push(late.as_nanos() as u64);
        }
        !self.flags.stopping.load(Relaxed)
    }

    fn end(self) {
        // The main thread may have ended.
        let _ = self.results.send(self.late);
    }
}

async fn sleep_on_ours(mut waits: Waits) {
    loop {
        let deadline = waits.next();
        tourbillon::time::sleep_until(deadline.into()).await;
        if !waits.is_over(deadline) {
            return waits.end();
        }
    }
}

async fn sleep_on_tokio(mut waits: Waits) {
    loop {
        let deadline = waits.next();
        tokio::time::sleep_until(deadline.into()).await;
        if !waits.is_over(deadline) {
            return waits.end();
        }
    }
}

fn call_on_ours(mut waits: Box<Waits>) {
    let deadline = waits.next();
    // The handle is dropped, and the timer stays armed.
    let _detached = tourbillon::at(deadline, move || match waits.is_over(deadline) {
        true => call_on_ours(waits),
        false => waits.end(),
    });
}

/// Runs `count` sequences of waits, each begun by `begin`, and measures them.
fn measure(count: usize, begin: impl Fn(Waits)) -> Figures {
    let flags = Arc::new(Flags::default());
    let (results, received) = channel();
    for index in 0..count {
        begin(Waits {
            random: index as u64 + 1,
            flags: flags.clone(),
            // Room for all waits: each lasts at least half of the mean.
            late: Vec::with_capacity(2 * (MEASURED.as_millis() / MEAN.as_millis()) as usize + 2),
            results: results.clone(),
        });
    }
    drop(results);
    thread::sleep(SETTLES);
    let (before, begun) = (Used::now(), Instant::now());
    flags.measuring.store(true, Relaxed);
    thread::sleep(MEASURED);
    flags.measuring.store(false, Relaxed);
    let (after, seconds) = (Used::now(), begun.elapsed().as_secs_f64());
    flags.stopping.store(true, Relaxed);
    let late: Vec<u64> = received.into_iter().flatten().collect();
    Figures::new(before, after, seconds, late)
}

fn sleeps(system: System, count: usize) -> Figures {
    if system == System::Tokio {
        let runtime = System::build_tokio();
        return measure(count, |waits| drop(runtime.spawn(sleep_on_tokio(waits))));
    }
    let runtime = system.build();
    measure(count, |waits| drop(runtime.spawn(sleep_on_ours(waits))))
}

fn callbacks(system: System, count: usize) -> Figures {
    if system == System::Tokio {
        // tokio has no callbacks. Its row has the figures of its sleeps.
        return sleeps(system, count);
    }
    let runtime = system.build();
    let entered = runtime.enter();
    let figures = measure(count, |waits| {
        // Arm the first timer on a worker, like the later ones.
        drop(runtime.spawn(async { call_on_ours(Box::new(waits)) }));
    });
    drop(entered);
    figures
}

pub(crate) fn main(rounds: usize) {
    let mut systems = vec![
        System::Tokio,
        System::Default,
        System::Tourbillon(Duration::ZERO),
    ];
    systems.extend(TOLERANCES.map(System::Tourbillon));
    systems.push(System::Sleeps);
    for rate in [200_000, 20_000, 2_000] {
        let count = rate * MEAN.as_millis() as usize / 1_000;
        table(&format!("sleeps, {rate}/s"), &systems, rounds, |system| {
            sleeps(system, count)
        });
    }
    for rate in [200_000, 20_000] {
        let count = rate * MEAN.as_millis() as usize / 1_000;
        table(
            &format!("callbacks, {rate}/s"),
            &systems,
            rounds,
            |system| callbacks(system, count),
        );
    }
}
