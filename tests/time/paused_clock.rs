//! A paused clock advances when nothing else is left to do, and not before.

use std::{
    future,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{HOUR, alarm, event::Event, paused::paused};
use tourbillon::time::{self, DelayQueue, Instant, interval, sleep, sleep_until, timeout};

const YEAR: Duration = Duration::from_secs(365 * 86_400);
const MS: Duration = Duration::from_millis(1);

#[test]
fn a_sleep_of_a_year_is_exact_and_takes_no_time() {
    let _alarm = alarm();
    for workers in 1..=4 {
        paused(workers).block_on(async {
            let start = Instant::now();
            sleep(YEAR).await;
            assert_eq!(start.elapsed(), YEAR);
            // The second sleep is on a worker.
            tourbillon::spawn(async move {
                sleep(YEAR).await;
                assert_eq!(Instant::now(), start + 2 * YEAR);
            })
            .await
            .unwrap();
            assert_eq!(start.elapsed(), 2 * YEAR);
        });
    }
}

#[test]
fn the_clock_jumps_from_deadline_to_deadline() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = paused(workers);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let start = runtime.block_on(async { Instant::now() });
        for i in 0..200_u32 {
            let (seen, delay) = (seen.clone(), (i * 71 % 200 + 1) * MS);
            if i % 2 == 0 {
                runtime.handle().after(delay, move || {
                    seen.lock().unwrap().push((delay, Instant::now()));
                });
            } else {
                runtime.spawn(async move {
                    sleep_until(start + delay).await;
                    seen.lock().unwrap().push((delay, Instant::now()));
                });
            }
        }
        runtime.block_on(sleep(HOUR));
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), 200);
        for (i, (delay, at)) in (1..).zip(&*seen) {
            assert_eq!(*delay, i * MS, "in order");
            assert_eq!(*at, start + *delay, "at its time, exactly");
        }
    }
}

#[test]
fn recurring_callbacks_and_intervals_run_on_their_grid() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = paused(workers);
        let start = runtime.block_on(async { Instant::now() });
        let runs = Arc::new(Mutex::new(Vec::new()));
        let timer = {
            let runs = runs.clone();
            runtime
                .handle()
                .every(7 * MS, move || runs.lock().unwrap().push(start.elapsed()))
        };
        let ticks = runtime.spawn(async move {
            let mut interval = interval(11 * MS);
            let mut ticks = Vec::new();
            for _ in 0..50 {
                let due = interval.tick().await;
                assert_eq!(due, Instant::now());
                ticks.push(due - start);
            }
            ticks
        });
        let ticks = runtime.block_on(ticks).unwrap();
        assert_eq!(ticks, (0..50).map(|i| i * 11 * MS).collect::<Vec<_>>());
        timer.cancel();
        let runs = runs.lock().unwrap();
        // 49 × 11 ms equals 77 × 7 ms. In this tie, either may run first.
        assert!(matches!(runs.len(), 76 | 77), "{}", runs.len());
        for (i, at) in (1..).zip(&*runs) {
            assert_eq!(*at, i * 7 * MS);
        }
    }
}

#[test]
fn a_timeout_elapses_exactly_at_its_deadline() {
    let _alarm = alarm();
    let runtime = paused(2);
    runtime.block_on(async {
        let start = Instant::now();
        assert!(timeout(HOUR, future::pending::<()>()).await.is_err());
        assert_eq!(start.elapsed(), HOUR);
        assert_eq!(timeout(HOUR, sleep(HOUR - MS)).await, Ok(()));
        assert_eq!(start.elapsed(), 2 * HOUR - MS);
    });
}

#[test]
fn a_delay_queue_returns_values_at_their_deadlines() {
    let _alarm = alarm();
    paused(2).block_on(async {
        let start = Instant::now();
        let mut queue = DelayQueue::new();
        let moved = queue.insert("moved", MS);
        queue.insert("hour", HOUR);
        queue.insert("soon", 2 * MS);
        queue.reset(&moved, 2 * HOUR);
        let mut seen = Vec::new();
        while let Some(expired) = queue.expired().await {
            assert_eq!(expired.deadline(), Instant::now());
            seen.push((expired.into_inner(), start.elapsed()));
        }
        assert_eq!(
            seen,
            [("soon", 2 * MS), ("hour", HOUR), ("moved", 2 * HOUR)]
        );
    });
}

