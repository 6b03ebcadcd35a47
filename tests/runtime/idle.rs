//! An idle runtime does nothing: no worker wakes before its first deadline.
//!
//! A thread that wakes and sleeps again makes one voluntary context switch, which the kernel
//! counts.

use std::{
    collections::BTreeMap,
    thread,
    time::{Duration, Instant},
};

use crate::common::{HOUR, PATIENCE, eventually, on_worker, process::alone};
use tourbillon::{Runtime, net::TcpListener, runtime::Builder};

/// How long the workers must stay asleep.
const WATCH: Duration = Duration::from_millis(1500);
/// A thread without a context switch for this long has come to rest.
const REST: Duration = Duration::from_millis(200);
/// The name of the worker threads. It is short enough for the kernel, which keeps 15 bytes.
const NAME: &str = "idle-worker";
/// How many wake-ups are allowed: earlier work may wake a thread at rest once.
const ALLOWED: u64 = 1;

/// Returns how often each worker has gone to sleep so far, and whether it sleeps.
fn looks() -> BTreeMap<String, (u64, bool)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|task| {
            let path = task.unwrap().path();
            let status = std::fs::read_to_string(path.join("status")).ok()?;
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name))?;
                line.split_whitespace().nth(1).map(str::to_owned)
            };
            let count = field("voluntary_ctxt_switches:")?.parse().ok()?;
            let sleeps = field("State:")? == "S";
            (field("Name:")? == NAME).then(|| (path.display().to_string(), (count, sleeps)))
        })
        .collect()
}

/// Returns how often each worker has gone to sleep so far.
fn switches() -> BTreeMap<String, u64> {
    counts(looks())
}

fn counts(looks: BTreeMap<String, (u64, bool)>) -> BTreeMap<String, u64> {
    let looks = looks.into_iter();
    looks.map(|(path, (count, _))| (path, count)).collect()
}

/// Waits until all workers have come to rest: each sleeps. A worker that only lacks a core does
/// not. Returns the counts of [`switches`].
fn rest(workers: usize) -> BTreeMap<String, u64> {
    let start = Instant::now();
    loop {
        let before = looks();
        thread::sleep(REST);
        let sleep = before.len() == workers && before.values().all(|(_, sleeps)| *sleeps);
        if sleep && looks() == before {
            return counts(before);
        }
        assert!(start.elapsed() < PATIENCE, "the workers never come to rest");
    }
}

fn build(workers: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .follow_limits(true)
        .thread_name(NAME)
        .build()
        .unwrap()
}

/// Checks that the workers of a runtime stay asleep for the time of `WATCH`.
fn assert_idle(workers: usize) {
    let before = rest(workers);
    thread::sleep(WATCH);
    let after = switches();
    for (thread, count) in &before {
        let woke = after[thread] - count;
        assert!(woke <= ALLOWED, "a worker at rest woke {woke} times");
    }
}

/// Checks that the counts work: a worker that runs a job goes to sleep once more.
fn assert_counts_work(runtime: &Runtime) {
    let workers = runtime.metrics().num_workers();
    let before: u64 = rest(workers).values().sum();
    for _ in 0..10 {
        on_worker(runtime, || ());
        rest(workers);
    }
    let after: u64 = switches().values().sum();
    assert!(after >= before + 10, "ten wake-ups were not seen");
}

#[test]
fn pending_timers_cause_no_wake_up_before_the_first_deadline() {
    alone(|| {
        let runtime = build(2);
        let minute = Duration::from_secs(60);
        let timers: Vec<_> = (0..1_000)
            .map(|i| {
                runtime
                    .handle()
                    .after(minute + Duration::from_micros(i), || ())
            })
            .collect();
        let every = runtime.handle().every(minute, || ());
        let task = runtime.spawn(tourbillon::time::sleep(minute));
        assert_idle(2);
        assert!(timers.iter().all(|timer| timer.is_pending()) && every.is_pending());
        assert!(!task.is_finished());
        // Refreshing a timer wakes no worker.
        let before = rest(2);
        for timer in &timers {
            timer.refresh();
        }
        thread::sleep(REST);
        let after = switches();
        for (thread, count) in &before {
            assert!(
                after[thread] - count <= ALLOWED,
                "a refresh woke its worker"
            );
        }
        assert_counts_work(&runtime);
    });
}

/// All workers together wake less than once a second. The watchdog does not wake by itself.
#[test]
fn a_hundred_thousand_pending_timers_cause_no_periodic_wake_up() {
    const WATCHED: Duration = Duration::from_secs(5);
    alone(|| {
        let runtime = build(2);
        let timers: Vec<_> = (0..100_000)
            .map(|i| {
                runtime
                    .handle()
                    .after(Duration::from_secs(60) + Duration::from_micros(i), || ())
            })
            .collect();
        let parks = || runtime.metrics().total().parks();
        let before: u64 = rest(2).values().sum();
        let (start, parked) = (Instant::now(), parks());
        thread::sleep(WATCHED);
        let seconds = start.elapsed().as_secs();
        let switched = switches().values().sum::<u64>() - before;
        let parked = parks() - parked;
        assert!(
            parked < seconds && switched < seconds,
            "{parked} parks and {switched} switches in {seconds} s"
        );
        assert!(timers.iter().all(|timer| timer.is_pending()));
    });
}

#[test]
fn a_runtime_without_timers_sleeps() {
    alone(|| {
        let runtime = build(4);
        assert_idle(4);
        drop(runtime);
    });
}

#[test]
fn a_runtime_sleeps_again_after_work() {
    alone(|| {
        let runtime = build(2);
        runtime.block_on(async {
            let tasks: Vec<_> = (0..500_u64)
                .map(|i| {
                    tourbillon::spawn(async move {
                        tourbillon::time::sleep(Duration::from_micros(i * 20)).await;
                        tourbillon::task::yield_now().await;
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let timers: Vec<_> = (0..500)
            .map(|_| runtime.handle().after(Duration::from_millis(1), || ()))
            .collect();
        eventually("all have fired", || {
            timers.iter().all(|timer| !timer.is_pending())
        });
        // This thread cancels the timers. Their workers do not have to wake for that.
        for _ in 0..100 {
            runtime.handle().after(HOUR, || ()).cancel();
        }
        let _pending = runtime.handle().after(HOUR, || ());
        assert_idle(2);
    });
}

#[test]
fn idle_sockets_cause_no_wake_up() {
    alone(|| {
        let runtime = build(2);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let addr = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..20)
            .map(|_| std::net::TcpStream::connect(addr).unwrap())
            .collect();
        let serving = runtime.spawn(async move {
            let mut streams = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                streams.push(tourbillon::spawn(async move {
                    use futures_lite::AsyncReadExt;
                    // The idle timeout of a server.
                    let mut byte = [0];
                    tourbillon::time::timeout(HOUR, stream.read(&mut byte)).await
                }));
            }
            drop(streams);
        });
        assert_idle(2);
        assert!(!serving.is_finished());
        drop(clients);
    });
}
