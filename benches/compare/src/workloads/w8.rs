//! W8: what tasks cost that do nothing with timers.
//!
//! All of it runs in a task of the runtime, which waits for the end on a oneshot.
//!
//! - *spawn 1M*, *spawn 10k*: spawns so many tasks, each of which counts itself off a counter that all share; the last
//!   ends it. ns per task.
//! - *yield*: 200 tasks that yield 1,000 times each. ns per yield.
//! - *ping-pong*: 1,000 tasks, each of which spawns another, and sends to it and waits for its answer, over a oneshot
//!   each way. ns per task with its partner.
//! - *chained*: a task that spawns a task, and so on, 1,000 deep. ns per task.
//!
//! The oneshot is futures-channel's, for all: it belongs to none of the runtimes, and asks none of them for a budget,
//! as tokio's would. Handles are dropped: tasks are detached. Each is done some times, in a process of its own, and the
//! median counts; the first time is not counted.

use std::{
    hint::black_box,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
    time::Instant,
};

use futures_channel::oneshot;

use crate::{
    measure::{lateness::median, parts},
    runtimes::{self, Program, Runtime},
    system::System,
    workload::{Figure, Workload},
};

pub const WORKLOAD: Workload = Workload {
    name: "w8",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::Smol,
        System::Compio,
        System::Monoio,
        System::Glommio,
    ],
    run,
};

const YIELDING: usize = 200;
const YIELDS: usize = 1_000;
const PAIRS: usize = 1_000;
const DEPTH: usize = 1_000;

/// A counter that each task lowers; the last task ends the run. (It is leaked, so that tasks need
/// not count references to it: that would be measured as well.)
struct Countdown {
    left: AtomicUsize,
    over: Mutex<Option<oneshot::Sender<()>>>,
}

impl Countdown {
    fn new(count: usize) -> (&'static Self, oneshot::Receiver<()>) {
        let (sender, receiver) = oneshot::channel();
        let countdown = Self {
            left: AtomicUsize::new(count),
            over: Mutex::new(Some(sender)),
        };
        (Box::leak(Box::new(countdown)), receiver)
    }

    fn down(&self) {
        if self.left.fetch_sub(1, AcqRel) == 1 {
            let over = self.over.lock().expect("nobody panics").take();
            let over = over.expect("one task is the last");
            over.send(()).expect("somebody waits");
        }
    }
}

#[derive(Clone, Copy)]
enum What {
    Spawn(usize),
    Yield,
    PingPong,
    Chained,
}

impl What {
    /// How many there are of what the figure is per one of.
    fn count(self) -> usize {
        match self {
            What::Spawn(count) => count,
            What::Yield => YIELDING * YIELDS,
            What::PingPong => PAIRS,
            What::Chained => DEPTH,
        }
    }

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

fn chain<R: Runtime>(left: usize, countdown: &'static Countdown) {
    R::spawn(async move {
        match left - 1 {
            0 => countdown.down(),
            left => chain::<R>(left, countdown),
        }
    });
}

/// Does it so many times, and once before.
struct Times(What, usize);

impl Program for Times {
    type Output = f64;

    /// The median, in ns.
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
