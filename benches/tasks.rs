//! The cost of a task: spawning, yielding, waking; Tourbillon and tokio side by side.
//!
//! Both run the same programs in turns, with two workers each. It prints the median and the minimum
//! of the rounds, both ratios to tokio's, and what else the machine did meanwhile. All programs
//! start on a worker. Both systems use tokio's oneshot channels, which wake any waker and do not
//! depend on a runtime.
//!
//! | | program | figure |
//! |---|---|---|
//! | *spawn 1M*, *spawn 10k* | a task spawns this many tasks; each counts down, and the last one reports the end | ns per task |
//! | *yield* | 200 tasks, each of which yields 1,000 times | ns per yield |
//! | *ping-pong* | 1,000 tasks; each spawns a second one, sends to it over a oneshot, and gets an answer over another | ns per pair |
//! | *chain* | a task spawns a task, which spawns a task, and so on, 1,000 deep | ns per task |
//!
//! Run `cargo bench --bench tasks`. Words after `--` select programs by name. `-- instructions`
//! needs valgrind and prints the instructions of each program on one worker: the difference between
//! a process with many operations and one with fewer, so that start and end do not count.

use std::{
    env,
    future::Future,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use tokio::sync::oneshot;
use tourbillon_support::disturbance::Meter;

/// Number of yields per task.
const YIELDS: usize = 1_000;

/// Name, program, number of items, repetitions per round, and number of rounds.
const PROGRAMS: [(&str, Program, usize, usize, usize); 5] = [
    ("spawn 1M", Program::Spawn, 1_000_000, 1, 15),
    ("spawn 10k", Program::Spawn, 10_000, 20, 31),
    ("yield", Program::Yield, 200, 1, 31),
    ("ping-pong", Program::PingPong, 1_000, 20, 31),
    ("chain", Program::Chain, 1_000, 50, 31),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Spawn,
    Yield,
    PingPong,
    Chain,
}

impl Program {
    const ALL: [Self; 4] = [Self::Spawn, Self::Yield, Self::PingPong, Self::Chain];

    /// Returns the number of items by which to divide the time.
    fn items(self, n: usize) -> usize {
        match self {
            Self::Yield => n * YIELDS,
            _ => n,
        }
    }
}

/// A runtime with its functions to spawn and to yield.
trait System: Copy + Send + 'static {
    /// Spawns a task on the current runtime and drops its handle.
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static);

    fn yield_now(self) -> impl Future<Output = ()> + Send;
}

#[derive(Clone, Copy)]
struct Ours;

impl System for Ours {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tourbillon::spawn(task));
    }

    fn yield_now(self) -> impl Future<Output = ()> + Send {
        tourbillon::task::yield_now()
    }
}

#[derive(Clone, Copy)]
struct Tokio;

impl System for Tokio {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    fn yield_now(self) -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }
}

/// Tells the main thread when `n` tasks have run.
#[derive(Clone)]
struct Countdown(Arc<(AtomicUsize, mpsc::Sender<()>)>);

impl Countdown {
    fn new(n: usize, done: mpsc::Sender<()>) -> Self {
        Self(Arc::new((AtomicUsize::new(n), done)))
    }

    fn count(&self) {
        let (left, done) = &*self.0;
        if left.fetch_sub(1, Relaxed) == 1 {
            done.send(()).expect("the receiver exists");
        }
    }
}

/// The first task of a program. It runs on a worker.
async fn program(system: impl System, program: Program, n: usize, done: mpsc::Sender<()>) {
    let countdown = Countdown::new(n, done);
    match program {
        Program::Spawn => {
            for _ in 0..n {
                let countdown = countdown.clone();
                system.spawn(async move { countdown.count() });
            }
        }
        Program::Yield => {
            for _ in 0..n {
                let countdown = countdown.clone();
                system.spawn(async move {
                    for _ in 0..YIELDS {
                        system.yield_now().await;
                    }
                    countdown.count();
                });
            }
        }
        Program::PingPong => {
            for _ in 0..n {
                let countdown = countdown.clone();
                system.spawn(async move {
                    let (ping, pinged) = oneshot::channel();
                    let (pong, ponged) = oneshot::channel();
                    system.spawn(async move {
                        pinged.await.expect("a ping");
                        pong.send(()).expect("the receiver exists");
                    });
                    ping.send(()).expect("the receiver exists");
                    ponged.await.expect("a pong");
                    countdown.count();
                });
            }
        }
        Program::Chain => chain(system, n, countdown),
    }
}

