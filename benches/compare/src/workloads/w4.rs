//! W4: arming timers from outside the runtime.
//!
//! One thread, or two at once, arm a million timers on a runtime with two workers. The threads are
//! not workers, and the workers have nothing else to do. The timers are due one to two minutes
//! later. Each figure is the wall time until all timers are registered, divided by the number of
//! timers.
//!
//! - *Tourbillon*: `Handle::after`. A worker that sleeps leaves such timers in its inbox until it
//!   wakes up. It wakes up in time for the first deadline. A thread that has armed about a
//!   thousand timers on a worker also wakes that worker, and then goes on with another one. To
//!   include all this work, the workload wakes each worker at the end. The time ends when the
//!   metrics show that the workers' stores have all timers.
//! - *returned*: Tourbillon without that last step. The time ends when all calls have returned.
//!   From then on, every timer is certain to run.
//! - *in batches*: Tourbillon's `Handle::after_many`, a thousand timers at a time. The time ends as
//!   for `Handle::after`.
//! - *sleep*: Tourbillon's `Sleep`, boxed and polled once, as for tokio. The time ends as for
//!   `Handle::after`.
//! - *tokio*: a boxed `Sleep`. The thread enters the runtime (`Handle::enter`) and polls the sleep
//!   once, with a waker that does nothing. There is no budget outside a task. When the poll
//!   returns, the wheel has the timer.
//! - *tokio-alt*: the same calls. When the poll returns, the timer is in a worker's queue. No
//!   interface shows when the timer gets from the queue into a wheel, so the figure does not
//!   include that step.
//! - *delay-queue*: one queue behind a mutex. The threads call `insert` under the lock, and a task
//!   waits for the queue.
//! - *smol*: a boxed `Timer`, polled once. When the poll returns, the timer is in the reactor's
//!   queue of changes. If that queue was full, the timer is in the reactor's tree.
//!
//! Each thread keeps its handles and sleeps in a `Vec`, and drops the keys of `DelayQueue`. No
//! timer is cancelled during the measurement. Each kind of timer and each number of threads has a
//! process of its own.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Barrier, Mutex},
    task::{Context, Waker},
    thread,
    time::{Duration, Instant},
};

use tokio_util::time::DelayQueue;

use crate::{
    measure::parts,
    system::System,
    timers::{Draw, Runtime, Sleeping, armed},
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w4",
    systems: &System::TIMERS,
    run,
};

const WORKERS: usize = 2;

/// Number of timers that are armed by one call, in batches.
const BATCH: usize = 1_000;

/// Least delay of a timer. No timer is due during the measurement.
const MINUTE: Duration = Duration::from_secs(60);

/// The measurement with one number of threads, and the names of its figures.
struct Part {
    threads: usize,
    /// Name of the time until all timers are registered.
    registered: &'static str,
    /// Name of the time until all calls have returned. Only Tourbillon has this figure. For a
    /// peer, the time until all timers are registered ends when the calls return.
    returned: Option<&'static str>,
}

/// Parts that every system has.
const ARMS: [Part; 2] = [
    Part {
        threads: 1,
        registered: "1 thread: ns per arm",
        returned: Some("1 thread, returned: ns per arm"),
    },
    Part {
        threads: 2,
        registered: "2 threads: ns per arm",
        returned: Some("2 threads, returned: ns per arm"),
    },
];

/// Parts with Tourbillon's sleeps. Its [`ARMS`] are callbacks.
const SLEEPS: [Part; 2] = [
    Part {
        threads: 1,
        registered: "1 thread, sleep: ns per arm",
        returned: None,
    },
    Part {
        threads: 2,
        registered: "2 threads, sleep: ns per arm",
        returned: None,
    },
];

/// Parts with Tourbillon's callbacks that are armed in batches.
const BATCHES: [Part; 2] = [
    Part {
        threads: 1,
        registered: "1 thread, in batches: ns per arm",
        returned: None,
    },
    Part {
        threads: 2,
        registered: "2 threads, in batches: ns per arm",
        returned: None,
    },
];

fn run(system: System, quick: bool) -> Vec<Figure> {
    let count = if quick { 10_000 } else { 1_000_000 };
    let ours = system == System::Tourbillon;
    let only_ours = SLEEPS.iter().chain(&BATCHES).filter(|_| ours);
    let parts = ARMS.iter().chain(only_ours);
    let parts: Vec<_> = parts.map(|part| part.registered).collect();
    let returned = ARMS.iter().filter_map(|part| part.returned);
    let names: Vec<_> = parts.iter().copied().chain(returned).collect();
    parts::each(&parts, &names, |name| {
        let is_asked = |part: &&Part| part.registered == name;
        let part = [&ARMS, &SLEEPS, &BATCHES]
            .into_iter()
            .flatten()
            .find(is_asked);
        let part = part.expect("a part of w4");
        let of = match system {
            System::Tourbillon if SLEEPS.iter().any(|it| is_asked(&it)) => {
                sleeps::<tourbillon::time::Sleep>
            }
            System::Tourbillon if BATCHES.iter().any(|it| is_asked(&it)) => batches,
            System::Tourbillon => callbacks,
            System::Tokio | System::TokioAlt => sleeps::<tokio::time::Sleep>,
            System::DelayQueue => queue,
            System::Smol => sleeps::<smol::Timer>,
            _ => refuse("its timers are of one thread"),
        };
        let times = of(system, part.threads, count);
        let figure = |name, time: Duration| Figure {
            name,
            value: time.as_nanos() as f64 / count as f64,
        };
        if !ours {
            return vec![figure(part.registered, times.returned)];
        }
        let returned = part.returned.map(|name| figure(name, times.returned));
        let registered = figure(part.registered, times.registered);
        [Some(registered), returned].into_iter().flatten().collect()
    })
}

