//! Measures the cost to insert, refresh, cancel and fire a timer in each of our stores and in the
//! stores of other projects.
//!
//!     cargo run --release --features stores --bin stores -- \
//!         [--most N] [--ours] [--shape NAME] [--longest]
//!
//! Prints a table in Markdown for each [`Shape`]. A cell has the processor time per operation, in
//! ns, as *insert · refresh · cancel · fire*. Each figure is the median of 3 to 51 rounds. In
//! each round, all stores run the same operations in turn. With `--longest`, a cell has the
//! longest single operation of each kind, in µs.
//!
//! Our stores, `BTreeMap` and `orx-priority-queue` know the next deadline exactly after each
//! operation. The lazy `BinaryHeap` knows it only after it has removed the stale entries before
//! it. `DelayQueue` and `hierarchical_hash_wheel_timer` round deadlines to 1 ms, so they do not
//! know it exactly.

mod queues;

use std::{convert::Infallible, process::ExitCode};

use clap::Parser;
use fastrand::Rng;
use queues::{Delays, Lazy, Orx, Ours, Queue, Ticks, Tree};
use rustix::time::{ClockId, clock_gettime};
use tourbillon_shards::store::{Heap, Wheel};
use tourbillon_support::{
    arguments::arguments,
    say::{self, say},
};

/// One second, in ns, the unit of the keys.
const SECOND: u64 = 1_000_000_000;

#[derive(Parser)]
struct Args {
    /// Largest number of timers. The rows have 1,000, 10,000 and so on, up to this number.
    #[arg(long, default_value_t = 1_000_000)]
    most: usize,
    /// Measure only our own stores.
    #[arg(long)]
    ours: bool,
    /// Measure only this shape.
    #[arg(long, value_parser = Shape::ALL.map(|(_, name)| name))]
    shape: Option<String>,
    /// Print the longest single operations, in µs, instead of the medians. This leaves out the
    /// stores whose timers this program cannot fire one by one.
    #[arg(long)]
    longest: bool,
}

/// A reading of this thread's processor time, in ns.
///
/// The time of other threads and processes is not included. They still slow this thread down,
/// because they share its caches.
#[derive(Clone, Copy)]
struct Moment(f64);

impl Moment {
    fn now() -> Self {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        Self(now.tv_sec as f64 * 1e9 + now.tv_nsec as f64)
    }

    fn elapsed_ns(self) -> f64 {
        Self::now().0 - self.0
    }
}

/// The distribution of deadlines and cancellations.
///
/// A round inserts `n` timers at 0 s, makes `n` refreshes at 1 s, and cancels some timers. Each
/// refresh picks a timer at random, so it may move one timer several times and another one never.
/// These times are on the scale of the keys. No real time passes between the phases.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// Inserts and refreshes draw deadlines uniformly from 1 to 60 s ahead. Half of the timers
    /// are cancelled, in random order.
    Uniform,
    /// Inserts and refreshes draw durations of 1, 5, 30 or 60 s. The inserts are spread evenly
    /// over the first second, and the refreshes over the next. Half of the timers are cancelled,
    /// in random order.
    Equal,
    /// Deadlines are like those of `Uniform`. Nineteen of twenty timers are cancelled, in the
    /// order in which they were inserted.
    Cancelled,
    /// Inserts and refreshes draw deadlines from ten instants, 1 to 10 s ahead and a second
    /// apart. Half of the timers are cancelled, in random order.
    Bursts,
}

impl Shape {
    /// All shapes, with their names in the table and on the command line.
    const ALL: [(Shape, &str); 4] = [
        (Shape::Uniform, "uniform"),
        (Shape::Equal, "equal durations"),
        (Shape::Cancelled, "mostly cancelled"),
        (Shape::Bursts, "bursts"),
    ];

