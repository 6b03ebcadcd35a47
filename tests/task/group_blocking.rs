//! The bound of a group on the blocking threads: its jobs hold no more of them, and none is lost.

use std::{
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use crate::common::{Drops, Gate, HOUR, PATIENCE, alarm};
use tourbillon::{
    GroupError, Handle, JoinHandle, Runtime,
    runtime::Builder,
    task::{Group, spawn_blocking},
    time::{Instant, sleep},
};

fn runtime(max: usize) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(2).max_blocking_threads(max);
    builder.build().unwrap()
}

fn group(runtime: &Runtime, name: &str, threads: usize) -> Group {
    let builder = Group::builder(name).max_blocking_threads(threads);
    builder.build_on(runtime.handle()).unwrap()
}

/// Spawns a blocking job in a group.
fn job<R: Send + 'static>(
    (runtime, group): (&Runtime, &Group),
    f: impl FnOnce() -> R + Send + 'static,
) -> JoinHandle<R> {
    group.sync_scope(|| runtime.spawn_blocking(f))
}

/// Begins a job that runs until the gate is opened.
fn blocked(at: (&Runtime, &Group)) -> (JoinHandle<()>, Gate) {
    let (begun, release) = (Gate::new(), Gate::new());
    let (begins, waits) = (begun.clone(), release.clone());
    let job = job(at, move || {
        begins.open();
        waits.wait();
    });
    begun.wait();
    (job, release)
}

#[test]
fn a_group_holds_as_many_threads_as_its_bound() {
    let _alarm = alarm();
    let runtime = runtime(512);
    let batch = group(&runtime, "batch", 2);
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let pair = Arc::new(Barrier::new(2));
    let jobs: Vec<_> = (0..100)
        .map(|_| {
            let (running, most, pair) = (running.clone(), most.clone(), pair.clone());
            job((&runtime, &batch), move || {
                most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                // Two of them run at once.
                pair.wait();
                running.fetch_sub(1, SeqCst);
            })
        })
        .collect();
    for job in jobs {
        runtime.block_on(job).unwrap();
    }
    assert_eq!(most.load(SeqCst), 2);
}

#[test]
fn jobs_that_wait_leave_the_threads_to_other_groups() {
    let _alarm = alarm();
    let runtime = runtime(3);
    let (batch, other) = (group(&runtime, "batch", 1), group(&runtime, "other", 1));
    let (first, release) = blocked((&runtime, &batch));
    let waiting: Vec<_> = (0..10)
        .map(|n| job((&runtime, &batch), move || n))
        .collect();
    assert_eq!(runtime.metrics().blocking_queue_depth(), 10);
    assert_eq!(runtime.metrics().num_blocking_threads(), 1);
    // These have the other two threads.
    let (second, free) = blocked((&runtime, &other));
    assert_eq!(runtime.block_on(runtime.spawn_blocking(|| 1)).unwrap(), 1);
    assert!(waiting.iter().all(|job| !job.is_finished()));
    release.open();
    for (n, job) in waiting.into_iter().enumerate() {
        assert_eq!(runtime.block_on(job).unwrap(), n);
    }
    free.open();
    for job in [first, second] {
        runtime.block_on(job).unwrap();
    }
}

#[test]
fn jobs_of_a_group_run_first_come_first_served() {
    let _alarm = alarm();
    let runtime = runtime(8);
    let batch = group(&runtime, "batch", 1);
    let (_, release) = blocked((&runtime, &batch));
    let order = Arc::new(Mutex::new(Vec::new()));
    let jobs: Vec<_> = (0..20)
        .map(|n| {
            let order = order.clone();
            job((&runtime, &batch), move || order.lock().unwrap().push(n))
        })
        .collect();
    release.open();
    for job in jobs {
        runtime.block_on(job).unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..20).collect::<Vec<_>>());
}

#[test]
fn an_aborted_job_makes_room() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (batch, other) = (group(&runtime, "batch", 1), group(&runtime, "other", 1));
    let (_, release) = blocked((&runtime, &other));
    let drops = Drops::new();
    let [queued, aborted, last] = [0; 3].map(|_| {
        let token = drops.token();
        job((&runtime, &batch), move || drop(token))
    });
    // The first one waits for the thread, the others for the first one.
    aborted.abort();
    assert!(runtime.block_on(aborted).unwrap_err().is_cancelled());
    queued.abort();
    assert!(runtime.block_on(queued).unwrap_err().is_cancelled());
    assert_eq!(drops.count(), 2);
    release.open();
    runtime.block_on(last).unwrap();
    assert_eq!(drops.count(), 3);
}

