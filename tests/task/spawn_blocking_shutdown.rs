//! A runtime that ends with blocking jobs runs those that it has accepted and waits for them, up to
//! its timeout. Jobs that have not started by then are dropped and counted. Nothing is left.

use std::{
    cell::RefCell,
    future,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm, blocking::block_a_thread, eventually, fds, process::alone,
    threads,
};
use tourbillon::{JoinHandle, Runtime, runtime::Builder, task::spawn_blocking, time::sleep};

fn runtime(max: usize) -> Runtime {
    Builder::new()
        .worker_threads(2)
        .max_blocking_threads(max)
        .build()
        .unwrap()
}

fn is_cancelled<T: std::fmt::Debug>(job: JoinHandle<T>) -> bool {
    futures_lite::future::block_on(job)
        .unwrap_err()
        .is_cancelled()
}

/// Returns a gate that opens when the shutdown of the runtime has begun and drops its tasks.
fn ending(runtime: &Runtime) -> Gate {
    struct Opens(Gate);
    impl Drop for Opens {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    let gate = Gate::new();
    let opens = Opens(gate.clone());
    runtime.spawn(async move {
        let _opens = opens;
        future::pending::<()>().await;
    });
    gate
}

#[test]
fn a_detached_job_runs_even_if_the_runtime_ends_at_once() {
    let _alarm = alarm();
    type End = fn(Runtime);
    let ends: [End; 4] = [
        |runtime| drop(runtime),
        |runtime| assert!(runtime.shutdown_timeout(PATIENCE)),
        |runtime| assert!(runtime.shutdown_graceful(PATIENCE)),
        |runtime| runtime.shutdown_background(),
    ];
    for (way, end) in ends.into_iter().enumerate() {
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 0..20 {
            let runtime = runtime(1);
            if round % 2 == 0 {
                // An idle thread takes the job; otherwise one is started for it.
                runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            }
            let (count, handle) = (ran.clone(), runtime.handle().clone());
            runtime.block_on(async {
                drop(spawn_blocking(move || {
                    thread::sleep(Duration::from_millis(2));
                    count.fetch_add(1, SeqCst);
                }));
            });
            end(runtime);
            if way < 3 {
                assert_eq!(ran.load(SeqCst), round + 1, "way {way}");
            }
            assert_eq!(handle.metrics().blocking_dropped_count(), 0);
        }
        eventually("all have run", || ran.load(SeqCst) == 20);
    }
}

#[test]
fn a_dropped_runtime_runs_queued_jobs_and_leaves_no_thread() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        for _ in 0..20 {
            let runtime = runtime(2);
            // This job leaves an idle thread behind.
            runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
            let (first, release) = block_a_thread(&runtime);
            let (second, other) = block_a_thread(&runtime);
            let queued: Vec<_> = (0..10)
                .map(|number| runtime.spawn_blocking(move || number))
                .collect();
            let ending = ending(&runtime);
            let opener = thread::spawn(move || {
                // At this point, the shutdown has dropped the tasks but ended no job.
                ending.wait();
                assert!(queued.iter().all(|job| !job.is_finished()));
                release.open();
                other.open();
                queued
            });
            drop(runtime);
            let queued = opener.join().unwrap();
            no_more_threads_than(before.0);
            for (number, job) in queued.into_iter().enumerate() {
                assert_eq!(futures_lite::future::block_on(job).unwrap(), number);
            }
            for job in [first, second] {
                assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
            }
            assert_eq!(fds(), before.1);
        }
    });
}

/// Waits until the process has `before` threads. The kernel lists a thread for up to some ms after
/// it was joined, so this does not prove that threads are joined. The test of thread-local
/// destructors proves that.
#[track_caller]
fn no_more_threads_than(before: usize) {
    eventually("no thread is left", || threads() == before);
}

#[test]
fn a_dropped_runtime_has_run_thread_local_destructors() {
    let _alarm = alarm();
    struct Slow(Drops, Duration);
    impl Drop for Slow {
        fn drop(&mut self) {
            // A shutdown that does not join the thread returns during this sleep.
            thread::sleep(self.1);
            drop(self.0.token());
        }
    }
    thread_local!(static SLOW: RefCell<Option<Slow>> = const { RefCell::new(None) });
    // The shutdown ends the idle threads, or their keep-alive ends them before it.
    for keep_alive in [HOUR, Duration::ZERO] {
        let drops = Drops::new();
        let runtime = Builder::new()
            .worker_threads(1)
            .thread_keep_alive(keep_alive)
            .build()
            .unwrap();
        let mut gates = Vec::new();
        // The first thread takes longest, so a shutdown that joins only the last thread returns
        // too early.
        for delay in [60, 30, 1].map(Duration::from_millis) {
            let (started, release) = (Gate::new(), Gate::new());
            let (begun, wait) = (started.clone(), release.clone());
            let slow = Slow(drops.clone(), delay);
            runtime.spawn_blocking(move || {
                SLOW.set(Some(slow));
                begun.open();
                wait.wait();
            });
            started.wait();
            gates.push(release);
        }
        for (ended, release) in (1..).zip(gates) {
            release.open();
            if keep_alive.is_zero() {
                eventually("it has begun to end", || {
                    runtime.metrics().num_blocking_threads() == 3 - ended
                });
            }
        }
        drop(runtime);
        assert_eq!(drops.count(), 3);
    }
}

