//! The metrics that need `tokio_unstable`. tokio's own tests of them import names that the package
//! in tokio's place lacks.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use tokio::runtime::{Builder, Runtime};

/// Only a hang takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

fn runtimes() -> [Runtime; 2] {
    let mut multi = Builder::new_multi_thread();
    let current = Builder::new_current_thread().enable_all().build().unwrap();
    [current, multi.worker_threads(2).enable_all().build().unwrap()]
}

fn eventually(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn blocking_threads_and_their_queue_are_counted() {
    let runtime = Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
    let metrics = runtime.metrics();
    assert_eq!(metrics.num_blocking_threads(), 0);
    let (sender, receiver) = mpsc::channel();
    let first = runtime.spawn_blocking(move || receiver.recv().unwrap());
    let second = runtime.spawn_blocking(|| ());
    eventually(|| metrics.blocking_queue_depth() == 1);
    assert_eq!(metrics.num_blocking_threads(), 1);
    assert_eq!(metrics.num_idle_blocking_threads(), 0);
    sender.send(()).unwrap();
    runtime.block_on(first).unwrap();
    runtime.block_on(second).unwrap();
    eventually(|| metrics.num_idle_blocking_threads() == 1);
    assert_eq!(metrics.blocking_queue_depth(), 0);
    drop(runtime);
    assert_eq!(metrics.num_idle_blocking_threads(), 0);
}

#[test]
fn tasks_and_polls_are_counted() {
    for runtime in runtimes() {
        let metrics = runtime.metrics();
        assert_eq!(metrics.spawned_tasks_count(), 0);
        runtime.block_on(async {
            for _ in 0..5 {
                tokio::spawn(tokio::task::yield_now()).await.unwrap();
            }
        });
        assert_eq!(metrics.spawned_tasks_count(), 5);
        drop(runtime);
        let workers = 0..metrics.num_workers();
        let polls: u64 = workers.map(|worker| metrics.worker_poll_count(worker)).sum();
        assert_eq!(polls, 10);
    }
}

#[test]
fn queued_tasks_are_counted() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let metrics = runtime.metrics();
    runtime.block_on(async {
        (0..100).for_each(|_| drop(tokio::spawn(async {})));
        assert_eq!(metrics.worker_local_queue_depth(0), 100);
    });
    drop(runtime);
    assert_eq!(metrics.worker_local_queue_depth(0), 0);
}

/// A worker that is blocked by a task has others in its queue, which its peer takes.
#[test]
fn steals_are_counted() {
    let [_, runtime] = runtimes();
    let metrics = runtime.metrics();
    let task = runtime.spawn(async {
        let (sender, receiver) = mpsc::channel();
        for _ in 0..8 {
            let sender = sender.clone();
            drop(tokio::spawn(async move { sender.send(()).unwrap() }));
        }
        // All but one, which may be the next of this worker alone.
        (0..7).for_each(|_| receiver.recv_timeout(PATIENCE).unwrap());
    });
    runtime.block_on(task).unwrap();
    drop(runtime);
    let sum = |of: fn(&tokio::runtime::RuntimeMetrics, usize) -> u64| -> u64 {
        (0..2).map(|worker| of(&metrics, worker)).sum()
    };
    let jobs = sum(tokio::runtime::RuntimeMetrics::worker_steal_count);
    let operations = sum(tokio::runtime::RuntimeMetrics::worker_steal_operations);
    assert!((1..=jobs).contains(&operations), "{operations} steals of {jobs} jobs");
}