    /// Returns the deadline of the `i`th of `n` operations. The first takes place at `now`.
    fn key(self, now: u64, i: usize, n: usize, random: &mut Rng) -> u64 {
        match self {
            Shape::Uniform | Shape::Cancelled => now + random.u64(SECOND..60 * SECOND),
            Shape::Equal => {
                let duration = random.choice([1, 5, 30, 60]).expect("one of four");
                now + i as u64 * SECOND / n as u64 + duration * SECOND
            }
            Shape::Bursts => now + random.u64(1..=10) * SECOND,
        }
    }
}

/// The operations of one round.
///
/// They are drawn beforehand, so that no measurement includes the random numbers, and all stores
/// get the same operations.
struct Program {
    /// Deadlines. The index is the timer's id.
    inserts: Vec<u64>,
    /// Ids and new deadlines.
    refreshes: Vec<(u32, u64)>,
    /// Ids, each at most once.
    cancels: Vec<u32>,
}

impl Program {
    /// Draws the operations for `n` timers.
    fn new(shape: Shape, n: usize, random: &mut Rng) -> Self {
        let ids = 0..n as u32;
        let key = |now, i, random: &mut _| shape.key(now, i, n, random);
        let inserts = (0..n).map(|i| key(0, i, random)).collect();
        let refreshes = (0..n)
            .map(|i| (random.u32(ids.clone()), key(SECOND, i, random)))
            .collect();
        let mut cancels: Vec<u32> = ids.collect();
        if shape == Shape::Cancelled {
            cancels.truncate(n / 20 * 19);
        } else {
            random.shuffle(&mut cancels);
            cancels.truncate(n / 2);
        }
        Self {
            inserts,
            refreshes,
            cancels,
        }
    }

    /// Runs the operations on an empty `Q`, and returns the mean time of each kind in ns: insert,
    /// refresh, cancel, fire.
    ///
    /// # Panics
    ///
    /// Panics if the number of timers that fire is not the number that were not cancelled.
    fn run<Q: Queue>(&self) -> [f64; 4] {
        let n = self.inserts.len();
        let mut queue = Q::new(n);
        let each = |begin: Moment, n: usize| begin.elapsed_ns() / n as f64;
        let begin = Moment::now();
        for (id, &key) in self.inserts.iter().enumerate() {
            queue.insert(id as u32, key);
        }
        let insert = each(begin, n);
        let begin = Moment::now();
        for &(id, key) in &self.refreshes {
            queue.refresh(id, key);
        }
        let refresh = each(begin, n);
        let begin = Moment::now();
        for &id in &self.cancels {
            queue.cancel(id);
        }
        let cancel = each(begin, self.cancels.len());
        let left = n - self.cancels.len();
        let begin = Moment::now();
        let fired = queue.fire(left);
        let fire = each(begin, left);
        assert_eq!(fired, left, "each that is left fires, and no other");
        [insert, refresh, cancel, fire]
    }

    /// Runs the operations on an empty `Q`, and returns the longest one of each kind in ns:
    /// insert, refresh, cancel, fire.
    ///
    /// # Panics
    ///
    /// Panics if the timers do not fire in the order of their deadlines.
    fn longest<Q: Queue>(&self) -> [f64; 4] {
        let mut queue = Q::new(self.inserts.len());
        let mut longest = [0.0_f64; 4];
        let mut timed = |which: usize, f: &mut dyn FnMut()| {
            let begin = Moment::now();
            f();
            longest[which] = longest[which].max(begin.elapsed_ns());
        };
        for (id, &key) in self.inserts.iter().enumerate() {
            timed(0, &mut || queue.insert(id as u32, key));
        }
        for &(id, key) in &self.refreshes {
            timed(1, &mut || queue.refresh(id, key));
        }
        for &id in &self.cancels {
            timed(2, &mut || queue.cancel(id));
        }
        let (mut last, mut popped) = (0, Some((0, 0)));
        while let Some((_, key)) = popped {
            assert!(key >= last, "{key} after {last}");
            last = key;
            timed(3, &mut || popped = queue.pop());
        }
        longest
    }
}