#[test]
fn idle_threads_do_not_delay_shutdown() {
    alone(|| {
        let before = threads();
        let runtime = Builder::new()
            .worker_threads(1)
            .thread_keep_alive(HOUR)
            .build()
            .unwrap();
        let (job, release) = block_a_thread(&runtime);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        release.open();
        runtime.block_on(job).unwrap();
        assert!(runtime.shutdown_timeout(PATIENCE));
        no_more_threads_than(before);
    });
}

#[test]
fn shutdown_timeout_gives_up_on_a_blocked_job() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(1);
        let (job, release) = block_a_thread(&runtime);
        let drops = Drops::new();
        let [queued, detached] = [(); 2].map(|()| {
            let token = drops.token();
            runtime.spawn_blocking(move || {
                let _token = token;
                unreachable!("it is dropped")
            })
        });
        drop::<JoinHandle<()>>(detached);
        let queued: JoinHandle<()> = queued;
        let task = runtime.spawn(future::pending::<()>());
        let handle = runtime.handle().clone();
        let start = Instant::now();
        assert!(!runtime.shutdown_timeout(Duration::from_millis(30)));
        assert!(start.elapsed() >= Duration::from_millis(30));
        assert!(start.elapsed() < PATIENCE / 2, "it waits for what is stuck");
        // Everything except the stuck job has ended.
        assert!(is_cancelled(queued) && is_cancelled(task));
        assert_eq!(drops.count(), 2);
        assert_eq!(handle.metrics().blocking_dropped_count(), 2);
        assert_eq!(handle.metrics().blocking_queue_depth(), 0);
        // A refused job does not count as accepted.
        assert!(is_cancelled(handle.spawn_blocking(|| ())));
        assert_eq!(handle.metrics().blocking_dropped_count(), 2);
        assert!(!job.is_finished());
        release.open();
        assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
        drop(handle);
        eventually("all is gone", || (threads(), fds()) == before);
    });
}

#[test]
fn jobs_not_started_at_the_deadline_never_start() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (job, release) = block_a_thread(&runtime);
    let (begun, go_on) = (Gate::new(), Gate::new());
    let (begins, waits) = (begun.clone(), go_on.clone());
    runtime.spawn(async move {
        begins.open();
        waits.wait();
    });
    begun.wait();
    let queued = runtime.spawn_blocking(|| unreachable!("it is dropped"));
    let queued: JoinHandle<()> = queued;
    let handle = runtime.handle().clone();
    assert!(!runtime.shutdown_timeout(Duration::from_millis(20)));
    assert_eq!(handle.metrics().blocking_dropped_count(), 1);
    let late: JoinHandle<()> = handle.spawn_blocking(|| unreachable!("it is refused"));
    assert_eq!(handle.metrics().blocking_dropped_count(), 1);
    release.open();
    assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
    // A worker drops the queued job: at the latest the last worker that ends.
    go_on.open();
    assert!(is_cancelled(queued) && is_cancelled(late));
}

#[test]
fn jobs_spawned_during_shutdown_are_refused() {
    let _alarm = alarm();
    /// Spawns a job when the runtime drops the task that holds this value.
    struct Spawns(mpsc::Sender<JoinHandle<()>>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            self.0.send(spawn_blocking(|| unreachable!())).unwrap();
        }
    }
    let runtime = runtime(2);
    let ending = ending(&runtime);
    let (sender, refused) = mpsc::channel();
    let spawns = Spawns(sender.clone());
    runtime.spawn(async move {
        let _spawns = spawns;
        future::pending::<()>().await;
    });
    let job = runtime.spawn_blocking(move || {
        ending.wait();
        sender.send(spawn_blocking(|| unreachable!())).unwrap();
    });
    drop(runtime);
    futures_lite::future::block_on(job).unwrap();
    let refused: Vec<_> = refused.iter().collect();
    assert_eq!(refused.len(), 2);
    assert!(refused.into_iter().all(is_cancelled));
}

#[test]
fn shutdown_background_returns_at_once_and_runs_accepted_jobs() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(1);
        let (job, release) = block_a_thread(&runtime);
        let queued = runtime.spawn_blocking(|| 2);
        let ending = ending(&runtime);
        // This call would hang if it waited for the job.
        runtime.shutdown_background();
        ending.wait();
        assert!(!job.is_finished() && !queued.is_finished());
        release.open();
        assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
        assert_eq!(futures_lite::future::block_on(queued).unwrap(), 2);
        eventually("all is gone", || (threads(), fds()) == before);
    });
}

