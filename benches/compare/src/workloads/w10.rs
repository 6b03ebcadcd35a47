//! W10, idle: cost of pending timers while nothing happens.
//!
//! One task holds 100,000 sleeps that are due in a minute. For `DelayQueue`, the task holds one
//! queue with 100,000 entries and waits for it. The runtime has two workers (smol has one).
//!
//! After the last arming, the process is left alone: first for half a second, in which the
//! workers finish and go to sleep, then for the five seconds that count.
//!
//! *CPU* and *voluntary switches* sum over all threads but the measuring one, which sleeps
//! meanwhile.

use std::{
    future::{pending, poll_fn},
    sync::mpsc,
    thread,
    time::Duration,
};

use tokio_util::time::DelayQueue;

use crate::{
    system::System,
    timers::{
        Runtime, Sleeping, armed,
        books::{cpu_of_others, switches_of_others},
        in_steps,
    },
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w10",
    systems: &System::TIMERS,
    run,
};

/// Delay of each timer: no timer fires during the measurement.
const AHEAD: Duration = Duration::from_secs(60);

/// Pause between the last arming and the measured time. Without this pause, the figures would
/// depend on whether a worker is still awake after the last arming.
const SETTLE: Duration = Duration::from_millis(500);

fn run(system: System, quick: bool) -> Vec<Figure> {
    let (count, idle) = if quick {
        (1_000, Duration::from_millis(200))
    } else {
        (100_000, Duration::from_secs(5))
    };
    let runtime = Runtime::new(system, 2);
    let (tell, armed) = mpsc::channel();
    match system {
        System::Tourbillon => hold::<tourbillon::time::Sleep>(&runtime, count, tell),
        System::Tokio | System::TokioAlt => hold::<tokio::time::Sleep>(&runtime, count, tell),
        System::Smol => hold::<smol::Timer>(&runtime, count, tell),
        System::DelayQueue => queue(&runtime, count, tell),
        _ => refuse("not in this workload"),
    }
    armed.recv().expect("the task arms them");
    thread::sleep(SETTLE);
    let (switches, cpu) = (switches_of_others(), cpu_of_others());
    thread::sleep(idle);
    let (cpu, switches) = (cpu_of_others() - cpu, switches_of_others() - switches);
    vec![
        Figure {
            name: "CPU ms",
            value: cpu,
        },
        Figure {
            name: "voluntary switches",
            value: switches,
        },
    ]
}

/// Spawns a task that arms `count` sleeps, sends to `tell`, and then holds the sleeps forever.
fn hold<S: Sleeping>(runtime: &Runtime, count: usize, tell: mpsc::Sender<()>) {
    runtime.spawn(async move {
        let mut sleeps = Vec::with_capacity(count);
        in_steps(count, |cx, _| sleeps.push(armed(cx, S::after(AHEAD)))).await;
        tell.send(()).expect("it is waited for");
        pending::<()>().await;
    });
}

/// Spawns a task that fills a `DelayQueue`, sends to `tell`, and then waits for the entries.
fn queue(runtime: &Runtime, count: usize, tell: mpsc::Sender<()>) {
    runtime.spawn(async move {
        let mut queue = DelayQueue::with_capacity(count);
        in_steps(count, |_, _| {
            queue.insert((), AHEAD);
        })
        .await;
        tell.send(()).expect("it is waited for");
        while poll_fn(|cx| queue.poll_expired(cx)).await.is_some() {}
    });
}
