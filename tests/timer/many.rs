//! `after_many` and `at_many`: many timers that are armed at once, each as by `after` or `at`.

use std::{
    iter,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    Handle, after, after_many,
    timer::{Cancel, Outcome, Reset, Status},
};

use crate::{
    common::{
        Drops, HOUR, alarm,
        blocked::in_a_task,
        eventually, runtime,
        timers::{none_early, reporter},
    },
    max_timers::bounded,
};

/// More than twice as many as are armed together.
const COUNT: usize = 300;
/// Fewer than all, and more than are armed together.
const PART: usize = 200;

/// Calls `f` on a thread outside of the runtime and on a worker, each time with a new runtime.
fn on_each_thread(f: impl Fn(&Handle) + Clone + Send + 'static) {
    for on_worker in [false, true] {
        let runtime = runtime(2);
        let (handle, f) = (runtime.handle().clone(), f.clone());
        if on_worker {
            in_a_task(&runtime, move || f(&handle));
        } else {
            f(&handle);
        }
    }
}

fn count() -> (Arc<AtomicUsize>, impl Fn() -> usize) {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    (count, move || seen.load(Ordering::SeqCst))
}

#[test]
fn each_fires_and_none_is_early() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let (sender, receiver) = mpsc::channel();
        let delays = || (0..COUNT as u64).map(|i| Duration::from_micros(10 * (i % 50)));
        let due = |delay| reporter(&sender, Instant::now() + delay);
        let mut timers = handle.after_many(delays().map(|delay| {
            // All delays count from the call, which began before this moment.
            let f = due(Duration::ZERO);
            (delay, f)
        }));
        let start = Instant::now();
        timers.extend(handle.at_many(delays().map(|delay| {
            let at = start + delay;
            (at, reporter(&sender, at))
        })));
        assert_eq!(timers.len(), 2 * COUNT);
        // On a worker its peer fires them: this thread waits.
        none_early(&receiver, 2 * COUNT);
        eventually("all are over and counted", || {
            let fired = Status::Over(Outcome::Fired);
            let total = handle.metrics().total();
            timers.iter().all(|timer| timer.status() == fired)
                && (total.armed(), total.fired()) == (2 * COUNT as u64, 2 * COUNT as u64)
        });
    });
}

#[test]
fn they_come_in_order_and_all_delays_count_from_the_call() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let before = tourbillon::time::Instant::now();
        let delay = |i| HOUR + Duration::from_secs(i);
        let timers = handle.after_many((0..COUNT as u64).map(|i| {
            // Time that passes meanwhile does not count.
            if i % 100 == 0 {
                thread::sleep(Duration::from_millis(1));
            }
            (delay(i), || ())
        }));
        let first = timers[0].deadline().unwrap();
        assert!(first >= before + HOUR);
        for (timer, i) in timers.iter().zip(0..) {
            assert_eq!(timer.deadline(), Some(first + Duration::from_secs(i)));
        }
        let moments = timers.iter().map(|timer| timer.deadline().unwrap());
        let again = handle.at_many(moments.map(|at| (at, || ())));
        for (timer, same) in timers.iter().zip(&again) {
            assert_eq!(timer.deadline(), same.deadline());
        }
    });
}

#[test]
fn each_moves_and_ends_by_itself() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let drops = Drops::new();
        let timers = handle.after_many((0..COUNT).map(|_| {
            let token = drops.token();
            (HOUR, move || drop(token))
        }));
        let deadline = timers[0].deadline().unwrap();
        thread::scope(|scope| {
            let timers = &timers;
            scope.spawn(move || {
                for (i, timer) in timers.iter().enumerate() {
                    match i % 3 {
                        0 => assert_eq!(timer.cancel(), Cancel::Cancelled),
                        1 => assert_eq!(timer.refresh(), Reset::Pending),
                        _ => assert_eq!(timer.reset_from_start(2 * HOUR), Reset::Pending),
                    }
                }
            });
        });
        for (i, timer) in timers.iter().enumerate() {
            match i % 3 {
                0 => assert_eq!(timer.status(), Status::Over(Outcome::Cancelled)),
                1 => assert!(timer.deadline() > Some(deadline), "its delay is an hour"),
                _ => assert_eq!(timer.deadline(), Some(deadline + HOUR)),
            }
        }
        assert_eq!(drops.count(), COUNT.div_ceil(3));
    });
}