/// Duration of a measurement, up to two events.
struct Times {
    /// Time until all calls had returned.
    returned: Duration,
    /// Time until all timers were registered as well.
    registered: Duration,
}

/// The delays of the timers of one thread.
struct Delays {
    draw: Draw,
    left: usize,
}

impl Iterator for Delays {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        Some(MINUTE + self.draw.delay())
    }
}

/// Calls `arm` with the delay of each timer: see [`arm_by`].
fn arm_all<T: Send>(
    runtime: &Runtime,
    threads_and_count: (usize, usize),
    arm: impl Fn(Duration) -> T + Sync,
    register: impl Fn(),
) -> Times {
    let arm = |kept: &mut Vec<T>, delays: Delays| kept.extend(delays.map(&arm));
    arm_by(runtime, threads_and_count, arm, register)
}

/// Arms `count` timers in total on several threads, and then calls `register`.
///
/// Each thread enters `runtime` and calls `arm` with its delays. The values that `arm` adds to the
/// list are dropped after `register` has returned.
fn arm_by<T: Send>(
    runtime: &Runtime,
    (threads, count): (usize, usize),
    arm: impl Fn(&mut Vec<T>, Delays) + Sync,
    register: impl Fn(),
) -> Times {
    let (begin, done) = (Barrier::new(threads), Barrier::new(threads + 1));
    // Each thread records when it begins and ends, because the waiting thread may wake up late.
    let spans = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                runtime.entered(|| {
                    let share = count / threads;
                    let draw = Draw::new();
                    let mut kept = Vec::with_capacity(share);
                    begin.wait();
                    let start = Instant::now();
                    arm(&mut kept, Delays { draw, left: share });
                    let span = (start, Instant::now());
                    spans.lock().expect("no panics").push(span);
                    done.wait();
                    // Keep the values until all timers are registered: a sleep that is dropped is
                    // cancelled.
                    done.wait();
                });
            });
        }
        // Wait until all threads have armed their timers.
        done.wait();
        register();
        let registered = Instant::now();
        // Let the threads drop their values.
        done.wait();
        let spans = spans.lock().expect("no panics");
        let start = spans.iter().map(|(start, _)| *start).min();
        let start = start.expect("there is a thread");
        let returned = spans.iter().map(|(_, end)| *end).max();
        Times {
            returned: returned.expect("there is a thread") - start,
            registered: registered - start,
        }
    })
}

/// Waits until the workers' stores have `count` timers.
///
/// Returns at once for a peer: its timers are registered already, or no interface shows when they
/// are.
fn store(runtime: &Runtime, count: usize) {
    let Runtime::Tourbillon(runtime) = runtime else {
        return;
    };
    let all_stored = || {
        let metrics = runtime.metrics();
        let stored = metrics.workers().iter().map(|worker| worker.stored());
        stored.sum::<usize>() >= count
    };
    // Wake each worker: a worker that is awake reads its inbox.
    for worker in 0..WORKERS {
        drop(runtime.handle().spawn_pinned_by_idx(|| async {}, worker));
    }
    while !all_stored() {
        // Sleep between the checks, to leave the processor to the workers.
        thread::sleep(Duration::from_micros(50));
    }
}

/// Measures Tourbillon's callbacks.
fn callbacks(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let Runtime::Tourbillon(ours) = &runtime else {
        unreachable!("callbacks are ours");
    };
    let arm = |delay| ours.handle().after(delay, || {});
    arm_all(&runtime, (threads, count), arm, || store(&runtime, count))
}

/// Measures Tourbillon's callbacks, in batches.
fn batches(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let Runtime::Tourbillon(ours) = &runtime else {
        unreachable!("callbacks are ours");
    };
    let arm = |kept: &mut Vec<_>, mut delays: Delays| {
        while delays.left > 0 {
            let batch = delays.by_ref().take(BATCH);
            kept.extend(ours.handle().after_many(batch.map(|delay| (delay, || {}))));
        }
    };
    arm_by(&runtime, (threads, count), arm, || store(&runtime, count))
}

/// Measures sleeps that are polled once.
fn sleeps<S: Sleeping>(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let arm = |delay| {
        let sleep: Pin<Box<S>> = armed(&mut Context::from_waker(Waker::noop()), S::after(delay));
        sleep
    };
    arm_all(&runtime, (threads, count), arm, || store(&runtime, count))
}

/// Measures one `DelayQueue` behind a mutex.
fn queue(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let Runtime::Tokio(tokio) = &runtime else {
        unreachable!("DelayQueue is tokio's");
    };
    let queue = Arc::new(Mutex::new(DelayQueue::new()));
    let waiting = Arc::clone(&queue);
    tokio.spawn(async move {
        loop {
            let expired = poll_fn(|cx| waiting.lock().expect("no panics").poll_expired(cx)).await;
            // The queue is empty at first, and then the poll does not wait. No timer is due during
            // the measurement.
            if expired.is_none() {
                tokio::task::yield_now().await;
            }
        }
    });
    let arm = |delay| {
        queue.lock().expect("no panics").insert((), delay);
    };
    arm_all(&runtime, (threads, count), arm, || ())
}
