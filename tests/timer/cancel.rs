//! The answers of `cancel`, `refresh` and `reset_after`, for each state of a timer and each calling
//! thread.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, Gate, HOUR, alarm, eventually, on_worker, runtime, timers::assert_over,
};
use tourbillon::{
    Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

/// How much later than requested a deadline may be, if a thread arms or moves several timers in a
/// row.
const IN_A_ROW: Duration = Duration::from_micros(3);

/// Checks the answers of all calls on a pending timer of one hour, and cancels it.
fn answers_of_a_pending_timer(arm: impl FnOnce(Duration, crate::common::Token) -> Timer) {
    let drops = Drops::new();
    let before = Instant::now();
    let timer = arm(HOUR, drops.token());
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + HOUR && deadline <= after + HOUR + IN_A_ROW);
    assert_eq!(timer.status(), Status::Pending);
    assert!(timer.is_pending());

    // The wait began when the timer was armed.
    assert_eq!(timer.reset_from_start(2 * HOUR), Reset::Pending);
    let start = timer.deadline().unwrap().into_std() - 2 * HOUR;
    assert!(start >= before && start <= after + IN_A_ROW);
    assert_eq!(timer.reset_from_start(HOUR / 2), Reset::Pending);
    assert_eq!(timer.deadline().unwrap().into_std(), start + HOUR / 2);
    assert_eq!(timer.reset_from_start(3 * HOUR), Reset::Pending);
    assert_eq!(timer.deadline().unwrap().into_std(), start + 3 * HOUR);

    let before = Instant::now();
    assert_eq!(timer.reset_after(3 * HOUR), Reset::Pending);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR + IN_A_ROW);

    // `refresh` uses the last delay, which `reset_after` has set.
    let before = Instant::now();
    assert_eq!(timer.refresh(), Reset::Pending);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR + IN_A_ROW);

    for asked in [before + HOUR, before + 5 * HOUR, before + 2 * HOUR] {
        assert_eq!(timer.reset_at(asked), Reset::Pending);
        assert_eq!(timer.deadline().unwrap().into_std(), asked);
    }
    // `reset_at` does not change the delay.
    let before = Instant::now();
    assert_eq!(timer.refresh(), Reset::Pending);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 3 * HOUR && deadline <= after + 3 * HOUR + IN_A_ROW);

    assert_eq!(drops.count(), 0);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    assert_eq!(drops.count(), 1, "the callback is dropped by `cancel`");
    assert_over(&timer, Outcome::Cancelled);
}

#[test]
fn a_pending_timer_answers_remote_threads_exactly() {
    let _alarm = alarm();
    let runtime = runtime(2);
    answers_of_a_pending_timer(|delay, token| runtime.handle().after(delay, move || drop(token)));
    answers_of_a_pending_timer(|delay, token| {
        runtime
            .handle()
            .at(Instant::now() + delay, move || drop(token))
    });
    answers_of_a_pending_timer(|period, token| {
        runtime.handle().every(period, move || {
            let _ = &token;
        })
    });
    let total = runtime.metrics().total();
    assert_eq!((total.armed(), total.cancelled(), total.fired()), (3, 3, 0));
}

#[test]
fn a_pending_timer_answers_its_own_worker_exactly() {
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
    let cancelled = runtime.metrics().total().cancelled();
    assert_eq!(cancelled, 2);
}

#[test]
fn a_pending_timer_answers_another_worker_exactly() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for (armed_on, asked_on) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let arms = || async { tourbillon::after(HOUR, || ()) };
        let arms = runtime
            .handle()
            .spawn_pinned_by_idx(arms, armed_on)
            .unwrap();
        let timer = runtime.block_on(arms).unwrap();
        let asks = move || async move {
            assert_eq!(timer.reset_after(2 * HOUR), Reset::Pending);
            assert_eq!(timer.refresh(), Reset::Pending);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_over(&timer, Outcome::Cancelled);
        };
        let asks = runtime
            .handle()
            .spawn_pinned_by_idx(asks, asked_on)
            .unwrap();
        runtime.block_on(asks).unwrap();
    }
}

#[test]
fn a_timer_that_fired_is_over() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let timer = runtime
        .handle()
        .after(Duration::from_millis(1), move || drop(token));
    eventually("it is over", || matches!(timer.status(), Status::Over(_)));
    assert_eq!(drops.count(), 1);
    assert_over(&timer, Outcome::Fired);
}

#[test]
fn a_running_callback_cannot_be_cancelled_or_moved() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (started, release) = (Gate::new(), Gate::new());
    let before = Instant::now();
    let timer = {
        let (started, release) = (started.clone(), release.clone());
        runtime.handle().after(Duration::from_millis(1), move || {
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
        assert_eq!(timer.reset_after(HOUR), Reset::TooLate);
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
fn cancel_and_expiry_race_for_one_outcome() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let fired = Arc::new(AtomicUsize::new(0));
    let mut cancelled = 0;
    let mut answers = HashSet::new();
    let mut armed = 0;
    // The winner of a race is random: repeat until each side has won at least one.
    while armed < 3_000 || answers.len() < 2 {
        let (token, fired) = (drops.token(), fired.clone());
        let timer = runtime
            .handle()
            .after(Duration::from_micros(armed % 60), move || {
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
fn one_of_many_cancelling_threads_wins() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for round in 0..200_u64 {
        let wins = AtomicUsize::new(0);
        let timer = runtime.handle().after(HOUR, || ());
        thread::scope(|scope| {
            for i in 0..3_u64 {
                let (timer, wins) = (&timer, &wins);
                scope.spawn(move || {
                    if (round + i) % 2 == 0 {
                        timer.reset_after(2 * HOUR);
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
    assert_eq!(runtime.metrics().total().cancelled(), 200);
}

#[test]
fn debug_output_shows_the_status_of_a_timer() {
    let runtime = runtime(1);
    let timer = runtime.handle().after(HOUR, || ());
    assert!(format!("{timer:?}").contains("Pending"));
    timer.cancel();
    assert!(format!("{timer:?}").contains("Cancelled"));
    let guard = runtime.handle().after(HOUR, || ()).cancel_on_drop();
    assert!(format!("{guard:?}").contains("Pending"));
}
