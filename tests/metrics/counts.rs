//! Counts and activities of workers: what they did, what they took from each other, and what they
//! are doing.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use tourbillon::{
    Runtime,
    metrics::{Activity, RuntimeMetrics},
    runtime::Builder,
    time::{Instant, sleep},
};

use crate::common::{
    Gate, HOUR, PATIENCE, alarm, blocked::Blocked, eventually, on_worker, runtime,
};

const MS: Duration = Duration::from_millis(1);

/// Builds a runtime of `workers` workers, without helpers.
fn without_helpers(workers: usize) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(workers).helpers(0..=0);
    builder.build().unwrap()
}

#[test]
fn methods_with_tokios_names_agree_with_the_counts() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..100 {
        runtime.block_on(runtime.spawn(sleep(MS / 10))).unwrap();
    }
    let metrics = runtime.metrics();
    assert_eq!(metrics.num_workers(), 2);
    for (i, worker) in metrics.workers().iter().enumerate() {
        let counts = &worker.counts();
        assert_eq!(metrics.worker_park_count(i), counts.parks());
        assert_eq!(metrics.worker_poll_count(i), counts.polls());
        assert_eq!(metrics.worker_steal_count(i), counts.jobs_stolen());
        assert_eq!(
            metrics.worker_steal_operations(i),
            counts.steal_operations()
        );
        let busy = metrics.worker_total_busy_duration(i);
        assert_eq!(busy, Duration::from_nanos(counts.busy_ns()));
        assert_eq!(metrics.worker_local_queue_depth(i), worker.queue_depth());
    }
    let total = metrics.total();
    // Each task is polled twice as a rule. It is polled once if its sleep is over as soon as it
    // is armed.
    assert!((100..=200).contains(&total.polls()), "{total:?}");
    assert_eq!((total.armed(), total.fired()), (100, 100));
    // The last park is counted before its call of `epoll_wait` is.
    assert!(total.parks() > 0 && total.epoll_waits() + 2 >= total.parks());
    assert_eq!(metrics.spawned_tasks_count(), 100);
    assert_eq!(metrics.num_alive_tasks(), 0);
}

#[test]
fn jobs_that_wait_are_counted_where_they_wait() {
    let _alarm = alarm();
    let runtime = without_helpers(1);
    let (blocked, ()) = Blocked::after(runtime.handle(), || {
        (0..3).for_each(|_| drop(tourbillon::spawn(async {})));
    });
    (0..5).for_each(|_| drop(runtime.spawn(async {})));
    let depths = || {
        let metrics = runtime.metrics();
        let local = metrics.worker_local_queue_depth(0);
        (metrics.global_queue_depth(), local)
    };
    assert_eq!(depths(), (5, 3));
    drop(blocked);
    eventually("they have run", || depths() == (0, 0));
}

#[test]
fn an_unknown_worker_is_a_panic_as_in_tokio() {
    let runtime = runtime(2);
    let metrics = runtime.metrics();
    let ask: [fn(&RuntimeMetrics); 6] = [
        |it| _ = it.worker_park_count(2),
        |it| _ = it.worker_poll_count(2),
        |it| _ = it.worker_steal_count(2),
        |it| _ = it.worker_steal_operations(2),
        |it| _ = it.worker_total_busy_duration(2),
        |it| _ = it.worker_local_queue_depth(2),
    ];
    for ask in ask {
        assert!(catch_unwind(AssertUnwindSafe(|| ask(&metrics))).is_err());
    }
}

#[test]
fn tasks_are_counted_from_spawn_to_end() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let gate = Gate::new();
    let tasks: Vec<_> = (0..50)
        .map(|_| runtime.spawn(std::future::pending::<()>()))
        .collect();
    let blocks = {
        let gate = gate.clone();
        runtime.spawn_blocking(move || gate.wait())
    };
    assert_eq!(runtime.metrics().num_alive_tasks(), 51);
    gate.open();
    runtime.block_on(blocks).unwrap();
    tasks.iter().for_each(|task| task.abort());
    eventually("all have ended", || {
        runtime.metrics().num_alive_tasks() == 0
    });
    assert_eq!(runtime.metrics().spawned_tasks_count(), 51);
}

#[test]
fn counts_have_their_names() {
    let runtime = runtime(1);
    drop(runtime.handle().after(HOUR, || ()));
    let total = runtime.metrics().total();
    let named: Vec<_> = total.iter().collect();
    assert_eq!(named[0], ("armed_local", total.armed_local()));
    assert!(named.contains(&("armed_remote", 1)));
    assert!(named.contains(&("search_wakes", total.search_wakes())));
    let mut names: Vec<_> = named.iter().map(|(name, _)| name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), named.len());
}

