//! Groups of tasks: which task is in which, and how they divide the workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

use crate::common::spin;
use tourbillon::{
    GroupError, Handle, Runtime,
    metrics::GroupMetrics,
    runtime::Builder,
    sync::Notify,
    task::{Group, JoinSet, LocalSet, block_in_place, spawn_blocking, yield_now},
    time::sleep,
};

/// Longer than anything here takes, but for a hang.
const LONG: Duration = Duration::from_secs(300);

fn name_here() -> String {
    Group::current().unwrap().name().to_owned()
}

fn group(runtime: &Runtime, name: &str) -> Group {
    Group::builder(name).build_on(runtime.handle()).unwrap()
}

fn two_workers() -> Runtime {
    Builder::new().worker_threads(2).build().unwrap()
}

fn metrics_of(handle: &Handle, name: &str) -> GroupMetrics {
    let metrics = handle.metrics();
    let mut groups = metrics.groups().iter();
    groups.find(|group| group.name() == name).unwrap().clone()
}

/// Waits until `done` holds.
fn wait_until(mut done: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !done() {
        assert!(begin.elapsed() < LONG, "it hangs");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_a_task_spawns_is_in_its_group() {
    for runtime in [
        two_workers(),
        Builder::new_current_thread().build().unwrap(),
    ] {
        let batch = group(&runtime, "batch");
        let names = batch.spawn(async {
            let mut names = vec![name_here()];
            // Whatever wakes it.
            sleep(Duration::from_millis(1)).await;
            names.push(name_here());
            let child = tourbillon::spawn(async {
                yield_now().await;
                name_here()
            });
            names.push(child.await.unwrap());
            names.push(
                Handle::current()
                    .spawn(async { name_here() })
                    .await
                    .unwrap(),
            );
            let mut set = JoinSet::new();
            set.spawn(async { name_here() });
            names.push(set.join_next().await.unwrap().unwrap());
            let job = || Handle::current().spawn(async { name_here() });
            names.push(spawn_blocking(job).await.unwrap().await.unwrap());
            let job = || Handle::current().spawn(async { name_here() });
            names.push(block_in_place(job).await.unwrap());
            names
        });
        for name in runtime.block_on(names).unwrap() {
            assert_eq!(name, "batch");
        }
        let outside = runtime.spawn(async { name_here() });
        assert_eq!(runtime.block_on(outside).unwrap(), "default");
        runtime.block_on(async { assert_eq!(name_here(), "default") });
    }
}

#[test]
fn tasks_of_one_thread_spawn_into_the_group_of_their_context() {
    let runtime = two_workers();
    let batch = group(&runtime, "batch");
    let spawned = || async { tourbillon::spawn(async { name_here() }).await.unwrap() };
    // A task of a set is a part of the task that polls the set.
    let set = LocalSet::new();
    let local = set.spawn_local(spawned());
    runtime.block_on(batch.scope(set));
    assert_eq!(runtime.block_on(local).unwrap(), "batch");
}

#[test]
fn a_scope_is_of_one_future_and_one_runtime() {
    let (runtime, other) = (two_workers(), two_workers());
    let batch = group(&runtime, "batch");
    let urgent = group(&runtime, "urgent");
    let elsewhere = other.handle().clone();
    let names = batch.scope(async move {
        let inner = urgent.scope(async { tourbillon::spawn(async { name_here() }).await });
        let inner = inner.await.unwrap();
        let after = tourbillon::spawn(async { name_here() }).await.unwrap();
        let other = elsewhere.spawn(async { name_here() }).await.unwrap();
        [inner, after, other]
    });
    assert_eq!(runtime.block_on(names), ["urgent", "batch", "default"]);
    let task = runtime.block_on(async { tourbillon::spawn(async { name_here() }).await });
    assert_eq!(task.unwrap(), "default");
}

#[test]
fn groups_with_wrong_options_are_refused() {
    let runtime = two_workers();
    let build = |name: &str| Group::builder(name).build_on(runtime.handle());
    assert_eq!(build(" ").unwrap_err(), GroupError::EmptyName);
    assert_eq!(
        Group::builder("batch").build().unwrap_err(),
        GroupError::NoRuntime
    );
    let batch = build("batch").unwrap();
    let name = "batch".into();
    assert_eq!(build("batch").unwrap_err(), GroupError::NameTaken { name });
    for asked in [0, 10_001] {
        let refused = GroupError::Shares {
            asked,
            most: 10_000,
        };
        let builder = Group::builder("other").shares(asked);
        assert_eq!(builder.build_on(runtime.handle()).unwrap_err(), refused);
        assert_eq!(batch.set_shares(asked).unwrap_err(), refused);
        let mut builder = Builder::new();
        let error = builder
            .default_group(Group::builder("api").shares(asked))
            .build();
        assert!(
            error
                .unwrap_err()
                .to_string()
                .contains(&refused.to_string())
        );
    }
    let hasty = Group::builder("other").latency_goal(Duration::ZERO);
    let error = hasty.build_on(runtime.handle()).unwrap_err();
    assert_eq!(error, GroupError::ZeroLatencyGoal);
    let made = (0..).take_while(|number| build(&format!("group {number}")).is_ok());
    assert_eq!(made.count(), 30);
    assert_eq!(
        build("one more").unwrap_err(),
        GroupError::TooMany { most: 31 }
    );
    // Each has its queue.
    let last = runtime
        .block_on(runtime.spawn(async { Group::current().unwrap() }))
        .unwrap();
    assert_eq!(last.name(), "default");
}

#[test]
fn the_jobs_of_each_group_are_counted() {
    let runtime = Builder::new()
        .worker_threads(2)
        .default_group(Group::builder("api").shares(300))
        .build()
        .unwrap();
    assert!(runtime.metrics().groups().is_empty());
    let batch = Group::builder("batch")
        .shares(7)
        .build_on(runtime.handle())
        .unwrap();
    let task = batch.spawn(async {
        for _ in 0..9 {
            spin(Duration::from_millis(1));
            yield_now().await;
        }
    });
    runtime.block_on(task).unwrap();
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let of = |name| metrics_of(runtime.handle(), name);
    // A job is counted where its worker looks for the next one.
    wait_until(|| of("batch").jobs() == 10 && of("api").jobs() >= 1);
    assert!(of("batch").busy() >= Duration::from_millis(9));
    assert_eq!((of("api").shares(), of("batch").shares()), (300, 7));
    assert_eq!(of("batch").queued(), 0);
}

/// Spawns tasks that keep all workers busy until `stop`, and returns what counts their polls.
fn keep_busy(
    spawn: impl Fn(std::pin::Pin<Box<dyn Future<Output = ()> + Send>>),
    poll: Duration,
    stop: &Arc<AtomicBool>,
) -> Arc<AtomicUsize> {
    let polls = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (polls, stop) = (polls.clone(), stop.clone());
        spawn(Box::pin(async move {
            while !stop.load(SeqCst) {
                spin(poll);
                polls.fetch_add(1, SeqCst);
                yield_now().await;
            }
        }));
    }
    polls
}

/// The time of the jobs is measured, and a job that loses its core counts as long as it takes. So
/// the shares are met, on however busy a machine, once the longest job matters no more.
#[test]
fn shares_are_met_within_five_percent_over_a_second() {
    let of_groups = |two: bool| {
        let runtime = two_workers();
        let make = |name, shares| {
            Group::builder(name)
                .shares(shares)
                .build_on(runtime.handle())
        };
        let (small, large) = (make("small", 50).unwrap(), make("large", 150).unwrap());
        // Without a second group, the default one, which has 100 shares, competes with 300.
        small.set_shares(if two { 50 } else { 1 }).unwrap();
        large.set_shares(if two { 150 } else { 300 }).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let poll = Duration::from_micros(50);
        keep_busy(|task| drop(large.spawn(task)), poll, &stop);
        let other = match two {
            true => "small",
            false => "default",
        };
        let poll = Duration::from_micros(130);
        keep_busy(
            |task| match two {
                true => drop(small.spawn(task)),
                false => drop(runtime.spawn(task)),
            },
            poll,
            &stop,
        );
        let busy = |name| metrics_of(runtime.handle(), name).busy().as_secs_f64();
        let before = [busy(other), busy("large")];
        let mut times = [0.0; 2];
        wait_until(|| {
            times = [busy(other) - before[0], busy("large") - before[1]];
            let ratio = times[1] / times[0] / 3.0;
            times[0] + times[1] > 1.0 && (0.95..=1.05).contains(&ratio)
        });
        stop.store(true, SeqCst);
    };
    of_groups(true);
    of_groups(false);
}

/// The default group has little to do, and so is next whenever it has something. A job of it that
/// loses its core counts as long, and then the group waits for the others to catch up. So a single
/// round shows nothing, and most of them do.
#[test]
fn a_group_that_wakes_up_waits_for_one_job_of_another() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let batch = group(&runtime, "batch");
    let wakes = Arc::new((Notify::new(), AtomicBool::new(false)));
    let stop = Arc::new(AtomicBool::new(false));
    let polls = Arc::new(AtomicUsize::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    for _ in 0..8 {
        let (wakes, stop, polls, begun) =
            (wakes.clone(), stop.clone(), polls.clone(), begun.clone());
        batch.spawn(async move {
            while !stop.load(SeqCst) {
                if wakes.1.swap(false, SeqCst) {
                    begun.store(polls.load(SeqCst), SeqCst);
                    wakes.0.notify_one();
                }
                // Longer than a turn.
                spin(Duration::from_micros(200));
                polls.fetch_add(1, SeqCst);
                yield_now().await;
            }
        });
    }
    let woken = runtime.spawn(async move {
        let mut waited = Vec::new();
        for _ in 0..51 {
            wakes.1.store(true, SeqCst);
            wakes.0.notified().await;
            waited.push(polls.load(SeqCst) - begun.load(SeqCst));
        }
        waited.sort_unstable();
        waited
    });
    let waited = runtime.block_on(woken).unwrap();
    stop.store(true, SeqCst);
    // The job that has woken it, and no other.
    assert_eq!(waited[waited.len() / 2], 1, "{waited:?}");
}

#[test]
fn a_worker_that_is_busy_with_a_group_takes_the_jobs_of_a_stuck_peer() {
    let runtime = two_workers();
    let batch = group(&runtime, "batch");
    let stop = Arc::new(AtomicBool::new(false));
    keep_busy(
        |task| drop(batch.spawn(task)),
        Duration::from_micros(50),
        &stop,
    );
    let done = runtime.block_on(runtime.spawn(async {
        let (sender, receiver) = mpsc::channel();
        for number in 0..10 {
            let sender = sender.clone();
            tourbillon::spawn(async move { sender.send(number).unwrap() });
        }
        // Blocks this worker until the other one has run all.
        (0..10)
            .filter(|_| receiver.recv_timeout(LONG).is_ok())
            .count()
    }));
    assert_eq!(done.unwrap(), 10);
    stop.store(true, SeqCst);
}

#[test]
fn the_tasks_of_a_group_do_not_wait_for_a_stuck_worker() {
    let runtime = two_workers();
    let batch = group(&runtime, "batch");
    let done = batch.spawn(async {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..10 {
            let sender = sender.clone();
            tourbillon::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                sender.send(()).unwrap();
            });
        }
        (0..10)
            .filter(|_| receiver.recv_timeout(LONG).is_ok())
            .count()
    });
    assert_eq!(runtime.block_on(done).unwrap(), 10);
}