#[test]
fn a_graceful_shutdown_runs_queued_jobs() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let ran = ran.clone();
        runtime.spawn_blocking(move || {
            thread::sleep(Duration::from_micros(100));
            // The shutdown also waits for the tasks and jobs that a job spawns.
            tourbillon::spawn(async move {
                sleep(Duration::from_millis(1)).await;
                spawn_blocking(move || ran.fetch_add(1, SeqCst));
            });
        });
    }
    assert!(runtime.shutdown_graceful(PATIENCE));
    assert_eq!(ran.load(SeqCst), 50);
}

#[test]
fn a_graceful_shutdown_gives_up_on_a_blocked_job() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (job, release) = block_a_thread(&runtime);
    let queued = runtime.spawn_blocking(|| ());
    assert!(!runtime.shutdown_graceful(Duration::from_millis(20)));
    assert!(is_cancelled(queued));
    release.open();
    assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
}

#[test]
fn a_job_that_waits_for_a_task_or_timer_does_not_delay_shutdown() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let started = Gate::new();
    let begun = started.clone();
    let on_task = runtime.spawn_blocking(move || {
        begun.open();
        let task = handle.spawn(future::pending::<()>());
        handle.block_on(task).unwrap_err().is_cancelled()
    });
    let handle = runtime.handle().clone();
    let on_timer = runtime.spawn_blocking(move || handle.block_on(sleep(HOUR)));
    started.wait();
    drop(runtime);
    assert!(futures_lite::future::block_on(on_task).unwrap());
    // This job may not have begun before the shutdown.
    let _ = futures_lite::future::block_on(on_timer);
}

#[test]
fn a_job_can_shut_down_its_runtime() {
    alone(|| {
        drop(runtime(1));
        let before = (threads(), fds());
        type End = fn(Runtime);
        let ends: [End; 4] = [
            |runtime| runtime.shutdown_background(),
            |runtime| drop(runtime),
            // The job cannot wait for its own end, so these calls return `false`.
            |runtime| assert!(!runtime.shutdown_timeout(HOUR)),
            |runtime| assert!(!runtime.shutdown_graceful(HOUR)),
        ];
        for end in ends {
            let runtime = runtime(2);
            let handle = runtime.handle().clone();
            let task = runtime.spawn(future::pending::<()>());
            let (other, release) = block_a_thread(&runtime);
            let (queue, queued) = mpsc::channel();
            let job = handle.spawn_blocking(move || {
                // Both blocking threads are busy, so this job is queued.
                queue.send(runtime.spawn_blocking(|| 2)).unwrap();
                end(runtime);
            });
            drop(handle);
            futures_lite::future::block_on(job).unwrap();
            assert!(is_cancelled(task));
            let queued = queued.recv().unwrap();
            assert_eq!(futures_lite::future::block_on(queued).unwrap(), 2);
            release.open();
            assert_eq!(futures_lite::future::block_on(other).unwrap(), 1);
            eventually("all is gone", || (threads(), fds()) == before);
        }
    });
}

#[test]
fn jobs_spawned_before_shutdown_run_and_later_ones_are_dropped() {
    alone(|| {
        drop(runtime(1));
        let before = threads();
        for _ in 0..50 {
            let runtime = runtime(2);
            let handle = runtime.handle().clone();
            let (ran, drops) = (Arc::new(AtomicUsize::new(0)), Drops::new());
            let (count, tokens) = (ran.clone(), drops.clone());
            let ends = Arc::new(AtomicBool::new(false));
            let ended = ends.clone();
            let begun = Gate::new();
            let begins = begun.clone();
            let spawner = thread::spawn(move || {
                let spawn = |number| {
                    let (count, token) = (count.clone(), tokens.token());
                    let job = handle.spawn_blocking(move || {
                        drop(token);
                        count.fetch_add(1, SeqCst);
                    });
                    if number == 20 {
                        begins.open();
                    }
                    (job, !ended.load(SeqCst))
                };
                let jobs: Vec<_> = (0..200).map(spawn).collect();
                let mut cancelled = 0;
                for (job, was_before) in jobs {
                    if futures_lite::future::block_on(job).is_err() {
                        assert!(!was_before, "it was accepted before the end began");
                        cancelled += 1;
                    }
                }
                cancelled
            });
            begun.wait();
            ends.store(true, SeqCst);
            drop(runtime);
            let cancelled = spawner.join().unwrap();
            assert_eq!(ran.load(SeqCst) + cancelled, 200);
            assert_eq!(drops.count(), 200);
            no_more_threads_than(before);
        }
    });
}
