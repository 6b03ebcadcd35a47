//! W2: moving pending timers.
//!
//! A task moves randomly chosen timers among n pending ones, for n = 10,000 and n = 1,000,000. The
//! runtime has one worker, and the task yields after every thousand moves.
//!
//! - *random*: moves a timer to a given instant, 1 to 59 s after the start of this phase.
//! - *later*: moves a timer to a given instant that is later than all instants before it, about a
//!   minute from now. A keep-alive moves its timer like this.
//! - *clock read*: moves a timer to a minute from now, and reads the clock for each move.
//!   Tourbillon's callbacks use `refresh`. For all other timers, `Instant::now() + delay` is the
//!   new deadline.
//! - *outside*: a thread outside the runtime makes the *later* moves, with a given instant or with
//!   *clock read*. The task hands the timers over to this thread.
//! - *sleep*: the timers are Tourbillon's sleeps. Tourbillon's other figures are those of
//!   callbacks.
//!
//! To move a timer to a given instant, Tourbillon's callbacks use `Timer::reset_at` and its sleeps
//! use `Sleep::reset`. tokio uses `Sleep::reset`, `DelayQueue` uses `reset_at`, and smol uses
//! `Timer::set_at`. Instants have the type that the system takes, as in the code of its users.
//!
//! Each n has a process of its own, and so has each of Tourbillon's two kinds of timers.

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
    systems: &System::TIMERS,
    run,
};

/// Names of the figures for one n, in the order of the phases of [`moves`].
///
/// A phase without a name runs too, but its figure is not reported.
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
    Some("sleep, later 10k, clock read: ns"),
    None,
    None,
]);

const SLEEP_LARGE: Names = Names([
    Some("sleep, random 1M: ns"),
    Some("sleep, later 1M: ns"),
    Some("sleep, later 1M, clock read: ns"),
    None,
    None,
]);

/// Number of moves per figure. At a million timers, a move takes smol more than 10 µs, so this
/// number also limits the duration of the workload.
const MOVES: usize = 200_000;

/// Delay of the *later* and *clock read* moves. No timer gets a longer delay.
const KEEP: Duration = Duration::from_secs(60);

/// A part of the workload, which has a process of its own.
///
/// The memory that the timers of one n leave behind would distort the figures of the next n.
struct Part {
    name: &'static str,
    /// Whether the timers are Tourbillon's sleeps.
    sleeps: bool,
    /// Whether n is 1,000,000.
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
    // The peers have one kind of timer each, so the parts with sleeps are only for Tourbillon.
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
            _ => refuse("its sleeps cannot be moved"),
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

/// Ascending deadlines, each of which is later than all deadlines that the timers had before.
///
/// The first deadline is [`KEEP`] and 1 ns from now, and each further one is 1 ns later. A move
/// takes longer than 1 ns. So all these deadlines are earlier than the clock plus [`KEEP`] when
/// the next phase begins.
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

/// Arms `n` timers and makes `count` moves in each phase. Returns the figures that have a name, in
/// ns per move.
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

        // Set the delay that `refresh` uses. `Later` reads the clock after this step, so its
        // deadlines are later than those of this step.
        in_steps(n, |_, index| timers.prolong(index, KEEP)).await;
        let mut lately = Later::new();
        let start = Instant::now();
        in_steps(count, |_, _| timers.reset(draw.below(n), lately.next())).await;
        let later = each(later, start);

        let start = Instant::now();
        in_steps(count, |_, _| timers.refresh(draw.below(n), KEEP)).await;
        ([random, later, each(read, start)], timers, draw)
    });
    // The runtime still exists while this thread moves the timers.
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
