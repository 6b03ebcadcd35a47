//! W4, arming from outside: one thread, or two at once, that are no workers arm a million timers, one to
//! two minutes ahead, on a runtime with two workers that have nothing else to do. Wall time by timer, until
//! all are registered.
//!
//! *ours*: `Handle::after`. A worker that sleeps lets such timers stand in its inbox until it wakes up, as it
//! will in time for the first, or when a thread leaves it that has armed some thousand there. So that all
//! this work is counted, each worker is woken at the end, and the
//! time ends when their stores have all timers, which the metrics say. *returned* is without that: until
//! the calls have returned, from when on each timer is sure to run. *sleep*: a boxed `Sleep` polled
//! once, as for tokio. *tokio*: a boxed `Sleep`, polled once by a waker that does
//! nothing, in the runtime's context (`Handle::enter`): outside of a task there is no budget, and when the
//! poll returns the wheel has it. *tokio-alt*: the same; when the poll returns it stands in the queue of
//! a worker, and nothing tells when it gets from there into a wheel, so that part is not counted.
//! *delay-queue*: one queue behind a mutex, `insert` under the lock, and a task that waits for it. *smol*: a
//! boxed `Timer`, polled once; when the poll returns it stands in the reactor's queue of changes or, if that was
//! full, in its tree.
//!
//! Handles and sleeps are kept in a `Vec`, keys dropped; nothing is cancelled within the time. Each kind, and each number
//! of threads, has a process of its own.

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
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
    ],
    run,
};

const WORKERS: usize = 2;

/// No timer is due while it is measured.
const MINUTE: Duration = Duration::from_secs(60);

/// The measurement with this many threads, and the names of its figures.
struct Part {
    threads: usize,
    registered: &'static str,
    /// Ours alone: of the others all are where they are to be when the calls have returned.
    returned: Option<&'static str>,
}

/// The parts that each system has.
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

/// The sleeps of ours, which has callbacks, too.
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

fn run(system: System, quick: bool) -> Vec<Figure> {
    let count = if quick { 10_000 } else { 1_000_000 };
    let ours = system == System::Tourbillon;
    let parts = ARMS.iter().chain(SLEEPS.iter().filter(|_| ours));
    let parts: Vec<_> = parts.map(|part| part.registered).collect();
    let returned = ARMS.iter().filter_map(|part| part.returned);
    let names: Vec<_> = parts.iter().copied().chain(returned).collect();
    parts::each(&parts, &names, |name| {
        let is_asked = |part: &&Part| part.registered == name;
        let sleeping = SLEEPS.iter().find(is_asked);
        let part = sleeping.or_else(|| ARMS.iter().find(is_asked));
        let part = part.expect("a part of w4");
        let of = match system {
            System::Tourbillon if sleeping.is_none() => callbacks,
            System::Tourbillon => sleeps::<tourbillon::time::Sleep>,
            System::Tokio | System::TokioAlt => sleeps::<tokio::time::Sleep>,
            System::DelayQueue => queue,
            System::Smol => sleeps::<smol::Timer>,
            System::Compio | System::Monoio | System::Glommio => {
                refuse("its timers are of one thread")
            }
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

/// How long it took.
struct Times {
    /// Until all calls had returned.
    returned: Duration,
    /// And all timers were where they are to be.
    registered: Duration,
}

/// Runs `arm` on so many threads, which share `count` among them, each with a runtime entered, and then
/// `register`. What `arm` returns is dropped after that.
fn arm_all<T: Send>(
    runtime: &Runtime,
    (threads, count): (usize, usize),
    arm: impl Fn(Duration) -> T + Sync,
    register: impl Fn(),
) -> Times {
    let (begin, done) = (Barrier::new(threads), Barrier::new(threads + 1));
    // The threads report when they began and ended, since the waiting thread may wake up late.
    let spans = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                runtime.entered(|| {
                    let share = count / threads;
                    let mut draw = Draw::new();
                    let mut kept = Vec::with_capacity(share);
                    begin.wait();
                    let start = Instant::now();
                    kept.extend((0..share).map(|_| arm(MINUTE + draw.delay())));
                    let span = (start, Instant::now());
                    spans.lock().expect("no panics").push(span);
                    done.wait();
                    // Until all are registered: what is dropped would not be.
                    done.wait();
                });
            });
        }
        done.wait();
        register();
        let registered = Instant::now();
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

/// Until the stores have all. (Other systems have, or nothing tells.)
fn store(runtime: &Runtime, count: usize) {
    let Runtime::Tourbillon(runtime) = runtime else {
        return;
    };
    let all_stored = || {
        let metrics = runtime.metrics();
        let stored = metrics.workers().iter().map(|worker| worker.stored);
        stored.sum::<usize>() >= count
    };
    // A worker that is awake looks into its inbox.
    for worker in 0..WORKERS {
        drop(runtime.spawn_pinned_by_idx(|| async {}, worker));
    }
    while !all_stored() {
        // Sleep, which takes no CPU time from the registering thread.
        thread::sleep(Duration::from_micros(50));
    }
}

fn callbacks(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let Runtime::Tourbillon(ours) = &runtime else {
        unreachable!("callbacks are ours");
    };
    let arm = |delay| ours.after(delay, || {});
    arm_all(&runtime, (threads, count), arm, || store(&runtime, count))
}

fn sleeps<S: Sleeping>(system: System, threads: usize, count: usize) -> Times {
    let runtime = Runtime::new(system, WORKERS);
    let arm = |delay| {
        let sleep: Pin<Box<S>> = armed(&mut Context::from_waker(Waker::noop()), delay);
        sleep
    };
    arm_all(&runtime, (threads, count), arm, || store(&runtime, count))
}

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
            // It is empty at first, and has nothing due while it is measured.
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
