//! The cost of current-thread runtimes, beside tokio: tests make thousands of them.
//!
//! | | program |
//! |---|---|
//! | *make and drop* | makes a runtime and drops it |
//! | *empty `block_on`* | `block_on(async {})`, on one runtime |
//! | *step* | a `block_on` that sleeps for 1 ms of a paused clock, beside a task that sleeps for 7 ms again and again |
//! | *test* | makes a runtime with a paused clock, spawns a task that sleeps, waits for it, and drops the runtime |
//! | *test, real clock* | the same with the clock that runs; the task yields and does not sleep |
//!
//! tokio is measured with `enable_all`, as Tourbillon always has sockets and timers, and with
//! `enable_time` alone, which takes no descriptor.
//!
//! Run `cargo bench --bench current_thread`. The runtimes take turns, a few ms each, and the result
//! is the median of the turns. Where valgrind is installed, the instructions outside of the kernel
//! are counted, too. `-- WHAT` selects programs by a part of their names.

use std::{
    env,
    time::{Duration, Instant},
};

use tourbillon_support::bench::{instructions, median, turns};

const MS: Duration = Duration::from_millis(1);
/// Time of one turn.
const TURN: Duration = Duration::from_millis(5);
/// Number of turns of each runtime.
const TURNS: usize = 200;
/// Number of operations under valgrind.
const COUNTED: u64 = 300;

const PROGRAMS: [&str; 5] = [
    "make and drop",
    "empty block_on",
    "step",
    "test",
    "test, real clock",
];

/// A runtime: how it does `n` operations of a program.
type Does = fn(what: &str, n: u32);

const RUNTIMES: [(&str, Does); 3] = [
    ("tourbillon", ours::run),
    ("tokio", tokio_all::run),
    ("tokio, time only", tokio_time::run),
];

mod ours {
    use tourbillon::{Runtime, runtime::Builder, spawn, task::yield_now, time::sleep};

    fn make(paused: bool) -> Runtime {
        let mut builder = Builder::new_current_thread();
        builder.start_paused(paused).build().expect("a runtime")
    }

    super::programs!();
}

/// The programs, which are the same text for all runtimes.
macro_rules! programs {
    () => {
        pub(super) fn run(what: &str, n: u32) {
            match what {
                "make and drop" => (0..n).for_each(|_| drop(make(false))),
                "empty block_on" => {
                    let runtime = make(false);
                    (0..n).for_each(|_| runtime.block_on(async {}));
                }
                "step" => {
                    let runtime = make(true);
                    let other = async {
                        loop {
                            sleep(7 * super::MS).await;
                        }
                    };
                    let _other = runtime.spawn(other);
                    (0..n).for_each(|_| runtime.block_on(async { sleep(super::MS).await }));
                }
                "test" => (0..n).for_each(|_| {
                    make(true).block_on(async {
                        spawn(async { sleep(super::MS).await })
                            .await
                            .expect("it ends");
                    });
                }),
                "test, real clock" => (0..n).for_each(|_| {
                    make(false).block_on(async {
                        spawn(async { yield_now().await }).await.expect("it ends");
                    });
                }),
                what => panic!("no such program: {what}"),
            }
        }
    };
}
use programs;

/// A module of tokio's runtimes that are made with one call of its builder.
macro_rules! tokio {
    ($name:ident, $enable:ident) => {
        mod $name {
            use tokio::{
                runtime::{Builder, Runtime},
                spawn,
                task::yield_now,
                time::sleep,
            };

            fn make(paused: bool) -> Runtime {
                let mut builder = Builder::new_current_thread();
                let builder = builder.$enable().start_paused(paused);
                builder.build().expect("a runtime")
            }

            super::programs!();
        }
    };
}
tokio!(tokio_all, enable_all);
tokio!(tokio_time, enable_time);

/// Returns the time of an operation of each runtime, in ns: the medians of turns.
fn times(what: &str) -> Vec<f64> {
    // As many operations as one turn has room for.
    let n = RUNTIMES.map(|(_, run)| {
        let mut n = 1;
        loop {
            let start = Instant::now();
            run(what, n);
            if start.elapsed() >= TURN {
                break n;
            }
            n *= 2;
        }
    });
    let times = turns(TURNS, RUNTIMES.len(), |which| {
        let (start, n) = (Instant::now(), n[which]);
        RUNTIMES[which].1(what, n);
        start.elapsed().as_nanos() as f64 / f64::from(n)
    });
    times.into_iter().map(median).collect()
}

fn main() {
    let args: Vec<_> = env::args().collect();
    if let [_, run, name, what, n] = &args[..] {
        if run == "run" {
            let (_, run) = RUNTIMES.iter().find(|it| it.0 == name).expect("a runtime");
            return run(what, n.parse().expect("a number"));
        }
    }
    let only = args.iter().skip(1).find(|arg| !arg.starts_with('-'));
    let names = RUNTIMES.map(|(name, _)| name).join(" | ");
    println!("| | {names} | instructions: {names} |");
    println!("|---|---|---|---|---|---|---|");
    for what in PROGRAMS {
        if only.is_some_and(|only| !what.contains(only.as_str())) {
            continue;
        }
        let times: Vec<_> = times(what)
            .iter()
            .map(|ns| format!("{:.2} µs", ns / 1e3))
            .collect();
        let args = |name: &str, n: u64| ["run", name, what, &n.to_string()].map(str::to_owned);
        let counts = RUNTIMES.map(|(name, _)| match instructions(COUNTED, |n| args(name, n)) {
            Some(count) => format!("{count:.0}"),
            None => "needs valgrind".into(),
        });
        println!(
            "| {what} | {} | {} |",
            times.join(" | "),
            counts.join(" | ")
        );
    }
}