#[test]
fn delays_are_as_short_and_as_long_as_those_of_after() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let (ran, runs) = count();
        let f = move || _ = ran.fetch_add(1, Ordering::SeqCst);
        let nanosecond = Duration::from_nanos(1);
        handle.after_many([(Duration::ZERO, f.clone()), (nanosecond, f.clone())]);
        handle.at_many([(Instant::now() - HOUR, f)]);
        eventually("they run", || runs() == 3);
        for timer in handle.after_many([(Duration::MAX, || ())]) {
            assert_eq!(timer.deadline(), None);
            assert!(timer.is_pending());
        }
        assert!(
            handle
                .after_many(iter::empty::<(Duration, fn())>())
                .is_empty()
        );
        assert_eq!(handle.metrics().total().armed(), 4);
    });
}

#[test]
fn a_timer_runs_while_the_iterator_goes_on() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let (ran, runs) = count();
        let timers = handle.after_many((0..COUNT).map(|i| {
            if i == PART {
                eventually("those before it run", || runs() > 0);
            }
            let ran = ran.clone();
            (Duration::ZERO, move || {
                _ = ran.fetch_add(1, Ordering::SeqCst)
            })
        }));
        assert_eq!(timers.len(), COUNT);
        eventually("all run", || runs() == COUNT);
    });
}

#[test]
fn the_iterator_may_arm_timers() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let _entered = handle.enter();
        let (ran, runs) = count();
        let f = || {
            let ran = ran.clone();
            move || _ = ran.fetch_add(1, Ordering::SeqCst)
        };
        let timers = after_many((0..COUNT).map(|i| {
            drop(after(Duration::ZERO, f()));
            if i % 100 == 0 {
                drop(after_many(
                    iter::repeat_with(|| (Duration::ZERO, f())).take(PART),
                ));
            }
            (Duration::ZERO, f())
        }));
        assert_eq!(timers.len(), COUNT);
        eventually("all run", || runs() == 2 * COUNT + 3 * PART);
    });
}

#[test]
fn a_panic_of_the_iterator_leaves_the_timers_before_it_armed() {
    let _alarm = alarm();
    on_each_thread(|handle| {
        let drops = Drops::new();
        let (ran, runs) = count();
        let pairs = (0..COUNT).map(|i| {
            assert!(i < PART, "the iterator panics");
            let (ran, token) = (ran.clone(), drops.token());
            let f = move || {
                let _token = token;
                ran.fetch_add(1, Ordering::SeqCst);
            };
            (Duration::ZERO, f)
        });
        let panicked = catch_unwind(AssertUnwindSafe(|| handle.after_many(pairs)));
        assert!(panicked.is_err());
        eventually("those before it run", || runs() == PART);
        eventually("their callbacks are dropped", || drops.count() == PART);
        assert_eq!(handle.metrics().total().armed(), PART as u64);
    });
}

#[test]
fn a_full_runtime_takes_those_for_which_it_has_room() {
    let _alarm = alarm();
    let runtime = bounded(PART);
    let drops = Drops::new();
    let pairs = || {
        let token = drops.token();
        (HOUR, move || drop(token))
    };
    let timers = runtime
        .handle()
        .after_many(iter::repeat_with(pairs).take(COUNT));
    for (i, timer) in timers.iter().enumerate() {
        let how = match i < PART {
            true => Status::Pending,
            false => Status::Over(Outcome::Refused),
        };
        assert_eq!(timer.status(), how);
    }
    assert_eq!(drops.count(), COUNT - PART);
    assert_eq!(timers[7].cancel(), Cancel::Cancelled);
    let two = runtime
        .handle()
        .after_many(iter::repeat_with(pairs).take(2));
    assert!(two[0].is_pending());
    assert_eq!(two[1].status(), Status::Over(Outcome::Refused));
    let total = runtime.metrics().total();
    let expected = (PART as u64 + 1, (COUNT - PART) as u64 + 1);
    assert_eq!((total.armed(), total.refused()), expected);
}

#[test]
fn a_shutdown_meanwhile_ends_all_of_them() {
    let _alarm = alarm();
    let mut runtime = Some(runtime(2));
    let handle = runtime.as_ref().unwrap().handle().clone();
    let drops = Drops::new();
    let timers = handle.after_many((0..COUNT).map(|i| {
        if i == PART {
            drop(runtime.take());
        }
        let token = drops.token();
        (HOUR, move || drop(token))
    }));
    assert_eq!(timers.len(), COUNT);
    for timer in &timers {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
    }
    assert_eq!(drops.count(), COUNT);
}
