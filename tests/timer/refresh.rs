//! A timer that is moved fires at its new deadline only. It can be moved and cancelled until its
//! callback starts, even in the queue of a busy worker.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, Gate, HOUR, alarm, eventually, on_worker, runtime,
    timers::{assert_over, none_early},
};
use tourbillon::{
    Runtime, Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

#[test]
fn a_timer_moved_earlier_fires_at_its_new_deadline() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    type Move = fn(&Timer, Instant) -> Reset;
    let moves: [Move; 4] = [
        |timer, to| timer.reset_at(to),
        |timer, _| timer.reset_after(Duration::from_millis(3)),
        |timer, _| timer.reset_from_start(Duration::from_millis(3)),
        |timer, _| timer.reset_from_start(Duration::ZERO),
    ];
    for (i, moved) in moves.into_iter().enumerate() {
        for from_worker in [false, true] {
            let earliest = Arc::new(Mutex::new(Instant::now()));
            let asked = earliest.clone();
            let report = sender.clone();
            let timer = runtime.handle().after(HOUR, move || {
                let now = Instant::now();
                report.send((*asked.lock().unwrap(), now)).unwrap();
            });
            let armed = Instant::now();
            let change = move || {
                let mut earliest = earliest.lock().unwrap();
                let to = Instant::now() + Duration::from_millis(3);
                *earliest = match i {
                    // `reset_after` reads the clock later than this thread.
                    0 | 1 => to,
                    // Its wait began before `armed`.
                    _ => armed - Duration::from_secs(1),
                };
                moved(&timer, to)
            };
            let answer = if from_worker {
                on_worker(&runtime, change)
            } else {
                change()
            };
            assert_eq!(answer, Reset::Pending);
            none_early(&receiver, 1);
        }
    }
}

#[test]
fn a_timer_moved_later_does_not_fire_at_its_old_deadline() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let mut moved = 0;
    while moved < 5 {
        let earliest = Arc::new(Mutex::new(Instant::now()));
        let asked = earliest.clone();
        let sender = sender.clone();
        let timer = runtime.handle().after(Duration::from_millis(15), move || {
            let now = Instant::now();
            sender.send((*asked.lock().unwrap(), now)).unwrap();
        });
        // This thread holds the lock while it moves the timer, and the callback waits for the
        // lock.
        let mut earliest = earliest.lock().unwrap();
        let to = Instant::now() + Duration::from_millis(40);
        // If this thread did not run until the timer fired, `reset_at` has to report that.
        if timer.reset_at(to) == Reset::Pending {
            *earliest = to;
            moved += 1;
        }
        drop(earliest);
        none_early(&receiver, 1);
    }
}

#[test]
fn a_refreshed_timer_does_not_fire_until_the_refreshes_stop() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let delay = Duration::from_millis(30);
    let last = Arc::new(Mutex::new(Instant::now()));
    let timer = {
        let last = last.clone();
        runtime.handle().after(delay, move || {
            let now = Instant::now();
            sender.send((*last.lock().unwrap() + delay, now)).unwrap();
        })
    };
    for _ in 0..1_000 {
        let mut last = last.lock().unwrap();
        let before = Instant::now();
        if timer.refresh() != Reset::Pending {
            break;
        }
        *last = before;
        drop(last);
        thread::sleep(Duration::from_micros(50));
    }
    none_early(&receiver, 1);
    eventually("the callback has returned", || {
        !matches!(timer.status(), Status::Running { .. })
    });
    assert_over(&timer, Outcome::Fired);
}