#[test]
fn local_and_remote_arming_is_counted_on_the_owner() {
    let _alarm = alarm();
    let runtime = without_helpers(2);
    // For each worker: the timers that it armed itself, and those that others armed on it. This
    // runs on a worker: by then the timers that brought it there are counted.
    let armed = || {
        let metrics = tourbillon::Handle::current().metrics();
        let armed = |worker: usize| {
            let counts = &metrics.workers()[worker].counts();
            (counts.armed_local(), counts.armed_remote())
        };
        [armed(0), armed(1)]
    };
    on_worker(&runtime, move || {
        let here = crate::common::told::worker_number().unwrap();
        let there = 1 - here;
        let mut expected = armed();
        drop(tourbillon::after(HOUR, || ()));
        expected[here].0 += 1;
        assert_eq!(armed(), expected);
        let other = tourbillon::Timer::after(HOUR).on_worker(there);
        drop(other.start(|| ()));
        expected[there].1 += 1;
        assert_eq!(armed(), expected);
    });
    // Arm a timer on a thread that is not a worker.
    let before = runtime.metrics().total();
    drop(runtime.handle().after(HOUR, || ()));
    let after = runtime.metrics().total();
    assert_eq!(after.armed_remote(), before.armed_remote() + 1);
    assert_eq!(after.armed_local(), before.armed_local());
}

mod named {
    //! Jobs that a report can name.

    use crate::common::Gate;

    pub fn callback(gate: Gate, begun: impl FnOnce()) {
        begun();
        gate.wait();
    }

    pub async fn task(gate: Gate, begun: impl FnOnce()) {
        begun();
        gate.wait();
    }
}

#[test]
fn the_activity_of_a_worker_is_its_job_or_sleep() {
    let _alarm = alarm();
    let runtime = without_helpers(1);
    let at = || {
        let metrics = runtime.metrics();
        let worker = &metrics.workers()[0];
        (worker.activity(), worker.job())
    };
    let (sender, begun) = mpsc::channel();
    eventually("it has nothing to do", || at() == (Activity::Parked, None));

    let (gate, send) = (Gate::new(), sender.clone());
    let open = gate.clone();
    runtime.handle().after(Duration::ZERO, move || {
        named::callback(gate, move || send.send(()).unwrap());
    });
    begun.recv_timeout(PATIENCE).unwrap();
    let (activity, job) = at();
    let job = job.expect("it is at a job");
    assert_eq!(activity, Activity::Firing);
    assert!(job.name.contains("the_activity_of_a_worker"), "{job}");
    assert_eq!(job.spawned, None);
    assert_eq!(job.to_string(), format!("callback {}", job.name));
    assert_eq!(runtime.activities(), [(activity, Some(job))]);
    open.open();

    let gate = Gate::new();
    let task = runtime.spawn(named::task(gate.clone(), move || sender.send(()).unwrap()));
    let line = line!() - 1;
    begun.recv_timeout(PATIENCE).unwrap();
    let (activity, job) = at();
    let job = job.expect("it is at a job");
    assert_eq!(activity, Activity::Running);
    assert!(job.name.contains("named::task"), "{job}");
    let spawned = job.spawned.expect("a task was spawned somewhere");
    assert_eq!((spawned.file(), spawned.line()), (file!(), line));
    gate.open();
    runtime.block_on(task).unwrap();
    eventually("it has nothing to do", || at() == (Activity::Parked, None));
}

#[test]
fn a_worker_is_busy_while_it_is_awake() {
    const LONG: Duration = Duration::from_millis(500);
    const SHORT: Duration = Duration::from_millis(100);
    let _alarm = alarm();
    let runtime = without_helpers(1);
    let busy = || runtime.metrics().worker_total_busy_duration(0);
    // A worker that waits for a core is awake, and does not sleep yet.
    eventually("it is not busy while it sleeps", || {
        let (start, before) = (Instant::now(), busy());
        runtime.block_on(runtime.spawn(sleep(LONG))).unwrap();
        busy() - before + SHORT < start.elapsed()
    });
    let before = busy();
    on_worker(&runtime, || thread::sleep(SHORT));
    eventually("that is counted", || busy() - before >= SHORT);
}