#[test]
fn helpers_run_the_tasks_of_groups() {
    let runtime = Builder::new().worker_threads(1).build().unwrap();
    let batch = group(&runtime, "batch");
    let done = batch.spawn(async {
        let task = tourbillon::spawn(async { name_here() });
        block_in_place(|| Handle::current().block_on(task).unwrap())
    });
    assert_eq!(runtime.block_on(done).unwrap(), "batch");
    // The time of the call is not that of the group.
    let slow =
        batch.spawn(async { block_in_place(|| std::thread::sleep(Duration::from_millis(50))) });
    runtime.block_on(slow).unwrap();
    wait_until(|| metrics_of(runtime.handle(), "batch").jobs() >= 3);
    assert!(metrics_of(runtime.handle(), "batch").busy() < Duration::from_millis(50));
}

#[test]
fn a_task_of_a_group_can_be_aborted_and_panic() {
    let runtime = two_workers();
    let batch = group(&runtime, "batch");
    let waits = batch.spawn(std::future::pending::<()>());
    waits.abort();
    assert!(runtime.block_on(waits).unwrap_err().is_cancelled());
    let panics = batch.spawn(async { panic!("meant") });
    assert!(runtime.block_on(panics).unwrap_err().is_panic());
    assert_eq!(runtime.block_on(batch.spawn(async { 42 })).unwrap(), 42);
}