#[test]
fn timers_are_refreshed_and_moved_by_the_paused_clock() {
    let _alarm = alarm();
    let runtime = paused(2);
    let (sender, receiver) = mpsc::channel();
    let start = runtime.block_on(async { Instant::now() });
    let fires = |name: &'static str| {
        let sender = sender.clone();
        move || sender.send((name, start.elapsed())).unwrap()
    };
    let refreshed = runtime.handle().after(HOUR, fires("refreshed"));
    let moved = runtime.handle().after(HOUR, fires("moved"));
    let at = runtime.handle().at(start + 3 * HOUR, fires("at"));
    let never = runtime.handle().after(HOUR, fires("never"));
    runtime.block_on(sleep(HOUR / 2));
    refreshed.refresh();
    moved.reset_after(2 * HOUR);
    never.reset_after(Duration::MAX);
    assert_eq!(refreshed.deadline(), Some(start + HOUR + HOUR / 2));
    runtime.block_on(sleep(4 * HOUR));
    assert_eq!(
        receiver.try_iter().collect::<Vec<_>>(),
        [
            ("refreshed", HOUR + HOUR / 2),
            ("moved", 2 * HOUR + HOUR / 2),
            ("at", 3 * HOUR)
        ]
    );
    assert!(!at.is_pending() && never.is_pending());
}

#[test]
fn timers_armed_outside_wait_for_a_block_on() {
    let _alarm = alarm();
    let runtime = paused(2);
    let fired = Arc::new(AtomicUsize::new(0));
    let timers: Vec<_> = (1..=20)
        .map(|i| {
            let fired = fired.clone();
            runtime
                .handle()
                .after(i * MS, move || _ = fired.fetch_add(1, Ordering::SeqCst))
        })
        .collect();
    // If the clock ran, some timers would fire in this time. If the time is too short for that,
    // the test proves nothing, but it does not fail.
    thread::sleep(50 * MS);
    assert_eq!(fired.load(Ordering::SeqCst), 0);
    assert!(timers.iter().all(|timer| timer.is_pending()));
    runtime.block_on(sleep(10 * MS + MS / 2));
    assert_eq!(fired.load(Ordering::SeqCst), 10);
    // A timer that is due immediately needs no clock.
    crate::common::on_worker(&runtime, || ());
    assert_eq!(fired.load(Ordering::SeqCst), 10);
}

#[test]
fn a_callback_that_blocks_keeps_the_clock_still() {
    let _alarm = alarm();
    let runtime = paused(2);
    let shown = Arc::new(Mutex::new(Vec::new()));
    {
        let shown = shown.clone();
        runtime.handle().after(MS, move || {
            for _ in 0..20 {
                shown.lock().unwrap().push(Instant::now());
                thread::sleep(2 * MS);
            }
        });
    }
    runtime.block_on(async {
        let start = Instant::now();
        sleep(2 * MS).await;
        assert_eq!(start.elapsed(), 2 * MS);
        let shown = shown.lock().unwrap();
        assert_eq!(shown.len(), 20, "it ended first");
        assert!(shown.iter().all(|&at| at == start + MS));
    });
}

#[test]
fn a_running_block_on_keeps_the_clock_still() {
    let _alarm = alarm();
    let runtime = Arc::new(paused(2));
    let (began, begins) = mpsc::channel();
    let sleeper = {
        let runtime = runtime.clone();
        thread::spawn(move || {
            runtime.block_on(async {
                let start = Instant::now();
                began.send(()).unwrap();
                sleep(HOUR).await;
                start.elapsed()
            })
        })
    };
    runtime.block_on(async {
        let start = Instant::now();
        // This blocks the thread inside `block_on`, and the clock must stand still.
        begins.recv().unwrap();
        for _ in 0..20 {
            thread::sleep(MS);
            assert_eq!(start.elapsed(), Duration::ZERO);
        }
    });
    // This thread has left `block_on`, so the clock may go on.
    assert_eq!(sleeper.join().unwrap(), HOUR);
}

