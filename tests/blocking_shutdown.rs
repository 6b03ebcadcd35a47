//! The end of a runtime with jobs on its blocking threads: what has not begun is dropped, what runs is
//! waited for, for as long as may be, and nothing is left.

mod common;

use std::{
    cell::RefCell,
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, fds, isolated, threads};
use tourbillon::{JoinHandle, Runtime, runtime::Builder, task::spawn_blocking, time::sleep};

fn runtime(max: usize) -> Runtime {
    Builder::new()
        .worker_threads(2)
        .max_blocking_threads(max)
        .build()
        .unwrap()
}

/// A job that runs until the gate is opened.
fn stick(runtime: &Runtime) -> (JoinHandle<u8>, Gate) {
    let (started, release) = (Gate::new(), Gate::new());
    let (begun, wait) = (started.clone(), release.clone());
    let job = runtime.spawn_blocking(move || {
        begun.open();
        wait.wait();
        1
    });
    started.wait();
    (job, release)
}

fn is_cancelled<T: std::fmt::Debug>(job: JoinHandle<T>) -> bool {
    futures_lite::future::block_on(job)
        .unwrap_err()
        .is_cancelled()
}

#[test]
fn a_dropped_runtime_waits_for_what_runs_drops_what_is_queued_and_leaves_no_thread() {
    isolated(
        "a_dropped_runtime_waits_for_what_runs_drops_what_is_queued_and_leaves_no_thread",
        || {
            drop(runtime(1));
            let before = (threads(), fds());
            for _ in 0..20 {
                let runtime = runtime(2);
                // Idle threads, too.
                runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
                let (first, release) = stick(&runtime);
                let (second, other) = stick(&runtime);
                let drops = Drops::new();
                let queued: Vec<_> = (0..10)
                    .map(|_| {
                        let token = drops.token();
                        runtime.spawn_blocking(move || {
                            let _token = token;
                            unreachable!("it is dropped")
                        })
                    })
                    .collect();
                let opener = thread::spawn(move || {
                    // They end while what runs keeps the threads.
                    for job in queued {
                        let job: JoinHandle<()> = job;
                        assert!(is_cancelled(job));
                    }
                    release.open();
                    other.open();
                });
                drop(runtime);
                assert_eq!(drops.count(), 10);
                opener.join().unwrap();
                no_more_threads_than(before.0);
                for job in [first, second] {
                    assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
                }
                assert_eq!(fds(), before.1);
            }
        },
    );
}

/// The kernel lists a thread for up to some ms after it was joined, so this is not exact. That threads
/// are joined is: see the test of thread-locals.
#[track_caller]
fn no_more_threads_than(before: usize) {
    eventually("no thread is left", || threads() == before);
}