fn chain(system: impl System, left: usize, countdown: Countdown) {
    system.spawn(async move {
        countdown.count();
        if left > 1 {
            chain(system, left - 1, countdown);
        }
    });
}

fn ours(workers: usize) -> tourbillon::Runtime {
    tourbillon::runtime::Builder::new()
        .worker_threads(workers)
        .build()
        .expect("a runtime")
}

fn tokios(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Returns the average duration of one repetition.
fn measure(times: usize, mut once: impl FnMut(mpsc::Sender<()>)) -> Duration {
    let (sender, done) = mpsc::channel();
    let begin = Instant::now();
    for _ in 0..times {
        once(sender.clone());
        done.recv().expect("it does not panic");
    }
    begin.elapsed() / times as u32
}

fn compare(wanted: &[String]) {
    let (ours, tokio) = (ours(2), tokios(2));
    println!(
        "{:<10} {:>22} {:>22}   ratios     the machine",
        "ns", "tourbillon", "tokio"
    );
    println!(
        "{:<10} {:>11}{:>11} {:>11}{:>11}   ",
        "", "median", "least", "median", "least"
    );
    for (name, what, n, times, rounds) in PROGRAMS {
        if !wanted.is_empty() && !wanted.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let mut took = [Vec::new(), Vec::new()];
        let meter = Meter::start();
        for round in 0..=rounds {
            let mine = measure(times, |done| drop(ours.spawn(program(Ours, what, n, done))));
            let theirs = measure(times, |done| {
                drop(tokio.spawn(program(Tokio, what, n, done)))
            });
            // The first round only warms up.
            if round > 0 {
                took[0].push(mine);
                took[1].push(theirs);
            }
        }
        let disturbance = meter.read();
        let [(median, least), (tokio_median, tokio_least)] = took.map(|mut took| {
            took.sort();
            let each = |took: Duration| took.as_nanos() as f64 / what.items(n) as f64;
            (each(took[took.len() / 2]), each(took[0]))
        });
        println!(
            "{name:<10} {median:>11.1}{least:>11.1} {tokio_median:>11.1}{tokio_least:>11.1}   \
             {:.2} {:.2}  {disturbance}",
            median / tokio_median,
            least / tokio_least,
        );
    }
}

/// Runs a program on one worker. Does not shut down the runtime.
fn run(system: &str, what: Program, n: usize) {
    let (sender, done) = mpsc::channel();
    if system == "tokio" {
        let runtime = tokios(1);
        runtime.spawn(program(Tokio, what, n, sender));
        done.recv().expect("it does not panic");
        std::mem::forget(runtime);
    } else {
        let runtime = ours(1);
        drop(runtime.spawn(program(Ours, what, n, sender)));
        done.recv().expect("it does not panic");
        std::mem::forget(runtime);
    }
}

fn instructions(system: &str, what: Program) -> Option<f64> {
    let count = |n: usize| {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(env::current_exe().ok()?)
            .args(["run", system, &format!("{what:?}"), &n.to_string()])
            .output()
            .ok()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        let (_, count) = said.split_once("Collected : ")?;
        count.split_whitespace().next()?.parse::<f64>().ok()
    };
    let n = if what == Program::Yield { 50 } else { 5_000 };
    Some((count(3 * n)? - count(n)?) / what.items(2 * n) as f64)
}

fn main() {
    let args: Vec<_> = env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let named = |name: &str| {
        Program::ALL
            .into_iter()
            .find(|what| format!("{what:?}") == name)
    };
    match &args[..] {
        [word, system, name, n] if word == "run" => {
            run(
                system,
                named(name).expect("a program"),
                n.parse().expect("a number"),
            );
        }
        [word] if word == "instructions" => {
            for what in Program::ALL {
                for system in ["tourbillon", "tokio"] {
                    match instructions(system, what) {
                        Some(count) => {
                            println!("{:<10} {system:<10} {count:>7.0}", format!("{what:?}"))
                        }
                        None => println!("needs valgrind"),
                    }
                }
            }
        }
        wanted => compare(wanted),
    }
}
