//! `time::advance` returns when all that came due has run, and the clock shows the new time.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};

use crate::common::{HOUR, alarm, message, paused::paused};
use tourbillon::{
    task::yield_now,
    time::{self, Instant, advance, interval, pause, resume, sleep},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn exactly_the_due_timers_have_run_when_advance_returns() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = paused(workers);
        let ran = Arc::new(AtomicUsize::new(0));
        for i in 1..=100_u32 {
            let ran = ran.clone();
            runtime
                .handle()
                .after(i * MS, move || _ = ran.fetch_add(1, Ordering::SeqCst));
        }
        for i in 1..=20 {
            runtime.block_on(async {
                let before = Instant::now();
                advance(5 * MS).await;
                assert_eq!(before.elapsed(), 5 * MS);
            });
            assert_eq!(ran.load(Ordering::SeqCst), 5 * i);
        }
    }
}

#[test]
fn woken_and_spawned_tasks_have_run_when_advance_returns() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = paused(workers);
        for round in 0..50 {
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..20 {
                let ran = ran.clone();
                runtime.spawn(async move {
                    sleep(HOUR).await;
                    let children: Vec<_> = (0..5)
                        .map(|_| {
                            let ran = ran.clone();
                            tourbillon::spawn(async move {
                                yield_now().await;
                                tourbillon::after(Duration::ZERO, move || {
                                    ran.fetch_add(1, Ordering::SeqCst);
                                });
                            })
                        })
                        .collect();
                    for child in children {
                        child.await.unwrap();
                    }
                });
            }
            // The tasks that were spawned before arm their timers before the clock jumps.
            runtime.block_on(advance(HOUR));
            assert_eq!(ran.load(Ordering::SeqCst), 100, "round {round}");
        }
    }
}

#[test]
fn an_advance_is_one_jump() {
    let _alarm = alarm();
    let runtime = paused(2);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let start = runtime.block_on(async { Instant::now() });
    for (name, delay) in [("late", 2 * HOUR), ("soon", HOUR)] {
        let seen = seen.clone();
        runtime.handle().after(delay, move || {
            seen.lock().unwrap().push((name, start.elapsed()))
        });
    }
    let recurring = {
        let seen = seen.clone();
        runtime.handle().every(HOUR, move || {
            seen.lock().unwrap().push(("every", start.elapsed()))
        })
    };
    let ticks = runtime.spawn(async move {
        let mut interval = interval(HOUR);
        [
            interval.tick().await,
            interval.tick().await,
            interval.tick().await,
        ]
        .map(|due| due - start)
    });
    runtime.block_on(advance(3 * HOUR + MS));
    let mut seen = std::mem::take(&mut *seen.lock().unwrap());
    seen.sort_unstable();
    let at = 3 * HOUR + MS;
    assert_eq!(seen, [("every", at), ("late", at), ("soon", at)]);
    assert_eq!(recurring.deadline(), Some(start + 4 * HOUR));
    assert_eq!(
        runtime.block_on(ticks).unwrap(),
        [Duration::ZERO, HOUR, 4 * HOUR]
    );
}

#[test]
fn an_advance_of_zero_runs_ready_work() {
    let _alarm = alarm();
    let runtime = paused(2);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let ran = ran.clone();
        runtime.spawn(async move {
            yield_now().await;
            ran.fetch_add(1, Ordering::SeqCst);
        });
    }
    runtime.block_on(async {
        let start = Instant::now();
        advance(Duration::ZERO).await;
        assert_eq!(start.elapsed(), Duration::ZERO);
    });
    assert_eq!(ran.load(Ordering::SeqCst), 10);
}

#[test]
fn a_task_can_advance_with_and_without_block_on() {
    let _alarm = alarm();
    let runtime = paused(2);
    let task = || async {
        let start = Instant::now();
        let timer = tourbillon::after(HOUR, || ());
        advance(HOUR).await;
        assert!(!timer.is_pending());
        start.elapsed()
    };
    assert_eq!(runtime.block_on(runtime.spawn(task())).unwrap(), HOUR);
    let task = runtime.spawn(task());
    crate::common::eventually("it ends by itself", || task.is_finished());
    assert_eq!(runtime.block_on(task).unwrap(), HOUR);
}

