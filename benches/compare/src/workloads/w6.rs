//! W6, memory: resident bytes by pending timer, of a million, an hour ahead. A process for each kind,
//! with a runtime of one worker; what is resident before the first timer is not counted.
//!
//! *callback*: ours by `after`, with 16 bytes captured; `DelayQueue` with a value of 16 bytes.
//! Handles and keys are dropped, since a timer runs without them. *sleep*: boxed sleeps of each
//! system in a `Vec` that has room for all, polled once by one task. *unboxed*: in the `Vec`
//! itself, where a system's sleep can be moved when it has been polled, as ours and smol's. *task*:
//! spawned tasks, each of which sleeps; join handles are dropped.

use std::{
    future::Future,
    hint::black_box,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use tokio_util::time::DelayQueue;

use crate::{
    measure::parts,
    system::System,
    timers::{Runtime, Sleeping, armed, books::resident, in_steps},
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w6",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
    ],
    run,
};

const CALLBACK: &str = "callback: bytes";
const SLEEP: &str = "sleep: bytes";
const UNBOXED: &str = "sleep, unboxed: bytes";
const TASK: &str = "task: bytes";

const HOUR: Duration = Duration::from_secs(3_600);

fn run(system: System, quick: bool) -> Vec<Figure> {
    let count = if quick { 10_000 } else { 1_000_000 };
    // Memory that one kind has let go of would be had for nothing by the next.
    parts::each_figure(kinds(system), |name| {
        measure(system, name, count) / count as f64
    })
}

/// Returns the kinds of timers that a system has.
fn kinds(system: System) -> &'static [&'static str] {
    match system {
        System::Tourbillon => &[CALLBACK, SLEEP, UNBOXED, TASK],
        System::DelayQueue => &[CALLBACK],
        System::Smol => &[SLEEP, UNBOXED, TASK],
        System::Tokio | System::TokioAlt => &[SLEEP, TASK],
        System::Compio | System::Monoio | System::Glommio => refuse("not in this workload"),
    }
}

/// So many timers of a kind, in bytes.
fn measure(system: System, name: &str, count: usize) -> f64 {
    match (system, name) {
        (System::Tourbillon, CALLBACK) => callbacks(count),
        (System::DelayQueue, CALLBACK) => queue(count),
        (System::Tourbillon, SLEEP) => sleeps::<tourbillon::time::Sleep>(system, count),
        (System::Tourbillon, TASK) => tasks::<tourbillon::time::Sleep>(system, count),
        (System::Tourbillon, UNBOXED) => unboxed::<tourbillon::time::Sleep>(system, count),
        (System::Smol, UNBOXED) => unboxed::<smol::Timer>(system, count),
        (System::Smol, SLEEP) => sleeps::<smol::Timer>(system, count),
        (System::Smol, TASK) => tasks::<smol::Timer>(system, count),
        (_, SLEEP) => sleeps::<tokio::time::Sleep>(system, count),
        _ => tasks::<tokio::time::Sleep>(system, count),
    }
}

/// Returns by how much `fill` grows the memory of an idle runtime. `fill` leaks the timers that it
/// makes.
fn grown<F>(system: System, fill: F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = Runtime::new(system, 1);
    // Its first task has been run, so that its threads have their stacks.
    runtime.run(async {});
    let before = resident();
    runtime.run(fill);
    let grown = resident() - before;
    std::mem::forget(runtime);
    grown
}

fn callbacks(count: usize) -> f64 {
    grown(System::Tourbillon, async move {
        in_steps(count, |_, index| {
            let captured = [index, !index];
            tourbillon::after(HOUR, move || {
                black_box(captured);
            });
        })
        .await;
    })
}

fn queue(count: usize) -> f64 {
    grown(System::DelayQueue, async move {
        let mut queue = DelayQueue::new();
        in_steps(count, |_, index| {
            queue.insert([index, !index], HOUR);
        })
        .await;
        std::mem::forget(queue);
    })
}

fn sleeps<S: Sleeping>(system: System, count: usize) -> f64 {
    grown(system, async move {
        let mut sleeps = Vec::with_capacity(count);
        in_steps(count, |cx, _| sleeps.push(armed::<S>(cx, HOUR))).await;
        std::mem::forget(sleeps);
    })
}

fn unboxed<S: Sleeping + Unpin>(system: System, count: usize) -> f64 {
    grown(system, async move {
        let mut sleeps = Vec::with_capacity(count);
        in_steps(count, |cx, _| {
            let mut sleep = S::after(HOUR);
            assert!(Pin::new(&mut sleep).poll(cx).is_pending(), "it waits");
            sleeps.push(sleep);
        })
        .await;
        std::mem::forget(sleeps);
    })
}

fn tasks<S>(system: System, count: usize) -> f64
where
    S: Sleeping,
{
    let runtime = Runtime::new(system, 1);
    runtime.run(async {});
    let before = resident();
    let polled = Arc::new(AtomicUsize::new(0));
    for _ in 0..count {
        let polled = Arc::clone(&polled);
        runtime.spawn(async move {
            polled.fetch_add(1, Ordering::Relaxed);
            S::after(HOUR).await;
        });
    }
    while polled.load(Ordering::Relaxed) < count {
        thread::sleep(Duration::from_millis(1));
    }
    // The last one's sleep follows what it has counted.
    runtime.run(async {});
    let grown = resident() - before;
    std::mem::forget(runtime);
    grown
}
