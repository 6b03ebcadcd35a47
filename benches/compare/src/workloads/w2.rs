//! W2, moving a pending timer: of n timers a random one, n = 10,000 and 1,000,000.
//!
//! *random*: to an instant that is given, 1 to 59 s from the start. *later*: to one that is later than
//! all before, a minute from now, as a keep-alive does. *clock read*: the same, so far from now, with the clock read for
//! each: ours by `refresh`, the others by a `reset` to `Instant::now() + delay`. *outside*: later, by a
//! thread outside of the runtime, to which the timers were given.
//!
//! Ours by `Timer::reset_at` and, as *sleep*, by `Sleep::reset`; tokio by `Sleep::reset`, `DelayQueue` by
//! `reset_at`, smol by `Timer::set_at`. One worker; the task gives way after every thousand.

use std::{
    thread,
    time::{Duration, Instant},
};

use super::{Figure, Workload};
use crate::{
    system::System,
    timers::{Callbacks, Draw, Movable, Queue, Runtime, Sleeps, in_steps},
};

pub const WORKLOAD: Workload = Workload {
    name: "w2",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
    ],
    run,
};

/// The names of what is measured at one n.
struct Names {
    random: &'static str,
    later: &'static str,
    read: &'static str,
    outside: &'static str,
    outside_read: &'static str,
}

const SMALL: Names = Names {
    random: "random 10k: ns",
    later: "later 10k: ns",
    read: "later 10k, clock read: ns",
    outside: "outside, later 10k: ns",
    outside_read: "outside, later 10k, clock read: ns",
};

const LARGE: Names = Names {
    random: "random 1M: ns",
    later: "later 1M: ns",
    read: "later 1M, clock read: ns",
    outside: "outside, later 1M: ns",
    outside_read: "outside, later 1M, clock read: ns",
};

/// No timer is armed with more.
const KEEP: Duration = Duration::from_secs(60);

fn run(system: System, quick: bool) -> Vec<Figure> {
    match system {
        System::Tourbillon => {
            let mut figures = both::<Callbacks>(system, quick);
            // The same names, of the other kind.
            for figure in both::<Sleeps<tourbillon::time::Sleep>>(system, quick) {
                let name = match figure.name {
                    "random 10k: ns" => "sleep, random 10k: ns",
                    "random 1M: ns" => "sleep, random 1M: ns",
                    "later 10k: ns" => "sleep, later 10k: ns",
                    "later 1M: ns" => "sleep, later 1M: ns",
                    _ => continue,
                };
                figures.push(Figure { name, ..figure });
            }
            figures
        }
        System::Tokio | System::TokioAlt => both::<Sleeps<tokio::time::Sleep>>(system, quick),
        System::DelayQueue => both::<Queue>(system, quick),
        System::Smol => both::<Sleeps<smol::Timer>>(system, quick),
        System::Compio | System::Monoio | System::Glommio => {
            super::refuse("its sleeps cannot be moved")
        }
    }
}

fn both<T: Movable>(system: System, quick: bool) -> Vec<Figure> {
    let (small, large, count) = if quick {
        (100, 1_000, 1_000)
    } else {
        (10_000, 1_000_000, 1_000_000)
    };
    let mut figures = moves::<T>(system, SMALL, small, count);
    figures.extend(moves::<T>(system, LARGE, large, count));
    figures
}

/// Instants of which each is later than the one before, and than all that timers were moved to by then,
/// the clock plus [`KEEP`]. (A nanosecond further each time: less than a move takes, so that they stay
/// behind the clock of the phase that comes next.)
struct Later(Instant);

impl Later {
    fn new() -> Self {
        Self(Instant::now() + KEEP)
    }

    fn next(&mut self) -> Instant {
        self.0 += Duration::from_nanos(1);
        self.0
    }
}

fn moves<T: Movable>(system: System, names: Names, n: usize, count: usize) -> Vec<Figure> {
    let runtime = Runtime::new(system, 1);
    let each = move |name, elapsed: Duration| Figure {
        name,
        value: elapsed.as_nanos() as f64 / count as f64,
    };
    let (mut figures, mut timers, mut draw) = runtime.run(async move {
        let mut draw = Draw::new();
        let mut timers = T::default();
        in_steps(n, |cx, _| timers.arm(cx, draw.delay())).await;

        let start = Instant::now();
        in_steps(count, |_, _| {
            let index = draw.below(n);
            timers.reset(index, start + draw.delay());
        })
        .await;
        let random = each(names.random, start.elapsed());

        in_steps(n, |_, index| timers.prolong(index, KEEP)).await;
        let mut later = Later::new();
        let start = Instant::now();
        in_steps(count, |_, _| timers.reset(draw.below(n), later.next())).await;
        let later = each(names.later, start.elapsed());

        let start = Instant::now();
        in_steps(count, |_, _| timers.refresh(draw.below(n), KEEP)).await;
        let read = each(names.read, start.elapsed());
        (vec![random, later, read], timers, draw)
    });
    let outside = thread::spawn(move || {
        let mut later = Later::new();
        let start = Instant::now();
        for _ in 0..count {
            timers.reset(draw.below(n), later.next());
        }
        let given = each(names.outside, start.elapsed());
        let start = Instant::now();
        for _ in 0..count {
            timers.refresh(draw.below(n), KEEP);
        }
        [given, each(names.outside_read, start.elapsed())]
    });
    figures.extend(outside.join().expect("moving timers does not panic"));
    figures
}