#[test]
fn advances_run_one_after_another() {
    let _alarm = alarm();
    for workers in [1, 4] {
        let runtime = paused(workers);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let writes = shown.clone();
        runtime.block_on(async move {
            let start = Instant::now();
            for i in 1..=10_u32 {
                let writes = writes.clone();
                tourbillon::spawn(async move {
                    advance(i * MS).await;
                    writes.lock().unwrap().push(start.elapsed());
                });
            }
            // The paused clock advances by itself when no `advance` waits.
            sleep(HOUR).await;
            assert_eq!(start.elapsed(), HOUR);
        });
        let shown = shown.lock().unwrap();
        assert!(
            shown.windows(2).all(|pair| pair[0] < pair[1]),
            "each has seen its own jump alone: {shown:?}"
        );
        assert_eq!(shown.last(), Some(&(55 * MS)));
    }
}

#[test]
fn an_advance_waits_for_a_callback_that_blocks() {
    let _alarm = alarm();
    let runtime = paused(2);
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = ran.clone();
    runtime.handle().after(MS, move || {
        thread::sleep(20 * MS);
        counter.fetch_add(1, Ordering::SeqCst);
    });
    runtime.block_on(advance(MS));
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[test]
fn an_advance_dropped_before_its_jump_does_nothing() {
    let _alarm = alarm();
    let runtime = paused(2);
    runtime.block_on(async {
        let start = Instant::now();
        {
            let mut dropped = pin!(advance(HOUR));
            let mut cx = Context::from_waker(Waker::noop());
            assert_eq!(dropped.as_mut().poll(&mut cx), Poll::Pending);
        }
        sleep(MS).await;
        assert_eq!(start.elapsed(), MS);
    });
}

#[test]
fn a_foreign_executor_can_poll_an_advance() {
    let _alarm = alarm();
    let runtime = paused(2);
    let _entered = runtime.enter();
    let start = Instant::now();
    futures_lite::future::block_on(advance(HOUR));
    assert_eq!(start.elapsed(), HOUR);
}

#[test]
fn advancing_a_running_clock_panics() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(1);
    let panic = catch_unwind(AssertUnwindSafe(|| runtime.block_on(advance(MS)))).unwrap_err();
    assert!(message(&*panic).contains("not paused"));
    runtime.pause_clock();
    runtime.block_on(advance(MS));
    runtime.resume_clock();
    let task = runtime.spawn(advance(MS));
    assert!(runtime.block_on(task).unwrap_err().is_panic());
    // Outside of any runtime, the calls panic, too.
    let panic = catch_unwind(|| futures_lite::future::block_on(advance(MS))).unwrap_err();
    assert!(message(&*panic).contains("in no Tourbillon runtime"));
    assert!(catch_unwind(time::pause).is_err());
    assert!(catch_unwind(time::resume).is_err());
}

#[test]
fn an_advance_ends_with_its_runtime() {
    let _alarm = alarm();
    let runtime = paused(2);
    let handle = runtime.handle().clone();
    // The runtime is not quiet while this callback runs.
    let gate = crate::common::Gate::new();
    let began = crate::common::Gate::new();
    runtime.handle().after(Duration::ZERO, {
        let (gate, began) = (gate.clone(), began.clone());
        move || {
            began.open();
            gate.wait();
        }
    });
    began.wait();
    let waits = thread::spawn(move || {
        handle.block_on(advance(HOUR));
        // A call on a runtime that has ended returns, too.
        handle.block_on(advance(HOUR));
    });
    thread::sleep(5 * MS);
    runtime.shutdown_background();
    gate.open();
    waits.join().unwrap();
}

#[test]
fn the_clock_stops_at_its_maximum() {
    let _alarm = alarm();
    let runtime = paused(2);
    let never = runtime
        .handle()
        .after(Duration::MAX, || unreachable!("never"));
    runtime.block_on(async {
        let start = Instant::now();
        advance(Duration::MAX).await;
        let end = start.elapsed();
        assert_eq!(end.as_secs() / (365 * 86_400), 73);
        advance(HOUR).await;
        assert_eq!(start.elapsed(), end);
        // Nor does it go on when it runs.
        resume();
        pause();
        advance(Duration::ZERO).await;
        assert_eq!(start.elapsed(), end);
    });
    assert!(never.is_pending());
}
