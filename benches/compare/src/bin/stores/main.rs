//! Measures the cost to insert, refresh, cancel and fire a timer in each of our stores and in the
//! stores of other projects. Prints a table in Markdown, in ns of processor time per operation: the
//! median of some rounds in which all take turns.
//!
//!     cargo run --release --features stores --bin stores -- [--most N] [--ours] [--shape NAME]
//!
//! Ours know the next deadline exactly after each operation, as the trees do. The binary heap does once it
//! has skipped what is dead, and the two wheels of milliseconds do not.

mod queues;

use clap::Parser;
use fastrand::Rng;
use queues::{Delays, Lazy, Orx, Ours, Queue, Ticks, Tree};
use rustix::time::{ClockId, clock_gettime};
use tourbillon_shards::store::{Heap, Wheel};

const SECOND: u64 = 1_000_000_000;

#[derive(Parser)]
struct Args {
    /// The most timers: 1,000, and ten times as many until here.
    #[arg(long, default_value_t = 1_000_000)]
    most: usize,
    /// Only our stores.
    #[arg(long)]
    ours: bool,
    /// Only this shape.
    #[arg(long)]
    shape: Option<String>,
    /// The longest single operations in place of the medians, of those that fire one by one.
    #[arg(long)]
    longest: bool,
}

/// A moment of this thread's processor time: what others do on the machine is not in it, but in the caches.
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

/// How deadlines and cancellations are spread.
#[derive(Clone, Copy, PartialEq)]
enum Shape {
    /// 1 to 60 s ahead. Refreshed to the like, a half cancelled, both in random order.
    Uniform,
    /// As they are armed and refreshed, in a second each, for 1, 5, 30 or 60 s; a half cancelled, in
    /// random order.
    Equal,
    /// As `Uniform`, but of twenty nineteen are cancelled, in the order in which they were armed.
    Cancelled,
    /// On ten instants, a second apart. A half is cancelled, in random order.
    Bursts,
}

impl Shape {
    const ALL: [(Shape, &str); 4] = [
        (Shape::Uniform, "uniform"),
        (Shape::Equal, "equal durations"),
        (Shape::Cancelled, "mostly cancelled"),
        (Shape::Bursts, "bursts"),
    ];

    /// The deadline of the `i`th of `n` operations that begin at `now`.
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

/// The operations of one round, drawn beforehand.
struct Program {
    inserts: Vec<u64>,
    refreshes: Vec<(u32, u64)>,
    cancels: Vec<u32>,
}

impl Program {
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

    /// In ns: insert, refresh, cancel, fire.
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

    /// The longest of each kind, in ns, by the same program. The order is checked, too.
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

type Run = fn(&Program) -> [f64; 4];

fn main() {
    let args = Args::parse();
    // For `Delays`, which asks for it wherever it is.
    let _inside = queues::runtime().enter();
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
        println!("\n**{name}**\n");
        print!("| timers |");
        systems.iter().for_each(|(system, _)| print!(" {system} |"));
        println!("\n|---|{}", "---|".repeat(systems.len()));
        let mut n = 1_000;
        while n <= args.most {
            measure(shape, n, &systems, args.longest);
            n *= 10;
        }
    }
}

fn measure(shape: Shape, n: usize, systems: &[(&str, Run)], longest: bool) {
    let mut random = Rng::with_seed(n as u64);
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
    print!("| {n} |");
    for result in &mut results {
        let figures = result.each_mut().map(|figures| {
            figures.sort_by(f64::total_cmp);
            // The longest of a round may be the machine's; that it is in each is not likely.
            let at = if longest { 0 } else { figures.len() / 2 };
            let figure = figures[at];
            if longest {
                format!("{:.0} µs", figure / 1_000.0)
            } else {
                format!("{figure:.0}")
            }
        });
        print!(" {} |", figures.join(" · "));
    }
    println!();
}