/// A function that runs a program on one store, and returns the times in ns: insert, refresh,
/// cancel, fire.
type Run = fn(&Program) -> [f64; 4];

fn main() -> ExitCode {
    let args: Args = arguments();
    // `DelayQueue` creates tokio's sleeps in most of its operations. They need a current runtime.
    let _inside = queues::runtime().enter();
    // Each store has a name, a function for the medians, and one for `--longest`.
    let ours: [(&str, Run, Run); 2] = [
        (
            "`Heap`",
            Program::run::<Ours<Heap>>,
            Program::longest::<Ours<Heap>>,
        ),
        (
            "`Wheel`",
            Program::run::<Ours<Wheel>>,
            Program::longest::<Ours<Wheel>>,
        ),
    ];
    let exact: [(&str, Run, Run); 3] = [
        (
            "`BinaryHeap`, lazy",
            Program::run::<Lazy>,
            Program::longest::<Lazy>,
        ),
        ("`BTreeMap`", Program::run::<Tree>, Program::longest::<Tree>),
        (
            "`orx-priority-queue`",
            Program::run::<Orx>,
            Program::longest::<Orx>,
        ),
    ];
    // These fire all timers in one call, so `longest` cannot time them. `--longest` leaves them
    // out, and the last function of each is never called.
    let coarse: [(&str, Run, Run); 2] = [
        (
            "`DelayQueue` (1 ms)",
            Program::run::<Delays>,
            Program::run::<Delays>,
        ),
        (
            "`hierarchical_hash_wheel_timer` (1 ms)",
            Program::run::<Ticks>,
            Program::run::<Ticks>,
        ),
    ];
    let mut systems: Vec<(&str, Run)> = Vec::new();
    let pick = |&(name, run, longest): &(&'static str, Run, Run)| {
        (name, if args.longest { longest } else { run })
    };
    systems.extend(ours.iter().map(pick));
    if !args.ours {
        systems.extend(exact.iter().map(pick));
        if !args.longest {
            systems.extend(coarse.iter().map(pick));
        }
    }
    for (shape, name) in Shape::ALL {
        if args.shape.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let head: String = systems
            .iter()
            .map(|(system, _)| format!(" {system} |"))
            .collect();
        let rule = "---|".repeat(systems.len());
        say(format_args!(
            "\n**{name}**\n\n| timers |{head}\n|---|{rule}"
        ));
        let mut n = 1_000;
        while n <= args.most {
            measure(shape, n, &systems, args.longest);
            n *= 10;
        }
    }
    say::end("stores", Ok::<_, Infallible>(()))
}

/// Measures `n` timers of a shape in all `systems`, and prints one row of the table.
fn measure(shape: Shape, n: usize, systems: &[(&str, Run)], longest: bool) {
    let mut random = Rng::with_seed(n as u64);
    // Few timers need many rounds, because a single round is short.
    let rounds = (2_000_000 / n).clamp(3, 51);
    let mut results = vec![[const { Vec::new() }; 4]; systems.len()];
    for _ in 0..rounds {
        let program = Program::new(shape, n, &mut random);
        for ((_, run), results) in systems.iter().zip(&mut results) {
            let figures = run(&program);
            for (result, figure) in results.iter_mut().zip(figures) {
                result.push(figure);
            }
        }
    }
    let mut row = format!("| {n} |");
    for result in &mut results {
        let figures = result.each_mut().map(|figures| {
            figures.sort_by(f64::total_cmp);
            // An interruption by the machine can prolong the longest operation of a round, but
            // hardly of every round. So take the shortest of the rounds' longest operations.
            let at = if longest { 0 } else { figures.len() / 2 };
            let figure = figures[at];
            if longest {
                format!("{:.0} µs", figure / 1_000.0)
            } else {
                format!("{figure:.0}")
            }
        });
        row.push_str(&format!(" {} |", figures.join(" · ")));
    }
    say(row);
}
