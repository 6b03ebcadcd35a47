//! What it gives to follow the limits of a shared machine (`Builder::follow_limits`).
//!
//! The first table: a process of two workers whose CPU quota shrinks from two cores, after a
//! second, to one or to a half. Two seconds later the measurement begins. The kernel stops all
//! threads of the process once they have used up the quota of a period, which is 100 ms.
//!
//! | load | is |
//! |---|---|
//! | *computes* | eight tasks that compute for 100 µs and yield, again and again |
//! | *bursts* | twelve tasks that compute for 10 ms in such polls, each 400 ms: 0.3 of a core |
//!
//! Beside it a task sleeps for 5 ms, again and again. *throttled* is in how many of a hundred
//! periods the kernel stopped the process, and for how long of each second, summed over the
//! processors. *work* is how many cores the load got.
//!
//! The second table: more workers than cores. *yields*: eight tasks yield, again and again; their
//! number in a second. *sleeps*: 256 tasks sleep for 1 ms, again and again: how late they are, and
//! the processor time of each.
//!
//! The rounds take turns; each figure is the median of the rounds. Run `cargo bench --bench limits`
//! on a quiet machine. It needs the right to make a control group. After `--` a number sets the
//! seconds of each round.

use std::{
    env,
    future::Future,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon_support::{
    bench::{median, percentiles, time_of, turns},
    quota::{Group, enter_group},
    spin,
};

const ROUNDS: usize = 3;
const POLL: Duration = Duration::from_micros(100);
const SLEEP: Duration = Duration::from_millis(5);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// How long a runtime has to start its threads.
const SETTLED: Duration = Duration::from_millis(300);
const SYSTEMS: [&str; 3] = ["tourbillon", "following", "tokio"];
const QUOTAS: [f64; 2] = [1.0, 0.5];
const LOADS: [&str; 2] = ["computes", "bursts"];
const WORKERS: [(&str, usize, bool); 3] = [
    ("2 workers", 2, false),
    ("64 workers", 64, false),
    ("64 workers, following", 64, true),
];

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

enum System {
    Ours(tourbillon::Runtime),
    Tokio(tokio::runtime::Runtime),
}

/// What the tasks of a round share.
#[derive(Default)]
struct Shared {
    over: AtomicBool,
    /// Whether sleeps that begin now are measured.
    counts: AtomicBool,
    /// Polls of the load.
    polls: AtomicU64,
    /// By how much the sleeps were late, in µs.
    late: Mutex<Vec<f64>>,
}

fn ours(workers: usize, follows: bool) -> System {
    let mut builder = tourbillon::runtime::Builder::new();
    // Neither is pinned, so that only the limits differ.
    builder
        .worker_threads(workers)
        .pin(false)
        .follow_limits(follows);
    System::Ours(builder.build().expect("a runtime"))
}

impl System {
    fn new(name: &str) -> Self {
        match name {
            "tokio" => Self::Tokio(
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .expect("a runtime"),
            ),
            name => ours(2, name == "following"),
        }
    }

    fn spawn(&self, task: Task) {
        match self {
            Self::Ours(runtime) => drop(runtime.spawn(task)),
            Self::Tokio(runtime) => drop(runtime.spawn(task)),
        }
    }

    fn is_ours(&self) -> bool {
        matches!(self, Self::Ours(_))
    }

    /// Spawns a task that sleeps again and again, and notes how late each sleep is.
    fn spawn_sleeper(&self, shared: &Arc<Shared>, length: Duration) {
        let (is_ours, shared) = (self.is_ours(), shared.clone());
        self.spawn(Box::pin(async move {
            let mut late = Vec::new();
            while !shared.over.load(Relaxed) {
                let (counts, since) = (shared.counts.load(Relaxed), Instant::now());
                sleep(is_ours, length).await;
                if counts {
                    late.push((since.elapsed().as_secs_f64() - length.as_secs_f64()) * 1e6);
                }
            }
            shared.late.lock().expect("no panic").extend(late);
        }));
    }

    /// Spawns a task that computes for `polls` polls and then sleeps until the next period of this
    /// length, again and again.
    fn spawn_load(&self, shared: &Arc<Shared>, polls: u64, period: Duration) {
        let (is_ours, shared) = (self.is_ours(), shared.clone());
        self.spawn(Box::pin(async move {
            let mut next = Instant::now();
            while !shared.over.load(Relaxed) {
                for _ in 0..polls {
                    spin(POLL);
                    shared.polls.fetch_add(1, Relaxed);
                    yield_now(is_ours).await;
                }
                next += period;
                let left = next.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    sleep(is_ours, left).await;
                }
            }
        }));
    }
}

async fn sleep(is_ours: bool, length: Duration) {
    match is_ours {
        true => tourbillon::time::sleep(length).await,
        false => tokio::time::sleep(length).await,
    }
}

async fn yield_now(is_ours: bool) {
    match is_ours {
        true => tourbillon::task::yield_now().await,
        false => tokio::task::yield_now().await,
    }
}

/// Ends the tasks, and returns how late their sleeps were.
fn end(shared: &Arc<Shared>) -> Vec<f64> {
    shared.over.store(true, Relaxed);
    while Arc::strong_count(shared) > 1 {
        thread::sleep(MS);
    }
    std::mem::take(&mut *shared.late.lock().expect("no panic"))
}