#[test]
fn a_finished_block_on_lets_the_clock_advance() {
    let _alarm = alarm();
    for _ in 0..200 {
        let runtime = Arc::new(paused(1));
        let (began, begins) = mpsc::channel();
        let sleeper = {
            let runtime = runtime.clone();
            thread::spawn(move || {
                runtime.block_on(async {
                    began.send(()).unwrap();
                    sleep(HOUR).await;
                });
            })
        };
        runtime.block_on(async { begins.recv().unwrap() });
        sleeper.join().unwrap();
    }
}

#[test]
fn workers_sleep_without_a_timer() {
    let _alarm = alarm();
    let runtime = paused(2);
    let start = runtime.block_on(async { Instant::now() });
    let cancelled = runtime
        .handle()
        .after(HOUR, || unreachable!("it was cancelled"));
    let moved = runtime
        .handle()
        .after(HOUR, || unreachable!("it was moved to never"));
    cancelled.cancel();
    moved.reset_after(Duration::MAX);
    let event = Event::default();
    let set = event.clone();
    let (parks, after) = runtime.block_on(async {
        thread::spawn(move || {
            thread::sleep(100 * MS);
            set.set();
        });
        let parks = runtime.metrics().total().parks();
        event.wait().await;
        (parks, runtime.metrics().total().parks())
    });
    assert!(after - parks < 20, "{}", after - parks);
    let shown = runtime.block_on(async { Instant::now() });
    assert_eq!(shown, start, "there was nothing to go to");
}

#[test]
fn a_timer_armed_outside_after_a_moved_one_is_waited_for() {
    let _alarm = alarm();
    for _ in 0..50 {
        let runtime = paused(1);
        // The worker sleeps until this deadline. The reset does not wake it.
        let moved = runtime.handle().after(HOUR, || ());
        crate::common::on_worker(&runtime, || ());
        moved.reset_after(Duration::MAX);
        let event = Event::default();
        let set = event.clone();
        let handle = runtime.handle().clone();
        let outside = thread::spawn(move || {
            thread::sleep(MS);
            handle.after(2 * HOUR, move || set.set())
        });
        runtime.block_on(event.wait());
        assert!(!outside.join().unwrap().is_pending());
    }
}

#[test]
fn nested_block_on_calls_wait_like_one() {
    let _alarm = alarm();
    let runtime = paused(2);
    runtime.block_on(async {
        let start = Instant::now();
        runtime.block_on(sleep(HOUR));
        assert_eq!(start.elapsed(), HOUR);
        sleep(HOUR).await;
        assert_eq!(start.elapsed(), 2 * HOUR);
    });
}

#[test]
fn a_clock_can_be_paused_from_a_task_while_block_on_waits() {
    let _alarm = alarm();
    for workers in [1, 4] {
        for _ in 0..100 {
            let runtime = crate::common::runtime(workers);
            let slept = runtime.spawn(async {
                time::pause();
                let start = Instant::now();
                sleep(YEAR).await;
                start.elapsed()
            });
            assert_eq!(runtime.block_on(slept).unwrap(), YEAR);
        }
    }
}

#[test]
fn two_runtimes_have_clocks_of_their_own() {
    let _alarm = alarm();
    let still = paused(1);
    let other = paused(1);
    let real = crate::common::runtime(1);
    let outside = Instant::now();
    still.block_on(async {
        let start = Instant::now();
        sleep(YEAR).await;
        assert_eq!(start.elapsed(), YEAR);
        // The runtime that was entered last counts, as it does for timers.
        let _entered = real.enter();
        assert!(Instant::now() < start + YEAR);
        assert!(Instant::now() >= outside);
    });
    assert!(outside.elapsed() < YEAR / 2, "no context, no paused clock");
    real.block_on(async {
        let before = std::time::Instant::now();
        sleep(5 * MS).await;
        assert!(before.elapsed() >= 5 * MS);
    });
    let shown = other.block_on(async { Instant::now() });
    assert!(shown < outside + YEAR);
    drop(still);
    assert!(outside.elapsed() < YEAR / 2);
}