/// Counts as gone when it is dropped.
struct Gone(Arc<AtomicUsize>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_shutdown_drops_the_tasks_of_groups() {
    let gone = Arc::new(AtomicUsize::new(0));
    let (mut handles, batch) = {
        let runtime = Builder::new().worker_threads(1).build().unwrap();
        let batch = group(&runtime, "batch");
        // The worker is busy, so the tasks are in the queue when the runtime stops.
        let (begun, began) = mpsc::channel();
        let (go_on, waits) = mpsc::channel::<()>();
        runtime.spawn(async move {
            begun.send(()).unwrap();
            _ = waits.recv_timeout(LONG);
        });
        began.recv_timeout(LONG).unwrap();
        let task = |gone: &Arc<AtomicUsize>, waits: bool| {
            let gone = Gone(gone.clone());
            batch.spawn(async move {
                // What it spawns as it is dropped ends, too.
                let _gone = gone;
                if waits {
                    std::future::pending::<()>().await;
                }
                yield_now().await;
                std::future::pending::<()>().await;
            })
        };
        let handles: Vec<_> = (0..100)
            .map(|number| task(&gone, number % 2 == 0))
            .collect();
        let handle = runtime.handle().clone();
        let stops = std::thread::spawn(move || runtime.shutdown_timeout(LONG));
        wait_until(|| handle.is_shut_down());
        drop(go_on);
        assert!(stops.join().unwrap());
        (handles, batch)
    };
    assert_eq!(gone.load(SeqCst), 100);
    handles.push(batch.spawn(async {}));
    let observer = Builder::new_current_thread().build().unwrap();
    for handle in handles {
        assert!(observer.block_on(handle).unwrap_err().is_cancelled());
    }
}

/// On a paused clock the order depends on the program alone.
#[test]
fn a_paused_clock_gives_the_same_order_each_time() {
    let run = || {
        let mut builder = Builder::new_current_thread();
        let runtime = builder.start_paused(true).build().unwrap();
        let batch = Group::builder("batch")
            .shares(30)
            .build_on(runtime.handle())
            .unwrap();
        let order = Arc::new(std::sync::Mutex::new(Vec::new()));
        runtime.block_on(async {
            let mut set = JoinSet::new();
            for number in 0..10_u32 {
                let order = order.clone();
                let task = async move {
                    for _ in 0..20 {
                        order.lock().unwrap().push(number);
                        yield_now().await;
                    }
                    sleep(Duration::from_secs(3600)).await;
                    order.lock().unwrap().push(number);
                };
                match number % 2 {
                    0 => drop(set.spawn(task)),
                    _ => drop(batch.sync_scope(|| set.spawn(task))),
                }
            }
            while set.join_next().await.is_some() {}
        });
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    };
    let first = run();
    assert_eq!(first.len(), 210);
    assert_eq!(first, run());
    // The groups take turns.
    let half = &first[..100];
    assert!(half.iter().any(|number| number % 2 == 0));
    assert!(half.iter().any(|number| number % 2 == 1));
}
