//! What cancelling and moving a timer answers is exact, whoever asks and whatever the timer is at.

mod common;

use common::timers::{assert_over, none_early};
use common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, on_worker, runtime};
use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::timer::Outcome;
use tourbillon::{Cancel, Reset, Runtime, Status, Timer};

/// Asks everything of a timer of one hour, and cancels it.
fn answers_of_a_pending_timer(arm: impl FnOnce(Duration, common::Token) -> Timer) {
    let drops = Drops::new();
    let before = Instant::now();
    let timer = arm(HOUR, drops.token());
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + HOUR && deadline <= after + HOUR);
    assert_eq!(timer.status(), Status::Pending);
    assert!(timer.is_pending());

    // The wait began when the timer was armed.
    assert_eq!(timer.reset_from_start(2 * HOUR), Reset::Waiting);
    let start = timer.deadline().unwrap().into_std() - 2 * HOUR;
    assert!(start >= before && start <= after);
    assert_eq!(timer.reset_from_start(HOUR / 2), Reset::Waiting);
    assert_eq!(timer.deadline().unwrap().into_std(), start + HOUR / 2);
    assert_eq!(timer.reset_from_start(3 * HOUR), Reset::Waiting);
    assert_eq!(timer.deadline().unwrap().into_std(), start + 3 * HOUR);

    let before = Instant::now();
    assert_eq!(timer.reset(3 * HOUR), Reset::Waiting);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR);

    // The delay is the last that was asked for.
    let before = Instant::now();
    assert_eq!(timer.refresh(), Reset::Waiting);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR);

    for asked in [before + HOUR, before + 5 * HOUR, before + 2 * HOUR] {
        assert_eq!(timer.reset_at(asked), Reset::Waiting);
        assert_eq!(timer.deadline().unwrap().into_std(), asked);
    }
    // A deadline leaves the delay as it is.
    let before = Instant::now();
    assert_eq!(timer.refresh(), Reset::Waiting);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR);

    assert_eq!(drops.count(), 0);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    assert_eq!(drops.count(), 1, "the callback is dropped by `cancel`");
    assert_over(&timer, Outcome::Cancelled);
}

#[test]
fn a_pending_timer_answers_exactly_to_foreign_threads() {
    let _alarm = alarm();
    let runtime = runtime(2);
    answers_of_a_pending_timer(|delay, token| runtime.after(delay, move || drop(token)));
    answers_of_a_pending_timer(|delay, token| {
        runtime.at(Instant::now() + delay, move || drop(token))
    });
    answers_of_a_pending_timer(|period, token| {
        runtime.every(period, move || {
            let _ = &token;
        })
    });
    let total = runtime.metrics().total();
    assert_eq!((total.armed, total.cancelled, total.fired), (3, 3, 0));
}

#[test]
fn a_pending_timer_answers_exactly_to_its_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    on_worker(&runtime, || {
        answers_of_a_pending_timer(|delay, token| tourbillon::after(delay, move || drop(token)));
        answers_of_a_pending_timer(|period, token| {
            tourbillon::every(period, move || {
                let _ = &token;
            })
        });
    });
    let cancelled = runtime.metrics().total().cancelled;
    assert_eq!(cancelled, 2);
}

#[test]
fn a_pending_timer_answers_exactly_to_the_other_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // Armed outside, the timers go to one worker after the other; whichever runs this asks about
    // some that are not its own.
    for _ in 0..8 {
        let handle = runtime.handle().clone();
        let timer = handle.after(HOUR, || ());
        on_worker(&runtime, move || {
            assert_eq!(timer.reset(2 * HOUR), Reset::Waiting);
            assert_eq!(timer.refresh(), Reset::Waiting);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_over(&timer, Outcome::Cancelled);
        });
    }
}

#[test]
fn a_timer_that_fired_is_over() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let timer = runtime.after(Duration::from_millis(1), move || drop(token));
    eventually("it is over", || matches!(timer.status(), Status::Over(_)));
    assert_eq!(drops.count(), 1);
    assert_over(&timer, Outcome::Fired);
}