/// A worker that is woken only for pending updates counts as awake, too.
#[test]
fn a_wake_that_brings_no_job_counts_as_busy() {
    const WAKES: u64 = 100;
    let _alarm = alarm();
    let runtime = without_helpers(1);
    eventually("it has nothing to do", || {
        runtime.activities()[0].0 == Activity::Parked
    });
    let counts = || runtime.metrics().workers()[0].counts().clone();
    let first = counts();
    let mut counted = 0;
    for i in 0..WAKES {
        let before = counts();
        // This timer is earlier than all before it, so the worker has to be woken for it.
        let sooner = HOUR - Duration::from_secs(i);
        drop(runtime.handle().after(sooner, || ()));
        eventually("it was woken, and sleeps again", || {
            counts().parks() > before.parks()
        });
        counted += u64::from(counts().busy_ns() > before.busy_ns());
    }
    let last = counts();
    assert_eq!(
        (last.callbacks(), last.polls()),
        (first.callbacks(), first.polls()),
        "no job has run"
    );
    // The last park may be counted before the busy time that led to it.
    assert!(counted >= WAKES / 2, "{counted} of {WAKES}");
}

#[test]
fn reading_a_filled_inbox_is_counted() {
    let _alarm = alarm();
    let runtime = without_helpers(1);
    let sweeps = || runtime.metrics().workers()[0].sweeps();
    let task = runtime.spawn(async {
        for _ in 0..100 {
            drop(tourbillon::after(HOUR, || ()));
            sleep(MS / 10).await;
        }
    });
    runtime.block_on(task).unwrap();
    assert_eq!(sweeps(), 0, "nobody was there but the worker");
    drop(runtime.handle().after(MS, || ()));
    eventually("the news was read", || sweeps() == 1);
}

#[test]
fn steals_add_up_by_thief_and_victim() {
    let _alarm = alarm();
    let runtime = without_helpers(3);
    // One worker has many jobs, each of which takes a while, so the others steal from it, unless
    // they get no core meanwhile.
    eventually("some are stolen", || {
        let task = runtime.spawn(async {
            let jobs: Vec<_> = (0..500)
                .map(|_| tourbillon::spawn(async { thread::sleep(MS / 10) }))
                .collect();
            for job in jobs {
                job.await.unwrap();
            }
        });
        runtime.block_on(task).unwrap();
        runtime.metrics().total().jobs_stolen() > 0
    });
    let metrics = runtime.metrics();
    let mut stolen = 0;
    for (i, worker) in metrics.workers().iter().enumerate() {
        assert_eq!(worker.steals_from().len(), 3);
        assert_eq!(worker.steals_from()[i], 0, "nobody steals from himself");
        let from_all: u64 = worker.steals_from().iter().sum();
        assert_eq!(from_all, worker.counts().jobs_stolen());
        assert!(worker.counts().steal_operations() <= from_all);
        stolen += from_all;
    }
    assert!(stolen > 0);
}

/// The only job of a worker that is blocked.
#[test]
fn a_steal_of_one_job_counts_one() {
    let _alarm = alarm();
    let runtime = without_helpers(2);
    let (sender, receiver) = mpsc::channel();
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        drop(tourbillon::spawn(async move { sender.send(()).unwrap() }));
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    drop(blocked);
    let total = runtime.metrics().total();
    // The callback that blocks may have been stolen as well.
    assert!((1..=2).contains(&total.steal_operations()), "{total:?}");
    assert_eq!(total.jobs_stolen(), total.steal_operations());
}

#[test]
fn rescues_add_up_by_rescuer_and_worker_with_their_lateness() {
    const TIMERS: u64 = 40;
    let _alarm = alarm();
    let runtime = without_helpers(2);
    let (sender, ran) = mpsc::channel();
    let (blocked, ()) = Blocked::after(runtime.handle(), move || {
        for _ in 0..TIMERS {
            let sender = sender.clone();
            drop(tourbillon::after(MS, move || sender.send(()).unwrap()));
        }
    });
    for _ in 0..TIMERS {
        ran.recv_timeout(PATIENCE)
            .expect("they are taken from the worker that is stuck");
    }
    let metrics = runtime.metrics();
    let rescuer = &metrics.workers()[1 - blocked.worker];
    assert_eq!(rescuer.rescued_from()[1 - blocked.worker], 0);
    let counts = &rescuer.counts();
    assert_eq!(
        rescuer.rescued_from()[blocked.worker],
        counts.rescued_timers() + counts.rescued_tasks()
    );
    assert!(counts.rescued_timers() >= TIMERS);
    let (late, wake) = (&rescuer.rescued_lateness(), &rescuer.wake_lateness());
    assert_eq!(late.count(), counts.rescued_timers());
    assert!(wake.count() >= late.count(), "they are among all");
    // The watchdog starts a rescue some ms after the worker was last in its loop, so these timers
    // are late.
    assert!(late.sum() > Duration::ZERO);
    // If the machine has stopped threads, the other worker may have rescued some timers before,
    // too.
    assert!(metrics.rescued_lateness().count() >= late.count());
}