#[test]
fn aborts_lose_no_job_of_a_group() {
    let _alarm = alarm();
    const JOBS: usize = 5_000;
    let runtime = runtime(3);
    let groups = [group(&runtime, "one", 1), group(&runtime, "two", 2)];
    let (ran, drops) = (Arc::new(AtomicUsize::new(0)), Drops::new());
    let mut jobs = Vec::new();
    for n in 0..JOBS {
        let (count, token) = (ran.clone(), drops.token());
        let job = job((&runtime, &groups[n % 2]), move || {
            drop(token);
            count.fetch_add(1, SeqCst);
        });
        if n % 3 == 0 {
            job.abort();
        }
        jobs.push(job);
    }
    let ended = jobs.into_iter().map(|job| runtime.block_on(job));
    let cancelled = ended.filter(Result::is_err).count();
    assert_eq!(ran.load(SeqCst) + cancelled, JOBS);
    assert_eq!(drops.count(), JOBS);
    assert_eq!(runtime.metrics().blocking_queue_depth(), 0);
}

#[test]
fn a_runtime_that_ends_runs_the_jobs_that_wait() {
    let _alarm = alarm();
    type End = fn(Runtime);
    let ends: [End; 3] = [
        |runtime| drop(runtime),
        |runtime| assert!(runtime.shutdown_timeout(PATIENCE)),
        |runtime| assert!(runtime.shutdown_graceful(PATIENCE)),
    ];
    for end in ends {
        let runtime = runtime(4);
        let batch = group(&runtime, "batch", 1);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..50 {
            let count = ran.clone();
            drop(job((&runtime, &batch), move || count.fetch_add(1, SeqCst)));
        }
        end(runtime);
        assert_eq!(ran.load(SeqCst), 50);
    }
}

#[test]
fn jobs_that_wait_at_the_deadline_are_dropped_and_counted() {
    let _alarm = alarm();
    let runtime = runtime(4);
    let batch = group(&runtime, "batch", 1);
    let (first, release) = blocked((&runtime, &batch));
    let waiting: JoinHandle<()> = job((&runtime, &batch), || unreachable!("it is dropped"));
    let handle = runtime.handle().clone();
    assert!(!runtime.shutdown_timeout(Duration::from_millis(20)));
    assert_eq!(handle.metrics().blocking_dropped_count(), 1);
    let waited = futures_lite::future::block_on(waiting);
    assert!(waited.unwrap_err().is_cancelled());
    release.open();
    futures_lite::future::block_on(first).unwrap();
}

/// As a job that waits for a thread, one that waits for its group does not stop the clock: what it
/// waits for may wait for the clock.
#[test]
fn a_paused_clock_does_not_wait_for_a_job_that_waits_for_the_clock() {
    let _alarm = alarm();
    let mut builder = Builder::new();
    builder.worker_threads(1).start_paused(true);
    let runtime = builder.build().unwrap();
    let batch = group(&runtime, "batch", 1);
    let elapsed = runtime.block_on(batch.scope(async {
        let start = Instant::now();
        let first = spawn_blocking(move || {
            Handle::current().block_on(sleep(HOUR));
            // Out of `block_on`, the job and the one that waits for it stop the clock.
            thread::sleep(Duration::from_millis(20));
            start.elapsed()
        });
        let second = spawn_blocking(move || {
            thread::sleep(Duration::from_millis(20));
            start.elapsed()
        });
        sleep(2 * HOUR).await;
        [first.await.unwrap(), second.await.unwrap()]
    }));
    assert_eq!(elapsed, [HOUR; 2]);
}

#[test]
fn the_default_group_may_have_a_bound_without_other_groups() {
    let _alarm = alarm();
    let default = Group::builder("default").max_blocking_threads(1);
    let mut builder = Builder::new();
    let runtime = builder.worker_threads(1).default_group(default).build();
    let runtime = runtime.unwrap();
    let (begun, release) = (Gate::new(), Gate::new());
    let (begins, waits) = (begun.clone(), release.clone());
    let first = runtime.spawn_blocking(move || {
        begins.open();
        waits.wait();
    });
    begun.wait();
    let second = runtime.spawn_blocking(|| 2);
    assert_eq!(runtime.metrics().num_blocking_threads(), 1);
    assert_eq!(runtime.metrics().blocking_queue_depth(), 1);
    release.open();
    runtime.block_on(first).unwrap();
    assert_eq!(runtime.block_on(second).unwrap(), 2);
}

#[test]
fn a_bound_of_zero_is_an_error() {
    let runtime = runtime(1);
    let none = Group::builder("none").max_blocking_threads(0);
    let error = none.build_on(runtime.handle()).unwrap_err();
    assert_eq!(error, GroupError::ZeroBlockingThreads);
    assert!(error.to_string().contains("at least 1"), "{error}");
}
