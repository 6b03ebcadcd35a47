//! The number of threads for `spawn_blocking`. Threads start as they are needed, up to the bound,
//! and end when they have been idle for the keep-alive.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::{Gate, HOUR, alarm, eventually, process::alone, threads};
use tourbillon::{BuildError, Runtime, runtime::Builder};

fn runtime(max: usize, keep_alive: Duration) -> Runtime {
    Builder::new()
        .worker_threads(1)
        .max_blocking_threads(max)
        .thread_keep_alive(keep_alive)
        .build()
        .unwrap()
}

/// Blocks `jobs` threads until the gate is opened.
fn block(runtime: &Runtime, jobs: usize) -> Gate {
    let release = Gate::new();
    for _ in 0..jobs {
        let begun = Gate::new();
        let (open, wait) = (begun.clone(), release.clone());
        runtime.spawn_blocking(move || {
            open.open();
            wait.wait();
        });
        begun.wait();
    }
    release
}

#[test]
fn a_thread_starts_for_each_job_without_an_idle_thread() {
    let _alarm = alarm();
    let runtime = runtime(512, HOUR);
    assert_eq!(runtime.metrics().num_blocking_threads(), 0);
    let release = block(&runtime, 5);
    assert_eq!(runtime.metrics().num_blocking_threads(), 5);
    assert_eq!(runtime.metrics().num_idle_blocking_threads(), 0);
    release.open();
    eventually("all are idle", || {
        runtime.metrics().num_idle_blocking_threads() == 5
    });
    // Later jobs use the idle threads.
    for _ in 0..20 {
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        eventually("it is idle again", || {
            runtime.metrics().num_idle_blocking_threads() == 5
        });
    }
    assert_eq!(runtime.metrics().num_blocking_threads(), 5);
}

#[test]
fn no_more_threads_run_than_the_bound() {
    let _alarm = alarm();
    let runtime = runtime(3, HOUR);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let release = block(&runtime, 3);
    let jobs: Vec<_> = (0..200)
        .map(|_| {
            let (now, most) = (now.clone(), most.clone());
            runtime.spawn_blocking(move || {
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                std::thread::sleep(Duration::from_micros(50));
                now.fetch_sub(1, SeqCst);
            })
        })
        .collect();
    let metrics = runtime.metrics();
    assert_eq!(metrics.num_blocking_threads(), 3);
    assert_eq!(metrics.blocking_queue_depth(), 200);
    assert_eq!(most.load(SeqCst), 0);
    release.open();
    for job in jobs {
        runtime.block_on(job).unwrap();
    }
    assert!((1..=3).contains(&most.load(SeqCst)));
    assert_eq!(runtime.metrics().num_blocking_threads(), 3);
    assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
}

#[test]
fn queued_jobs_run_first_come_first_served() {
    let _alarm = alarm();
    let runtime = runtime(1, HOUR);
    let release = block(&runtime, 1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..100)
        .map(|i| {
            let order = order.clone();
            runtime.spawn_blocking(move || order.lock().unwrap().push(i))
        })
        .collect();
    release.open();
    for job in jobs {
        runtime.block_on(job).unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..100).collect::<Vec<_>>());
}

#[test]
fn idle_threads_end_after_the_keep_alive_and_restart() {
    alone(|| {
        let runtime = runtime(512, Duration::from_millis(5));
        let before = threads();
        for _ in 0..3 {
            let release = block(&runtime, 6);
            assert_eq!(threads(), before + 6);
            release.open();
            eventually("they have ended", || {
                let metrics = runtime.metrics();
                metrics.num_blocking_threads() == 0
                    && metrics.num_idle_blocking_threads() == 0
                    && threads() == before
            });
        }
    });
}

#[test]
fn a_keep_alive_of_zero_or_without_limit_works() {
    let _alarm = alarm();
    for keep_alive in [Duration::ZERO, Duration::MAX] {
        let runtime = runtime(2, keep_alive);
        for i in 0..200 {
            let job = runtime.spawn_blocking(move || i);
            assert_eq!(runtime.block_on(job).unwrap(), i);
        }
        let idle = |count| {
            eventually("the last job is through", || {
                let metrics = runtime.metrics();
                metrics.num_blocking_threads() == metrics.num_idle_blocking_threads()
                    && (metrics.num_blocking_threads() > 0) == count
            });
        };
        idle(keep_alive == Duration::MAX);
    }
}

#[test]
fn a_bound_of_zero_is_an_error() {
    let error = Builder::new().max_blocking_threads(0).build().unwrap_err();
    assert!(matches!(error, BuildError::ZeroBlockingThreads));
    assert!(error.to_string().contains("max_blocking_threads(0)"));
}