/// Returns of how many periods in a hundred the quota stopped the process, the stopped ms of each
/// second, the cores that the load got, and the p99 of how late the sleeps were, in ms.
fn under_quota(group: &Group, name: &str, quota: f64, load: &str, length: Duration) -> [f64; 4] {
    group.limit(Some(2.0)).expect("its own group");
    let system = System::new(name);
    let shared = Arc::new(Shared::default());
    match load {
        "computes" => (0..8).for_each(|_| system.spawn_load(&shared, 1, Duration::ZERO)),
        _ => (0..12).for_each(|_| system.spawn_load(&shared, 100, 400 * MS)),
    }
    system.spawn_sleeper(&shared, SLEEP);
    thread::sleep(SECOND);
    group.limit(Some(quota)).expect("its own group");
    thread::sleep(2 * SECOND);
    let (before, polls) = (group.throttled(), shared.polls.load(Relaxed));
    shared.counts.store(true, Relaxed);
    let begin = Instant::now();
    thread::sleep(length);
    shared.counts.store(false, Relaxed);
    let (after, polls) = (group.throttled(), shared.polls.load(Relaxed) - polls);
    let seconds = begin.elapsed().as_secs_f64();
    // The last sleeps must not wait for the quota.
    group.limit(Some(2.0)).expect("its own group");
    let (_, late) = percentiles(end(&shared));
    [
        (after.0 - before.0) as f64 / seconds * 10.0,
        (after.1 - before.1).as_secs_f64() * 1e3 / seconds,
        polls as f64 * POLL.as_secs_f64() / seconds,
        late / 1e3,
    ]
}

/// Returns the yields of a second in millions, how late sleeps are (p50 and p99, in µs), and the
/// processor time of each, in µs.
fn with_workers(workers: usize, follows: bool, length: Duration) -> [f64; 4] {
    let system = ours(workers, follows);
    // The threads have begun, so all runtimes deal out their tasks in the same way.
    thread::sleep(SETTLED);
    let shared = Arc::new(Shared::default());
    for task in 0..64 {
        // No two tasks that yield are neighbours in memory: which worker they share a cache line
        // with would be chance.
        if task % 8 != 0 {
            system.spawn(Box::pin(std::future::pending()));
            continue;
        }
        let shared = shared.clone();
        system.spawn(Box::pin(async move {
            while !shared.over.load(Relaxed) {
                for _ in 0..100 {
                    yield_now(true).await;
                }
                shared.polls.fetch_add(100, Relaxed);
            }
        }));
    }
    thread::sleep(SECOND);
    let (polls, begin) = (shared.polls.load(Relaxed), Instant::now());
    thread::sleep(length);
    let polls = shared.polls.load(Relaxed) - polls;
    let yields = polls as f64 / begin.elapsed().as_secs_f64() / 1e6;
    shared.over.store(true, Relaxed);
    drop(system);

    let system = ours(workers, follows);
    let shared = Arc::new(Shared::default());
    shared.counts.store(true, Relaxed);
    let before = time_of(libc::CLOCK_PROCESS_CPUTIME_ID);
    (0..256).for_each(|_| system.spawn_sleeper(&shared, MS));
    thread::sleep(length);
    let late = end(&shared);
    let took = time_of(libc::CLOCK_PROCESS_CPUTIME_ID) - before;
    let each = took.as_secs_f64() * 1e6 / late.len() as f64;
    let (p50, p99) = percentiles(late);
    [yields, p50, p99, each]
}

/// Returns the medians of the rounds' figures.
fn medians(rounds: &[[f64; 4]]) -> [f64; 4] {
    std::array::from_fn(|figure| median(rounds.iter().map(|round| round[figure])))
}

fn main() {
    let seconds = env::args().skip(1).find_map(|arg| arg.parse().ok());
    let length = Duration::from_secs_f64(seconds.unwrap_or(4.0));
    if let Some(group) = enter_group(2.0) {
        println!("| quota | load | system | throttled | work | sleep of 5 ms: p99 late |");
        println!("|---|---|---|---|---|---|");
        let cases = QUOTAS
            .iter()
            .flat_map(|quota| LOADS.map(|load| (*quota, load)));
        for (quota, load) in cases {
            let all = turns(ROUNDS, SYSTEMS.len(), |at| {
                under_quota(&group, SYSTEMS[at], quota, load, length)
            });
            for (name, rounds) in SYSTEMS.iter().zip(&all) {
                let [periods, stopped, work, late] = medians(rounds);
                println!(
                    "| {quota} | {load} | {name} | {periods:.0} %, {stopped:.0} ms | {work:.2} | \
                    {late:.1} ms |"
                );
            }
        }
        group.limit(None).expect("its own group");
    }
    let all = turns(ROUNDS, WORKERS.len(), |at| {
        let (_, workers, follows) = WORKERS[at];
        with_workers(workers, follows, length)
    });
    println!("\n| | yields a second | sleep of 1 ms: late p50 · p99 | processor time of each |");
    println!("|---|---|---|---|");
    for ((name, ..), rounds) in WORKERS.iter().zip(&all) {
        let [yields, p50, p99, took] = medians(rounds);
        println!("| {name} | {yields:.1} million | {p50:.0} · {p99:.0} µs | {took:.1} µs |");
    }
}