/// Blocks the one worker of a runtime in a callback, with due timers queued behind it, and calls
/// `meanwhile` with them. `make` arms one of them for a deadline that has passed.
fn with_queued<R>(
    runtime: &Runtime,
    count: usize,
    make: impl Fn(usize, Instant) -> Timer + Send + 'static,
    meanwhile: impl FnOnce(Vec<Timer>) -> R,
) -> R {
    let (started, release) = (Gate::new(), Gate::new());
    let queued = {
        let (started, release) = (started.clone(), release.clone());
        on_worker(runtime, move || {
            let past = Instant::now();
            tourbillon::at(past, move || {
                started.open();
                release.wait();
            });
            // The later deadlines put these timers into the queue behind the one that blocks.
            let after = past + Duration::from_nanos(1);
            (0..count).map(|i| make(i, after)).collect::<Vec<_>>()
        })
    };
    // The timers that the callback armed come due together, when it has returned.
    started.wait();
    let answer = meanwhile(queued);
    release.open();
    answer
}

#[test]
fn a_timer_in_the_queue_of_a_blocked_worker_can_still_be_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let tokens = drops.clone();
    let timers = with_queued(
        &runtime,
        10,
        move |_, at| {
            let token = tokens.token();
            tourbillon::at(at, move || {
                let _token = token;
                panic!("it was cancelled");
            })
        },
        |timers| {
            for (i, timer) in timers.iter().enumerate() {
                assert_eq!(timer.status(), Status::Pending, "it has not started");
                assert!(timer.is_pending());
                assert!(timer.deadline().is_some());
                assert_eq!(timer.cancel(), Cancel::Cancelled);
                assert_eq!(drops.count(), i + 1);
            }
            timers
        },
    );
    on_worker(&runtime, || ());
    for timer in &timers {
        assert_over(timer, Outcome::Cancelled);
    }
    let total = runtime.metrics().total();
    assert_eq!(total.panics(), 0);
    assert_eq!(total.cancelled(), 10);
}

#[test]
fn a_timer_in_the_queue_of_a_blocked_worker_can_still_be_moved() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    let asked: Arc<Mutex<Vec<Option<Instant>>>> = Arc::new(Mutex::new(vec![None; 4]));
    let known = asked.clone();
    with_queued(
        &runtime,
        4,
        move |i, at| {
            let (sender, known) = (sender.clone(), known.clone());
            tourbillon::at(at, move || {
                let now = Instant::now();
                sender
                    .send((known.lock().unwrap()[i].unwrap(), now))
                    .unwrap();
            })
        },
        |timers| {
            let mut asked = asked.lock().unwrap();
            let now = Instant::now();
            // To a later deadline, to a second later one, back to an earlier one, and to one that
            // has passed.
            let later = now + Duration::from_millis(5);
            let latest = now + Duration::from_millis(10);
            let moves: [&[Instant]; 4] = [&[later], &[later, latest], &[latest, later], &[now]];
            for (i, moves) in moves.into_iter().enumerate() {
                for &to in moves {
                    assert_eq!(timers[i].reset_at(to), Reset::Pending);
                    assert_eq!(timers[i].deadline().unwrap().into_std(), to);
                    assert_eq!(timers[i].status(), Status::Pending);
                }
                asked[i] = moves.last().copied();
            }
        },
    );
    none_early(&receiver, 4);
    assert!(receiver.recv().is_err(), "none runs twice");
}

#[test]
fn a_timer_moved_in_the_queue_can_be_cancelled_or_moved_again() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let ran = Arc::new(AtomicUsize::new(0));
    let counter = ran.clone();
    let timers = with_queued(
        &runtime,
        2,
        move |_, at| {
            let counter = counter.clone();
            tourbillon::at(at, move || {
                counter.fetch_add(1, Ordering::SeqCst);
            })
        },
        |timers| {
            assert_eq!(timers[0].reset_after(HOUR), Reset::Pending);
            assert_eq!(timers[0].cancel(), Cancel::Cancelled);
            assert_eq!(timers[1].reset_after(HOUR), Reset::Pending);
            timers
        },
    );
    // The worker has taken both timers from its queue when this callback runs.
    on_worker(&runtime, || ());
    assert_over(&timers[0], Outcome::Cancelled);
    assert_eq!(timers[1].status(), Status::Pending);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert_eq!(timers[1].reset_after(Duration::ZERO), Reset::Pending);
    eventually("it runs", || ran.load(Ordering::SeqCst) == 1);
}
