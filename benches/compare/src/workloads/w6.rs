//! W6, memory: resident bytes per pending timer.
//!
//! Each kind of timer has a process of its own, with a runtime of one worker. The process makes a
//! million timers that are due in an hour. Memory that is resident before the first timer does
//! not count.
//!
//! - *callback*: Tourbillon's `after` with a closure that captures 16 bytes; `DelayQueue` with a
//!   value of 16 bytes. Handles and keys are dropped, since a timer runs without them.
//! - *sleep*: boxed sleeps of each system, in a `Vec` that has room for all of them. One task
//!   polls each sleep once.
//! - *unboxed*: sleeps in the `Vec` itself. Only Tourbillon and smol have this kind, because
//!   their sleeps can be moved after a poll.
//! - *task*: spawned tasks, each of which awaits a sleep. Join handles are dropped.

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
    systems: &System::TIMERS,
    run,
};

const CALLBACK: &str = "callback: bytes";
const SLEEP: &str = "sleep: bytes";
const UNBOXED: &str = "sleep, unboxed: bytes";
const TASK: &str = "task: bytes";

/// Delay of each timer: no timer fires during the measurement.
const HOUR: Duration = Duration::from_secs(3_600);

fn run(system: System, quick: bool) -> Vec<Figure> {
    let count = if quick { 10_000 } else { 1_000_000 };
    // Give each kind a process of its own. In a shared process, a kind would reuse memory that
    // the previous kind has freed, and the reused memory would not count.
    parts::each_figure(kinds(system), |name| {
        measure(system, name, count) / count as f64
    })
}

/// Returns the names of a system's figures: one for each kind of timer that the system has.
fn kinds(system: System) -> &'static [&'static str] {
    match system {
        System::Tourbillon => &[CALLBACK, SLEEP, UNBOXED, TASK],
        System::DelayQueue => &[CALLBACK],
        System::Smol => &[SLEEP, UNBOXED, TASK],
        System::Tokio | System::TokioAlt => &[SLEEP, TASK],
        _ => refuse("not in this workload"),
    }
}

/// Returns the memory that `count` timers of one kind take, in bytes. `name` is the kind's
/// figure.
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

/// Returns how much memory `fill` adds to an idle runtime, in bytes.
///
/// `fill` must leak the timers that it makes: the memory is read after `fill` has ended.
fn grown<F>(system: System, fill: F) -> f64
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = Runtime::new(system, 1);
    // Run an empty task first, so that the threads of the runtime have their stacks.
    runtime.run(async {});
    let before = resident();
    runtime.run(fill);
    let grown = resident() - before;
    // Skip the teardown of the runtime: the process ends next.
    std::mem::forget(runtime);
    grown
}

/// Returns the memory of `count` callbacks, in bytes. Their handles are dropped.
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

/// Returns the memory of a `DelayQueue` with `count` entries, in bytes. Their keys are dropped.
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

/// Returns the memory of `count` boxed sleeps and of the `Vec` that holds them, in bytes.
fn sleeps<S: Sleeping>(system: System, count: usize) -> f64 {
    grown(system, async move {
        let mut sleeps = Vec::with_capacity(count);
        in_steps(count, |cx, _| sleeps.push(armed(cx, S::after(HOUR)))).await;
        std::mem::forget(sleeps);
    })
}

/// Returns the memory of a `Vec` that holds `count` sleeps without boxes, in bytes.
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

/// Returns the memory of `count` tasks that await a sleep each, in bytes.
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
    // A task increments `polled` before it arms its sleep. Run an empty task: the only worker
    // finishes the poll of the last task before it runs this one.
    runtime.run(async {});
    let grown = resident() - before;
    std::mem::forget(runtime);
    grown
}
