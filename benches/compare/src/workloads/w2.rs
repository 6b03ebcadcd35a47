//! W2, moving a pending timer: of n timers a random one, n = 10,000 and 1,000,000.
//!
//! *random*: to an instant that is given, 1 to 59 s from the start. *later*: to one that is later than
//! all before, a minute from now, as a keep-alive does. *clock read*: the same, so far from now, with the clock read for
//! each: ours by `refresh`, the others by a `reset` to `Instant::now() + delay`. *outside*: later, by a
//! thread outside of the runtime, to which the timers were given.
//!
//! Instants are of the type that a system takes, as its users have them. Ours by `Timer::reset_at` and, as *sleep*, by `Sleep::reset`; tokio by `Sleep::reset`, `DelayQueue` by
//! `reset_at`, smol by `Timer::set_at`. One worker; the task gives way after every thousand. A process for each n, and
//! for each kind of ours.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::{
    measure::parts,
    system::System,
    timers::{Callbacks, Draw, Moment, Movable, Queue, Runtime, Sleeps, in_steps},
    workload::{Figure, Workload, refuse},
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

/// The names of what is measured at one n, in the order in which it is; `None` where that is not of interest.
struct Names([Option<&'static str>; 5]);

const SMALL: Names = Names([
    Some("random 10k: ns"),
    Some("later 10k: ns"),
    Some("later 10k, clock read: ns"),
    Some("outside, later 10k: ns"),
    Some("outside, later 10k, clock read: ns"),
]);

const LARGE: Names = Names([
    Some("random 1M: ns"),
    Some("later 1M: ns"),
    Some("later 1M, clock read: ns"),
    Some("outside, later 1M: ns"),
    Some("outside, later 1M, clock read: ns"),
]);

const SLEEP_SMALL: Names = Names([
    Some("sleep, random 10k: ns"),
    Some("sleep, later 10k: ns"),
    None,
    None,
    None,
]);

const SLEEP_LARGE: Names = Names([
    Some("sleep, random 1M: ns"),
    Some("sleep, later 1M: ns"),
    None,
    None,
    None,
]);

/// How many moves each figure is of. (smol's take more than 10 µs at a million.)
const MOVES: usize = 200_000;

/// No timer is armed with more.
const KEEP: Duration = Duration::from_secs(60);

/// The part that one process measures: the memory that one n leaves behind would distort the next.
struct Part {
    name: &'static str,
    sleeps: bool,
    large: bool,
}

const PARTS: [Part; 4] = [
    Part {
        name: "10k",
        sleeps: false,
        large: false,
    },
    Part {
        name: "1M",
        sleeps: false,
        large: true,
    },
    Part {
        name: "sleep, 10k",
        sleeps: true,
        large: false,
    },
    Part {
        name: "sleep, 1M",
        sleeps: true,
        large: true,
    },
];

fn run(system: System, quick: bool) -> Vec<Figure> {
    // Others have one kind of timer.
    let is_for = |part: &&Part| system == System::Tourbillon || !part.sleeps;
    let parts: Vec<_> = PARTS.iter().filter(is_for).map(|part| part.name).collect();
    let names = [SMALL, LARGE, SLEEP_SMALL, SLEEP_LARGE];
    let names: Vec<_> = names.iter().flat_map(|names| names.0).flatten().collect();
    parts::each(&parts, &names, |name| {
        let part = PARTS.iter().find(|part| part.name == name);
        let &Part { sleeps, large, .. } = part.expect("a part of w2");
        let of = match system {
            System::Tourbillon if sleeps => moves::<Sleeps<tourbillon::time::Sleep>>,
            System::Tourbillon => moves::<Callbacks>,
            System::Tokio | System::TokioAlt => moves::<Sleeps<tokio::time::Sleep>>,
            System::DelayQueue => moves::<Queue>,
            System::Smol => moves::<Sleeps<smol::Timer>>,
            System::Compio | System::Monoio | System::Glommio => {
                refuse("its sleeps cannot be moved")
            }
        };
        let names = match (sleeps, large) {
            (false, false) => SMALL,
            (false, true) => LARGE,
            (true, false) => SLEEP_SMALL,
            (true, true) => SLEEP_LARGE,
        };
        let (n, count) = match (large, quick) {
            (false, true) => (100, 1_000),
            (true, true) => (1_000, 1_000),
            (false, false) => (10_000, MOVES),
            (true, false) => (1_000_000, MOVES),
        };
        of(system, names, n, count)
    })
}

/// Instants of which each is later than the one before, and than all that timers were moved to by then,
/// the clock plus [`KEEP`]. (A nanosecond further each time: less than a move takes, so that they stay
/// behind the clock of the phase that comes next.)
struct Later<I>(I);

impl<I: Moment> Later<I> {
    fn new() -> Self {
        Self(I::now() + KEEP)
    }

    fn next(&mut self) -> I {
        self.0 += Duration::from_nanos(1);
        self.0
    }
}

fn moves<T: Movable>(system: System, names: Names, n: usize, count: usize) -> Vec<Figure> {
    let [random, later, read, outside, outside_read] = names.0;
    let runtime = Runtime::new(system, 1);
    let each = move |name: Option<_>, start: Instant| {
        let value = start.elapsed().as_nanos() as f64 / count as f64;
        name.map(|name| Figure { name, value })
    };
    let (figures, mut timers, mut draw) = runtime.run(async move {
        let mut draw = Draw::new();
        let mut timers = T::default();
        in_steps(n, |cx, _| timers.arm(cx, draw.delay())).await;

        let (start, first) = (Instant::now(), T::Instant::now());
        in_steps(count, |_, _| {
            let index = draw.below(n);
            timers.reset(index, first + draw.delay());
        })
        .await;
        let random = each(random, start);

        in_steps(n, |_, index| timers.prolong(index, KEEP)).await;
        let mut lately = Later::new();
        let start = Instant::now();
        in_steps(count, |_, _| timers.reset(draw.below(n), lately.next())).await;
        let later = each(later, start);

        let start = Instant::now();
        in_steps(count, |_, _| timers.refresh(draw.below(n), KEEP)).await;
        ([random, later, each(read, start)], timers, draw)
    });
    let by_another = thread::spawn(move || {
        let mut later = Later::new();
        let start = Instant::now();
        for _ in 0..count {
            timers.reset(draw.below(n), later.next());
        }
        let given = each(outside, start);
        let start = Instant::now();
        for _ in 0..count {
            timers.refresh(draw.below(n), KEEP);
        }
        [given, each(outside_read, start)]
    });
    let by_another = by_another.join().expect("moving timers does not panic");
    figures.into_iter().chain(by_another).flatten().collect()
}
