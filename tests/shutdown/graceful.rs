//! `Runtime::shutdown_graceful` lets tasks finish within its timeout and then ends the rest.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use crate::common::{Drops, Gate, HOUR, PATIENCE, alarm, on_worker, runtime};
use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    time::sleep,
    timer::{Outcome, Status},
};

#[test]
fn tasks_finish_in_time_and_timers_end_after_them() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let told = Arc::new(AtomicUsize::new(0));
    let finished = Arc::new(AtomicUsize::new(0));
    for _ in 0..100 {
        let told = told.clone();
        Timer::after(HOUR)
            .on(runtime.handle())
            .start_with(move |how| {
                assert_eq!(how, Outcome::Shutdown);
                told.fetch_add(1, SeqCst);
            });
        let finished = finished.clone();
        runtime.spawn(async move {
            sleep(Duration::from_millis(5)).await;
            // The shutdown also waits for a task that another one spawns at its end.
            tourbillon::spawn(async move {
                sleep(Duration::from_millis(5)).await;
                finished.fetch_add(1, SeqCst);
            });
        });
    }
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert_eq!(finished.load(SeqCst), 100);
    assert_eq!(told.load(SeqCst), 100);
}

#[test]
fn shutdown_graceful_without_tasks_returns_at_once() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let timer = runtime.handle().after(HOUR, || unreachable!());
    assert!(runtime.shutdown_graceful(Duration::MAX));
    assert!(!timer.is_pending());
}

#[test]
fn tasks_that_exceed_the_timeout_are_dropped() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let task = runtime.spawn(drops.pending());
    let start = Instant::now();
    assert!(!runtime.shutdown_graceful(Duration::from_millis(20)));
    assert!(start.elapsed() >= Duration::from_millis(20));
    // The shutdown does not wait for what ends in the background.
    crate::common::eventually("the task ends", || task.is_finished());
    assert_eq!(drops.count(), 1);
}

#[test]
fn a_panicking_task_counts_as_finished() {
    let _alarm = alarm();
    let runtime = runtime(1);
    drop(runtime.spawn(async { panic!("on purpose") }));
    assert!(runtime.shutdown_graceful(PATIENCE));
}

#[test]
fn shutdown_graceful_on_a_worker_does_not_wait() {
    let _alarm = alarm();
    let other = runtime(1);
    let runtime = runtime(1);
    let gate = Gate::new();
    let task = runtime.spawn({
        let gate = gate.clone();
        async move { gate.wait() }
    });
    let graceful = move |runtime: Runtime| runtime.shutdown_graceful(HOUR);
    assert!(!on_worker(&other, move || graceful(runtime)));
    gate.open();
    crate::common::eventually("the task has ended", || task.is_finished());
}

/// The timeout is real time: a blocking job keeps a paused clock still.
#[test]
fn shutdown_graceful_of_a_paused_current_thread_runtime_keeps_its_timeout() {
    let _alarm = alarm();
    let build = || {
        let mut builder = Builder::new_current_thread();
        builder.start_paused(true);
        builder.build().unwrap()
    };
    let runtime = build();
    let gate = Gate::new();
    let job = runtime.spawn_blocking({
        let gate = gate.clone();
        move || gate.wait()
    });
    assert!(!runtime.shutdown_graceful(Duration::from_millis(20)));
    gate.open();
    drop(job);
    // A paused clock goes on while tasks sleep, and stands when there are none.
    let runtime = build();
    let sleeper = runtime.spawn(sleep(Duration::from_millis(100)));
    let timer = runtime
        .handle()
        .after(HOUR, || unreachable!("no task waits for so long"));
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert!(sleeper.is_finished());
    assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
}