#[test]
fn a_running_callback_is_too_late_to_cancel_and_to_move() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (started, release) = (Gate::new(), Gate::new());
    let before = Instant::now();
    let timer = {
        let (started, release) = (started.clone(), release.clone());
        runtime.after(Duration::from_millis(1), move || {
            started.open();
            release.wait();
        })
    };
    started.wait();
    for _ in 0..2 {
        assert_eq!(timer.status(), Status::Running { last: true });
        assert!(!timer.is_pending());
        let deadline = timer.deadline().expect("it runs for a deadline");
        assert!(deadline.into_std() >= before + Duration::from_millis(1));
        assert!(deadline.into_std() <= Instant::now());
        assert_eq!(timer.cancel(), Cancel::Running);
        assert_eq!(timer.reset(HOUR), Reset::TooLate);
        assert_eq!(timer.refresh(), Reset::TooLate);
        assert_eq!(timer.reset_at(Instant::now()), Reset::TooLate);
        assert_eq!(timer.reset_from_start(HOUR), Reset::TooLate);
    }
    release.open();
    eventually("it is over", || {
        timer.status() == Status::Over(Outcome::Fired)
    });
    assert_over(&timer, Outcome::Fired);
}

#[test]
fn a_callback_may_ask_about_its_own_timer() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let own: Arc<OnceLock<Timer>> = Arc::default();
    let (sender, receiver) = mpsc::channel();
    {
        let own = own.clone();
        // Armed by a callback: it cannot run before it knows its timer.
        on_worker(&runtime, move || {
            let timer = tourbillon::after(Duration::ZERO, {
                let own = own.clone();
                move || {
                    let own = own.get().unwrap();
                    let answers = (own.status(), own.cancel(), own.reset(HOUR));
                    sender.send(answers).unwrap();
                }
            });
            own.set(timer).unwrap();
        });
    }
    let answers = receiver.recv_timeout(PATIENCE).unwrap();
    let expected = (
        Status::Running { last: true },
        Cancel::Running,
        Reset::TooLate,
    );
    assert_eq!(answers, expected);
}

#[test]
fn a_timer_moved_earlier_fires_at_its_new_deadline() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    type Move = fn(&Timer, Instant) -> Reset;
    let moves: [Move; 4] = [
        |timer, to| timer.reset_at(to),
        |timer, _| timer.reset(Duration::from_millis(3)),
        |timer, _| timer.reset_from_start(Duration::from_millis(3)),
        |timer, _| timer.reset_from_start(Duration::ZERO),
    ];
    for (i, moved) in moves.into_iter().enumerate() {
        for from_worker in [false, true] {
            let earliest = Arc::new(Mutex::new(Instant::now()));
            let asked = earliest.clone();
            let report = sender.clone();
            let timer = runtime.after(HOUR, move || {
                let now = Instant::now();
                report.send((*asked.lock().unwrap(), now)).unwrap();
            });
            let armed = Instant::now();
            let change = move || {
                let mut earliest = earliest.lock().unwrap();
                let to = Instant::now() + Duration::from_millis(3);
                *earliest = match i {
                    // `reset` reads the clock later than we did.
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
            assert_eq!(answer, Reset::Waiting);
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
        let timer = runtime.after(Duration::from_millis(15), move || {
            let now = Instant::now();
            sender.send((*asked.lock().unwrap(), now)).unwrap();
        });
        // Held while the timer is moved: the callback waits for it.
        let mut earliest = earliest.lock().unwrap();
        let to = Instant::now() + Duration::from_millis(40);
        // Where this thread was kept from running until the timer fired, it has to say so.
        if timer.reset_at(to) == Reset::Waiting {
            *earliest = to;
            moved += 1;
        }
        drop(earliest);
        none_early(&receiver, 1);
    }
}

#[test]
fn a_timer_kept_alive_does_not_fire_until_it_is_let_be() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let delay = Duration::from_millis(30);
    let last = Arc::new(Mutex::new(Instant::now()));
    let timer = {
        let last = last.clone();
        runtime.after(delay, move || {
            let now = Instant::now();
            sender.send((*last.lock().unwrap() + delay, now)).unwrap();
        })
    };
    for _ in 0..1_000 {
        let mut last = last.lock().unwrap();
        let before = Instant::now();
        if timer.refresh() != Reset::Waiting {
            break;
        }
        *last = before;
        drop(last);
        thread::sleep(Duration::from_micros(50));
    }
    none_early(&receiver, 1);
    assert_over(&timer, Outcome::Fired);
}

/// Blocks the one worker of a runtime in a callback with timers queued behind that, which have come
/// due, and calls `meanwhile` with them; `make` arms one of them for a deadline that has passed.
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
            // Later deadlines, so that they stand behind the one that blocks.
            let after = past + Duration::from_nanos(1);
            (0..count).map(|i| make(i, after)).collect::<Vec<_>>()
        })
    };
    // What the callback armed comes due together, when it has returned.
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
    assert_eq!(total.panics, 0);
    assert_eq!(total.cancelled, 10);
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
            // Later; later and later still; later and earlier again; to another past.
            let later = now + Duration::from_millis(5);
            let latest = now + Duration::from_millis(10);
            let moves: [&[Instant]; 4] = [&[later], &[later, latest], &[latest, later], &[now]];
            for (i, moves) in moves.into_iter().enumerate() {
                for &to in moves {
                    assert_eq!(timers[i].reset_at(to), Reset::Waiting);
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
fn a_timer_moved_in_the_queue_can_be_cancelled_there_and_moved_again_after_it_left() {
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
            assert_eq!(timers[0].reset(HOUR), Reset::Waiting);
            assert_eq!(timers[0].cancel(), Cancel::Cancelled);
            assert_eq!(timers[1].reset(HOUR), Reset::Waiting);
            timers
        },
    );
    // The worker has taken both from its queue when it gets here.
    on_worker(&runtime, || ());
    assert_over(&timers[0], Outcome::Cancelled);
    assert_eq!(timers[1].status(), Status::Pending);
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert_eq!(timers[1].reset(Duration::ZERO), Reset::Waiting);
    eventually("it runs", || ran.load(Ordering::SeqCst) == 1);
}