#[test]
fn a_dropped_runtime_has_joined_its_threads_to_their_thread_locals() {
    let _alarm = alarm();
    struct Slow(Drops, Duration);
    impl Drop for Slow {
        fn drop(&mut self) {
            // Who does not join the thread is past it by then.
            thread::sleep(self.1);
            drop(self.0.token());
        }
    }
    thread_local!(static SLOW: RefCell<Option<Slow>> = const { RefCell::new(None) });
    // Ended by the shutdown, and before it.
    for keep_alive in [HOUR, Duration::ZERO] {
        let drops = Drops::new();
        let runtime = Builder::new()
            .worker_threads(1)
            .thread_keep_alive(keep_alive)
            .build()
            .unwrap();
        let mut gates = Vec::new();
        // The first takes longest: who joins the last alone is past the first by then.
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
fn idle_threads_do_not_hold_up_the_end() {
    isolated("idle_threads_do_not_hold_up_the_end", || {
        let before = threads();
        let runtime = Builder::new()
            .worker_threads(1)
            .thread_keep_alive(HOUR)
            .build()
            .unwrap();
        let (job, release) = stick(&runtime);
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        release.open();
        runtime.block_on(job).unwrap();
        assert!(runtime.shutdown_timeout(PATIENCE));
        no_more_threads_than(before);
    });
}

#[test]
fn shutdown_gives_up_on_a_stuck_job_in_time_and_frees_all_later() {
    isolated(
        "shutdown_gives_up_on_a_stuck_job_in_time_and_frees_all_later",
        || {
            drop(runtime(1));
            let before = (threads(), fds());
            let runtime = runtime(1);
            let (job, release) = stick(&runtime);
            let queued = runtime.spawn_blocking(|| ());
            let task = runtime.spawn(future::pending::<()>());
            let handle = runtime.handle().clone();
            let start = Instant::now();
            assert!(!runtime.shutdown_timeout(Duration::from_millis(30)));
            assert!(start.elapsed() >= Duration::from_millis(30));
            assert!(start.elapsed() < PATIENCE / 2, "it waits for what is stuck");
            // All but what is stuck has ended.
            assert!(is_cancelled(queued) && is_cancelled(task));
            assert!(is_cancelled(handle.spawn_blocking(|| ())));
            assert!(!job.is_finished());
            release.open();
            assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
            drop(handle);
            eventually("all is gone", || (threads(), fds()) == before);
        },
    );
}

#[test]
fn in_the_background_nothing_is_waited_for() {
    isolated("in_the_background_nothing_is_waited_for", || {
        drop(runtime(1));
        let before = (threads(), fds());
        let runtime = runtime(1);
        let (job, release) = stick(&runtime);
        let queued = runtime.spawn_blocking(|| ());
        // Would hang if it waited.
        runtime.shutdown_background();
        assert!(is_cancelled(queued));
        assert!(!job.is_finished());
        release.open();
        assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
        eventually("all is gone", || (threads(), fds()) == before);
    });
}

#[test]
fn a_graceful_end_lets_all_run_that_is_queued() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..50 {
        let ran = ran.clone();
        runtime.spawn_blocking(move || {
            thread::sleep(Duration::from_micros(100));
            // What a job spawns is waited for, too.
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
fn a_graceful_end_gives_up_on_a_stuck_job() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (job, release) = stick(&runtime);
    let queued = runtime.spawn_blocking(|| ());
    assert!(!runtime.shutdown_graceful(Duration::from_millis(20)));
    assert!(is_cancelled(queued));
    release.open();
    assert_eq!(futures_lite::future::block_on(job).unwrap(), 1);
}

#[test]
fn a_job_that_waits_for_a_task_or_a_timer_does_not_hold_up_the_end() {
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
    // It may not have begun.
    let _ = futures_lite::future::block_on(on_timer);
}

#[test]
fn a_job_may_shut_down_its_runtime() {
    isolated("a_job_may_shut_down_its_runtime", || {
        drop(runtime(1));
        let before = (threads(), fds());
        type End = fn(Runtime);
        let ends: [End; 4] = [
            |runtime| runtime.shutdown_background(),
            |runtime| drop(runtime),
            // It cannot wait for itself, and says that it did not.
            |runtime| assert!(!runtime.shutdown_timeout(HOUR)),
            |runtime| assert!(!runtime.shutdown_graceful(HOUR)),
        ];
        for end in ends {
            let runtime = runtime(2);
            let handle = runtime.handle().clone();
            let task = runtime.spawn(future::pending::<()>());
            let job = handle.spawn_blocking(move || end(runtime));
            drop(handle);
            futures_lite::future::block_on(job).unwrap();
            assert!(is_cancelled(task));
            eventually("all is gone", || (threads(), fds()) == before);
        }
    });
}

#[test]
fn jobs_that_are_spawned_while_the_runtime_ends_run_or_are_dropped() {
    isolated(
        "jobs_that_are_spawned_while_the_runtime_ends_run_or_are_dropped",
        || {
            drop(runtime(1));
            let before = threads();
            for _ in 0..50 {
                let runtime = runtime(2);
                let handle = runtime.handle().clone();
                let (ran, drops) = (Arc::new(AtomicUsize::new(0)), Drops::new());
                let (count, tokens) = (ran.clone(), drops.clone());
                let spawner = thread::spawn(move || {
                    let spawn = |_| {
                        let (count, token) = (count.clone(), tokens.token());
                        handle.spawn_blocking(move || {
                            drop(token);
                            count.fetch_add(1, SeqCst);
                        })
                    };
                    let jobs: Vec<_> = (0..200).map(spawn).collect();
                    let ends = jobs.into_iter().map(futures_lite::future::block_on);
                    ends.filter(Result::is_err).count()
                });
                drop(runtime);
                let cancelled = spawner.join().unwrap();
                assert_eq!(ran.load(SeqCst) + cancelled, 200);
                assert_eq!(drops.count(), 200);
                no_more_threads_than(before);
            }
        },
    );
}