/// The delay of a rescued timer counts as time in its store, not in the queue, although it is
/// rescued long after its deadline.
#[test]
fn the_queue_time_of_a_rescued_timer_starts_when_it_is_taken() {
    const TIMERS: u32 = 400;
    const LATENCY: Duration = Duration::from_millis(100);
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(2).helpers(0..=0);
    let runtime = builder.rescue_latency(LATENCY).build().unwrap();
    let queued = |worker: usize| runtime.metrics().workers()[worker].queue_lateness().clone();
    // In each round the rescuer takes timers at some 20 moments, and samples one in 16.
    eventually(
        "some were looked at, and were not queued for so long",
        || {
            let before = [queued(0), queued(1)];
            let (sender, ran) = mpsc::channel();
            let (blocked, ()) = Blocked::after(runtime.handle(), move || {
                for i in 0..TIMERS {
                    let sender = sender.clone();
                    let wait = MS / 20 * i;
                    drop(tourbillon::after(wait, move || sender.send(()).unwrap()));
                }
            });
            for _ in 0..TIMERS {
                ran.recv_timeout(PATIENCE)
                    .expect("they are taken from the worker that is stuck");
            }
            let rescuer = 1 - blocked.worker;
            let queued = queued(rescuer).since(&before[rescuer]);
            // One sample may be of the callback that blocked this worker in the round before.
            queued.count() >= 3 && queued.quantile(0.5) < Some(LATENCY / 2)
        },
    );
}

#[test]
fn recent_stalls_are_kept_with_their_numbers() {
    const BLOCKED: Duration = Duration::from_millis(3);
    let _alarm = alarm();
    let reported = Arc::new(Mutex::new(Vec::new()));
    let hook = reported.clone();
    let runtime = Builder::new()
        .worker_threads(1)
        .helpers(0..=0)
        .stall_threshold(MS)
        .on_stall(move |stall| hook.lock().unwrap().push(stall.to_string()))
        .build()
        .unwrap();
    assert!(runtime.recent_stalls().is_empty());
    let start = Instant::now();
    eventually("so many are reported", || {
        on_worker(&runtime, || thread::sleep(BLOCKED));
        reported.lock().unwrap().len() >= 70
    });
    // Until the worker sleeps, a stall may be reported that is not in the other list yet.
    eventually("it has nothing to do", || {
        runtime.activities()[0].0 == Activity::Parked
    });
    let recent = runtime.recent_stalls();
    let reported = reported.lock().unwrap();
    assert_eq!(recent.len(), 64);
    let first = reported.len() - 64;
    let mut last = start;
    for (i, recent) in recent.iter().enumerate() {
        assert_eq!(recent.stall.number, (first + i + 1) as u64);
        assert_eq!(recent.stall.to_string(), reported[first + i]);
        assert!(last <= recent.at && recent.at <= Instant::now());
        last = recent.at;
    }
}

#[test]
fn counts_survive_the_end_of_the_runtime() {
    let _alarm = alarm();
    let runtime = runtime(2);
    runtime.block_on(runtime.spawn(sleep(MS))).unwrap();
    let later = tourbillon::Timer::after_boot(HOUR).on(runtime.handle());
    drop(later.start(|| ()));
    eventually("the news was read", || {
        runtime.metrics().boot_clock().sweeps() == 1
    });
    let handle = runtime.handle().clone();
    let before = handle.metrics();
    drop(runtime);
    let after = handle.metrics();
    assert_eq!(after.num_workers(), 0);
    for ((name, before), (_, after)) in before.total().iter().zip(after.total().iter()) {
        assert!(before <= after, "{name}: {before}, {after}");
    }
    assert!(after.boot_clock().sweeps() >= 1, "{:?}", after.boot_clock());
    let (before, after) = (before.wake_lateness(), after.wake_lateness());
    assert_eq!(before.count(), 1);
    assert_eq!(after, before);
    assert!(handle.activities().is_empty());
}
