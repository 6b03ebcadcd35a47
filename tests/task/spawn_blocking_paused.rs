//! A paused clock stands still while a blocking job runs or is queued, and advances afterwards.

use std::{thread, time::Duration};

use crate::common::{HOUR, alarm, event::Event};
use tourbillon::{
    Handle, Runtime,
    runtime::Builder,
    task::spawn_blocking,
    time::{Instant, sleep},
};

fn runtime(workers: usize, max: usize) -> Runtime {
    Builder::new()
        .worker_threads(workers)
        .max_blocking_threads(max)
        .start_paused(true)
        .build()
        .unwrap()
}

/// Blocks long enough that a clock that does not wait for the thread would advance.
fn block() {
    thread::sleep(Duration::from_millis(20));
}

#[test]
fn the_clock_stands_still_while_jobs_run_or_are_queued() {
    let _alarm = alarm();
    for max in [1, 8] {
        let runtime = runtime(2, max);
        runtime.block_on(async {
            let start = Instant::now();
            let hour = tourbillon::spawn(sleep(HOUR));
            let jobs: Vec<_> = (0..4)
                .map(|_| {
                    spawn_blocking(|| {
                        block();
                        Instant::now()
                    })
                })
                .collect();
            for job in jobs {
                assert_eq!(job.await.unwrap(), start, "time has passed");
            }
            hour.await.unwrap();
            assert_eq!(start.elapsed(), HOUR);
        });
    }
}

#[test]
fn the_clock_advances_after_the_last_detached_job() {
    let _alarm = alarm();
    for _ in 0..20 {
        let runtime = runtime(2, 8);
        runtime.block_on(async {
            let start = Instant::now();
            drop(spawn_blocking(|| thread::sleep(Duration::from_millis(1))));
            sleep(HOUR).await;
            assert_eq!(start.elapsed(), HOUR);
        });
    }
}

#[test]
fn a_job_that_waits_for_the_clock_does_not_stop_it() {
    let _alarm = alarm();
    let runtime = runtime(1, 1);
    let (at, queued) = runtime.block_on(async {
        let start = Instant::now();
        let job = spawn_blocking(move || {
            let handle = Handle::current();
            handle.block_on(async {
                sleep(HOUR).await;
                sleep(HOUR).await;
            });
            // Outside of `block_on`, the job stops the clock again.
            let hours = start.elapsed();
            block();
            assert_eq!(start.elapsed(), hours);
            handle.block_on(sleep(HOUR));
            start.elapsed()
        });
        // This job waits for the thread of the first job, which waits for the clock.
        let queued = spawn_blocking(move || start.elapsed());
        (job.await.unwrap(), queued.await.unwrap())
    });
    assert_eq!(at, 3 * HOUR);
    assert_eq!(queued, 3 * HOUR);
}

#[test]
fn wakes_and_timers_of_a_job_come_before_the_clock_advances() {
    let _alarm = alarm();
    let runtime = runtime(2, 8);
    for _ in 0..200 {
        runtime.block_on(async {
            let start = Instant::now();
            let hour = tourbillon::spawn(async move {
                sleep(HOUR).await;
            });
            let event = Event::default();
            let set = event.clone();
            drop(spawn_blocking(move || set.set()));
            let woken = tourbillon::spawn(async move {
                event.wait().await;
                start.elapsed()
            });
            let armed = spawn_blocking(move || {
                tourbillon::spawn(async move {
                    sleep(Duration::from_secs(1)).await;
                    start.elapsed()
                })
            });
            assert_eq!(woken.await.unwrap(), Duration::ZERO);
            let armed = armed.await.unwrap().await.unwrap();
            assert_eq!(armed, Duration::from_secs(1));
            hour.await.unwrap();
            assert_eq!(start.elapsed(), HOUR);
        });
    }
}

#[test]
fn an_aborted_job_does_not_stop_the_clock() {
    let _alarm = alarm();
    let runtime = runtime(1, 1);
    runtime.block_on(async {
        let start = Instant::now();
        let running = spawn_blocking(block);
        let queued = spawn_blocking(|| unreachable!("it was aborted"));
        queued.abort();
        sleep(HOUR).await;
        assert_eq!(start.elapsed(), HOUR);
        running.await.unwrap();
        let queued: Result<(), _> = queued.await;
        assert!(queued.unwrap_err().is_cancelled());
    });
}