#[test]
fn of_cancel_and_expiry_one_wins() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let fired = Arc::new(AtomicUsize::new(0));
    let mut cancelled = 0;
    let mut answers = HashSet::new();
    let mut armed = 0;
    // Until both have won some races, for there is no telling who does.
    while armed < 3_000 || answers.len() < 2 {
        let (token, fired) = (drops.token(), fired.clone());
        let timer = runtime.after(Duration::from_micros(armed % 60), move || {
            let _token = token;
            fired.fetch_add(1, Ordering::SeqCst);
        });
        armed += 1;
        for _ in 0..armed % 7 * 20 {
            std::hint::spin_loop();
        }
        let answer = timer.cancel();
        if answer == Cancel::Cancelled {
            cancelled += 1;
            answers.insert("cancel");
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        } else {
            assert!(matches!(answer, Cancel::Running | Cancel::Over));
            answers.insert("expiry");
            eventually("it is over", || {
                timer.status() == Status::Over(Outcome::Fired)
            });
        }
        assert!(armed < 10_000_000, "one of them always wins: {answers:?}");
    }
    eventually("each is dropped", || drops.count() == armed as usize);
    assert_eq!(fired.load(Ordering::SeqCst) + cancelled, armed as usize);
}

#[test]
fn of_many_threads_that_cancel_one_timer_one_wins() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for round in 0..200_u64 {
        let wins = AtomicUsize::new(0);
        let timer = runtime.after(HOUR, || ());
        thread::scope(|scope| {
            for i in 0..3_u64 {
                let (timer, wins) = (&timer, &wins);
                scope.spawn(move || {
                    if (round + i) % 2 == 0 {
                        timer.reset(2 * HOUR);
                    }
                    match timer.cancel() {
                        Cancel::Cancelled => {
                            wins.fetch_add(1, Ordering::SeqCst);
                        }
                        answer => assert_eq!(answer, Cancel::Over),
                    }
                });
            }
        });
        assert_eq!(wins.load(Ordering::SeqCst), 1);
    }
    assert_eq!(runtime.metrics().total().cancelled, 200);
}

#[test]
fn timers_tell_in_their_debug_output_where_they_stand() {
    let runtime = runtime(1);
    let timer = runtime.after(HOUR, || ());
    assert!(format!("{timer:?}").contains("Pending"));
    timer.cancel();
    assert!(format!("{timer:?}").contains("Cancelled"));
    let guard = runtime.after(HOUR, || ()).cancel_on_drop();
    assert!(format!("{guard:?}").contains("Pending"));
}
