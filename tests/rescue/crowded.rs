//! Many workers on few cores. A worker that does not return in time usually waits for a core and
//! is not blocked. Rescue then keeps neither the peers from other work nor the runtime from its
//! shutdown.
//!
//! Each test has a process of its own, which uses one core.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    PATIENCE,
    blocked::{Blocked, Says, all_come_but_on},
    eventually,
    process::alone,
};
use core_affinity::CoreId;
use tourbillon::{Timer, runtime::Builder, time::sleep};

/// The maximum number of looks per core and second, as in `src/engine/watchdog/rescuers.rs`.
const PER_SECOND: u64 = 4_000;
/// The work of each runtime.
const TIMERS: usize = 10_000;
const TASKS: u64 = 1_000;

/// Pins the calling thread to one core, and with it all threads that it starts from now on.
fn share_one_core() {
    let cores = core_affinity::get_core_ids().expect("the system says which there are");
    let core: &CoreId = cores.last().expect("this runs on one");
    assert!(core_affinity::set_for_current(*core), "a core may be used");
}

/// Threads that compute until this is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn of(threads: usize) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        for _ in 0..threads {
            let over = over.clone();
            thread::spawn(move || {
                while !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        Self(over)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The counts of a runtime, and the time in which it reached them.
struct Done {
    took: Duration,
    alarms: u64,
    parks: u64,
}

/// Runs timers on all workers, and tasks that sleep, until the runtime ends. Returns the counts.
fn work(latency: Option<Duration>) -> Done {
    const WORKERS: usize = 150;
    let begin = Instant::now();
    let mut builder = Builder::new();
    builder.worker_threads(WORKERS);
    if let Some(latency) = latency {
        builder.rescue_latency(latency);
    }
    let runtime = builder.build().unwrap();
    let fired = Arc::new(AtomicUsize::new(0));
    for n in 0..TIMERS {
        let fired = fired.clone();
        let delay = Duration::from_micros(2_000 + n as u64);
        let timer = Timer::after(delay).on(runtime.handle());
        timer
            .on_worker(n % WORKERS)
            .start(move || _ = fired.fetch_add(1, SeqCst));
    }
    let tasks: Vec<_> = (0..TASKS)
        .map(|n| runtime.spawn(sleep(Duration::from_micros(n))))
        .collect();
    runtime.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    eventually("all timers fire", || fired.load(SeqCst) == TIMERS);
    let total = runtime.metrics().total();
    assert!(runtime.shutdown_timeout(PATIENCE), "the workers end");
    Done {
        took: begin.elapsed(),
        alarms: total.alarms(),
        parks: total.parks(),
    }
}

/// All workers are awake at once, and each lacks a core most of the time.
#[test]
fn the_watchdog_costs_little_while_workers_wait_for_a_core() {
    alone(|| {
        share_one_core();
        let _load = Load::of(8);
        let control = work(Some(Duration::MAX));
        assert_eq!(control.alarms, 0);
        let watched = work(None);
        // An alarm goes off once after an owner or a timer has set it. The other alarms come from
        // checks of the watchdog, whose number in that time is bounded.
        let caused = watched.parks + TIMERS as u64 + 2 * TASKS;
        let looks = PER_SECOND * watched.took.as_millis() as u64 / 1_000;
        let (most, alarms) = (caused + looks, watched.alarms);
        assert!(alarms <= most, "{alarms} alarms, at most {most}");
        // This is far more than the watchdog costs, and far less than if the runtime stood still.
        let most = 10 * control.took + PATIENCE / 3;
        let took = watched.took;
        assert!(took < most, "{took:?}, and {:?} without", control.took);
    });
}

/// Peers look at blocked workers no more often than the cores allow, however many workers are
/// blocked.
#[test]
fn looks_in_a_second_do_not_grow_with_the_workers() {
    const COUNTED: Duration = Duration::from_secs(1);
    alone(|| {
        share_one_core();
        for workers in [64, 256] {
            let runtime = crate::common::runtime(workers);
            let blocked: Vec<_> = (2..workers)
                .map(|_| Blocked::some(runtime.handle()))
                .collect();
            let count = || runtime.metrics().total().alarms();
            // The last alarm that each worker has set itself may still go off.
            let (begin, before) = (Instant::now(), count() + workers as u64);
            thread::sleep(COUNTED);
            let alarms = count().saturating_sub(before);
            let most = PER_SECOND * begin.elapsed().as_millis() as u64 / 1_000;
            assert!(alarms <= most, "{workers}: {alarms}, at most {most}");
            drop(blocked);
            assert!(runtime.shutdown_timeout(PATIENCE), "the workers end");
        }
    });
}

/// A shutdown completes even if most threads have had no core since they were started or told to
/// end.
#[test]
fn a_runtime_of_many_workers_ends() {
    alone(|| {
        share_one_core();
        for rest in [0, 50].map(Duration::from_millis) {
            let runtime = crate::common::runtime(300);
            thread::sleep(rest);
            assert!(runtime.shutdown_timeout(PATIENCE), "the workers end");
        }
    });
}

/// Peers rescue the stuck workers, though less often: an alarm that is put off goes off again.
#[test]
fn the_work_of_many_blocked_workers_is_served() {
    const STUCK: usize = 30;
    const ROUNDS: usize = 3;
    alone(|| {
        share_one_core();
        let runtime = crate::common::runtime(STUCK + 2);
        let stuck: Vec<_> = (0..STUCK)
            .map(|_| Blocked::some(runtime.handle()))
            .collect();
        let threads: Vec<_> = stuck.iter().map(|it| it.thread).collect();
        let (says, came) = Says::new();
        for _ in 0..ROUNDS {
            // All timers have the same deadline: their alarms go off together, in the same epoll
            // instances.
            let due = Instant::now() + Duration::from_millis(20);
            for (index, blocked) in stuck.iter().enumerate() {
                let timer = Timer::at(due).on(runtime.handle());
                timer
                    .on_worker(blocked.worker)
                    .start(says.comes(index, due));
            }
            all_come_but_on(&threads, &came, STUCK);
        }
        drop(stuck);
        assert!(runtime.shutdown_timeout(PATIENCE), "the workers end");
    });
}

/// Every blocked worker has due timers again and again. None of them waits for many turns of
/// another.
#[test]
fn each_of_many_blocked_workers_is_rescued() {
    const STUCK: usize = 100;
    const RUNS: usize = 400;
    alone(|| {
        share_one_core();
        let runtime = crate::common::runtime(STUCK + 2);
        let stuck: Vec<_> = (0..STUCK)
            .map(|_| Blocked::some(runtime.handle()))
            .collect();
        let runs: Arc<[AtomicUsize]> = (0..STUCK).map(|_| AtomicUsize::new(0)).collect();
        for (index, blocked) in stuck.iter().enumerate() {
            let runs = runs.clone();
            let timer = Timer::every(Duration::from_millis(1)).on(runtime.handle());
            timer
                .on_worker(blocked.worker)
                .start(move || _ = runs[index].fetch_add(1, SeqCst));
        }
        eventually("one of them has run so often", || {
            runs.iter().any(|runs| runs.load(SeqCst) >= RUNS)
        });
        let runs: Vec<_> = runs.iter().map(|runs| runs.load(SeqCst)).collect();
        let least = *runs.iter().min().unwrap();
        assert!(least > 0, "one of them never had its turn: {runs:?}");
        drop(stuck);
        assert!(runtime.shutdown_timeout(PATIENCE), "the workers end");
    });
}
