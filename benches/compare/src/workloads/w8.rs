//! W8: cost of tasks that use no timers.
//!
//! Each part runs inside a task of the runtime. This task awaits the end of the work on a oneshot
//! channel.
//!
//! - *spawn 1M*, *spawn 10k*: the task spawns 1,000,000 or 10,000 tasks. Each of them decrements
//!   a shared counter; the last one ends the part. The unit is ns per task.
//! - *yield*: 200 tasks that yield 1,000 times each. The unit is ns per yield.
//! - *ping-pong*: 1,000 tasks. Each of them spawns a partner, sends to it, and waits for its
//!   answer. There is a oneshot channel for each direction. The unit is ns per task with its
//!   partner.
//! - *chained*: a chain of 1,000 tasks, each of which spawns the next. The unit is ns per task.
//!
//! All systems use the oneshot channel of futures-channel. This channel belongs to none of the
//! runtimes and uses no task budget, unlike tokio's. Handles are dropped, so all tasks are
//! detached. Each part has a process of its own, in which it runs several times. The figure is
//! the median of these runs. One run before them does not count.

use std::{
    hint::black_box,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
    time::Instant,
};

use futures_channel::oneshot;
use tourbillon_support::bench::median;

use crate::{
    measure::parts,
    runtimes::{self, Program, Runtime},
    system::System,
    workload::{Figure, Workload},
};

pub const WORKLOAD: Workload = Workload {
    name: "w8",
    systems: &System::RUNTIMES,
    run,
};

/// Number of tasks that yield.
const YIELDING: usize = 200;
/// Number of yields per task.
const YIELDS: usize = 1_000;
/// Number of tasks with a partner in *ping-pong*.
const PAIRS: usize = 1_000;
/// Number of tasks in the chain.
const DEPTH: usize = 1_000;

/// A counter that each task decrements. The last task ends the run.
///
/// The counter is leaked. Otherwise the tasks would count references to it, and the figures would
/// include this cost.
struct Countdown {
    left: AtomicUsize,
    over: Mutex<Option<oneshot::Sender<()>>>,
}

impl Countdown {
    /// Creates a counter, and a receiver that completes when the counter reaches zero.
    fn new(count: usize) -> (&'static Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let countdown = Self {
            left: AtomicUsize::new(count),
            over: Mutex::new(Some(sender)),
        };
        (Box::leak(Box::new(countdown)), receiver)
    }

    /// Decrements the counter. Ends the run if this brings the counter to zero.
    fn down(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            let over = self.over.lock().expect("nobody panics").take();
            let over = over.expect("one task is the last");
            over.send(()).expect("somebody waits");
        }
    }
}

/// A part of this workload. `Spawn` holds the number of tasks.
#[derive(Clone, Copy)]
enum What {
    Spawn(usize),
    Yield,
    PingPong,
    Chained,
}

impl What {
    /// Returns the number of operations in one run, by which its time is divided.
    fn count(self) -> usize {
        match self {
            What::Spawn(count) => count,
            What::Yield => YIELDING * YIELDS,
            What::PingPong => PAIRS,
            What::Chained => DEPTH,
        }
    }

    /// Runs this part once, and waits for its end.
    async fn once<R: Runtime>(self) {
        match self {
            What::Spawn(count) => {
                let (countdown, over) = Countdown::new(count);
                for _ in 0..count {
                    R::spawn(async move { black_box(countdown).down() });
                }
                over.await
            }
            What::Yield => {
                let (countdown, over) = Countdown::new(YIELDING);
                for _ in 0..YIELDING {
                    R::spawn(async {
                        for _ in 0..YIELDS {
                            R::yield_now().await;
                        }
                        countdown.down();
                    });
                }
                over.await
            }
            What::PingPong => {
                let (countdown, over) = Countdown::new(PAIRS);
                for _ in 0..PAIRS {
                    R::spawn(ping::<R>(countdown));
                }
                over.await
            }
            What::Chained => {
                let (countdown, over) = Countdown::new(1);
                chain::<R>(DEPTH, countdown);
                over.await
            }
        }
        .expect("the last one says so");
    }
}

/// Spawns a partner, sends to it, waits for its answer, and counts down.
async fn ping<R: Runtime>(countdown: &'static Countdown) {
    let (there, ping) = oneshot::channel();
    let (back, pong) = oneshot::channel();
    R::spawn(async move {
        ping.await.expect("it is sent");
        back.send(()).expect("somebody waits");
    });
    there.send(()).expect("somebody waits");
    pong.await.expect("it is sent");
    countdown.down();
}

/// Spawns a chain of `left` tasks, the last of which counts down.
fn chain<R: Runtime>(left: usize, countdown: &'static Countdown) {
    R::spawn(async move {
        match left - 1 {
            0 => countdown.down(),
            left => chain::<R>(left, countdown),
        }
    });
}

/// A part, and the number of measured runs. One more run comes before them and does not count.
struct Times(What, usize);

impl Program for Times {
    type Output = f64;

    /// Returns the median time per operation, in ns.
    fn on<R: Runtime>(self, runtime: &R) -> f64 {
        let Times(what, times) = self;
        let nanos = runtime.run(async move {
            let mut nanos = Vec::with_capacity(times);
            what.once::<R>().await;
            for _ in 0..times {
                let begun = Instant::now();
                what.once::<R>().await;
                nanos.push(begun.elapsed().as_nanos() as f64);
            }
            nanos
        });
        median(nanos) / what.count() as f64
    }
}

/// The figures: their names, their parts, and the numbers of measured runs.
const FIGURES: [(&str, What, usize); 5] = [
    ("spawn 1M: ns", What::Spawn(1_000_000), 3),
    ("spawn 10k: ns", What::Spawn(10_000), 51),
    ("yield: ns", What::Yield, 21),
    ("ping-pong: ns", What::PingPong, 101),
    ("chained: ns", What::Chained, 201),
];

fn run(system: System, quick: bool) -> Vec<Figure> {
    let names = FIGURES.map(|(name, ..)| name);
    parts::each_figure(&names, |name| {
        let figure = FIGURES.iter().find(|figure| figure.0 == name);
        let &(_, what, times) = figure.expect("a figure of w8");
        let times = match (quick, what) {
            (true, What::Spawn(count)) => Times(What::Spawn(count / 10), 1),
            (true, what) => Times(what, 1),
            (false, what) => Times(what, times),
        };
        runtimes::on(system, times)
    })
}
