//! Recurring timers stay on their grid, never run concurrently with themselves, and end with one
//! cancel.

use crate::common::timers::{assert_over, none_early, reporter, stepped};
use crate::common::{HOUR, PATIENCE, alarm, eventually, on_worker, runtime};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::timer::Outcome;
use tourbillon::{
    Timer,
    timer::{Cancel, Reset, Status},
};

/// A run of a recurring timer: its deadline, and the times when it began and ended.
struct Run {
    deadline: Instant,
    began: Instant,
    ended: Instant,
}

/// In sylar, a period of 10 ms became 10.14 ms: the next deadline was counted from the end of the
/// last run.
#[test]
fn a_recurring_timer_keeps_its_grid_and_skips_missed_runs() {
    let _alarm = alarm();
    const PERIOD: Duration = Duration::from_millis(2);
    const RUNS: usize = 40;
    let runtime = runtime(2);
    let runs: Arc<Mutex<Vec<Run>>> = Arc::default();
    let own: Arc<OnceLock<Timer>> = Arc::default();
    let before = Instant::now();
    let timer = {
        let (runs, own) = (runs.clone(), own.clone());
        runtime.handle().every(PERIOD, move || {
            let began = Instant::now();
            let mut runs = runs.lock().unwrap();
            let Some(timer) = own.get() else { return };
            let deadline = timer.deadline().unwrap().into_std();
            // Some runs take so long that the timer misses several deadlines.
            if runs.len() % 8 == 3 {
                thread::sleep(3 * PERIOD);
            }
            runs.push(Run {
                deadline,
                began,
                ended: Instant::now(),
            });
            if runs.len() == RUNS {
                timer.cancel();
            }
        })
    };
    let after = Instant::now();
    let first = timer.deadline().map(|first| first.into_std());
    own.set(timer).unwrap();
    eventually("it was cancelled", || {
        matches!(own.get().unwrap().status(), Status::Over(_))
    });
    let runs = runs.lock().unwrap();
    assert_eq!(runs.len(), RUNS, "cancelled in a run, it has no other");
    if let Some(first) = first.filter(|&first| first <= after + PERIOD) {
        assert!(first >= before + PERIOD);
    }
    let grid = runs[0].deadline;
    let mut skipped = 0;
    for run in runs.iter() {
        assert!(run.began >= run.deadline, "early");
        let offset = (run.deadline - grid).as_nanos();
        assert_eq!(offset % PERIOD.as_nanos(), 0, "it drifts");
    }
    for pair in runs.windows(2) {
        assert!(
            pair[1].deadline > pair[0].ended,
            "a deadline that passed during a run is skipped"
        );
        assert!(pair[1].began >= pair[0].ended, "it ran twice at once");
        if pair[1].deadline - pair[0].deadline > PERIOD {
            skipped += 1;
        }
    }
    assert!(skipped >= RUNS / 8, "it was late on purpose");
}

#[test]
fn a_recurring_timer_never_runs_concurrently_with_itself() {
    let _alarm = alarm();
    let runtime = runtime(4);
    let inside = Arc::new(AtomicBool::new(false));
    let overlaps = Arc::new(AtomicUsize::new(0));
    let runs = Arc::new(AtomicUsize::new(0));
    let timer = {
        let (inside, overlaps, runs) = (inside.clone(), overlaps.clone(), runs.clone());
        Arc::new(runtime.handle().every(Duration::from_nanos(1), move || {
            if inside.swap(true, Ordering::SeqCst) {
                overlaps.fetch_add(1, Ordering::SeqCst);
            }
            std::hint::spin_loop();
            thread::yield_now();
            inside.store(false, Ordering::SeqCst);
            runs.fetch_add(1, Ordering::SeqCst);
        }))
    };
    thread::scope(|scope| {
        for i in 0..2_u64 {
            let (timer, runs) = (timer.clone(), runs.clone());
            scope.spawn(move || {
                let mut random = crate::common::Random::new(i);
                while runs.load(Ordering::SeqCst) < 1_000 {
                    let delay = Duration::from_nanos(random.below(2_000));
                    // The timer is cancelled later, so no call comes too late.
                    let answer = match random.below(3) {
                        0 => timer.reset_after(delay.max(Duration::from_nanos(1))),
                        1 => timer.reset_at(Instant::now() + delay),
                        _ => timer.refresh(),
                    };
                    assert_ne!(answer, Reset::TooLate);
                }
            });
        }
    });
    assert!(matches!(
        timer.cancel(),
        Cancel::Cancelled | Cancel::AfterRun
    ));
    eventually("it is over", || {
        timer.status() == Status::Over(Outcome::Cancelled)
    });
    assert_eq!(overlaps.load(Ordering::SeqCst), 0);
}

#[test]
fn a_recurring_timer_cancelled_during_a_run_ends_after_it() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let stepped = stepped(&runtime, Duration::from_millis(1));
    let timer = &stepped.timer;
    stepped.started.recv_timeout(PATIENCE).unwrap();
    assert_eq!(timer.status(), Status::Running { last: false });
    assert!(timer.is_pending(), "it will start again");
    assert!(timer.deadline().is_some());
    assert_eq!(timer.cancel(), Cancel::AfterRun);
    assert_eq!(timer.status(), Status::Running { last: true });
    assert!(!timer.is_pending());
    assert_eq!(timer.deadline(), None);
    assert_eq!(timer.cancel(), Cancel::Over, "it had been cancelled");
    assert_eq!(timer.reset_after(HOUR), Reset::TooLate);
    assert_eq!(timer.refresh(), Reset::TooLate);
    assert_eq!(stepped.drops.count(), 0, "it is running");
    stepped.go_on.send(()).unwrap();
    eventually("it is over", || {
        timer.status() == Status::Over(Outcome::Cancelled)
    });
    assert_over(timer, Outcome::Cancelled);
    eventually("its callback is dropped", || stepped.drops.count() == 1);
    // Only the callback could report a start. The callback is dropped, and with it the sender.
    assert_eq!(
        stepped.started.recv_timeout(PATIENCE),
        Err(mpsc::RecvTimeoutError::Disconnected)
    );
    assert_eq!(runtime.metrics().total().callbacks(), 1);
}

#[test]
fn a_recurring_timer_moved_during_a_run_waits_for_the_new_deadline() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let stepped = stepped(&runtime, HOUR);
    let timer = &stepped.timer;
    assert_eq!(timer.reset_at(Instant::now()), Reset::Pending);
    stepped.started.recv_timeout(PATIENCE).unwrap();

    // The new deadline is before the next one of the grid, which is an hour from now.
    let asked = Instant::now() + Duration::from_millis(5);
    assert_eq!(timer.reset_at(asked), Reset::AfterRun);
    assert_eq!(timer.deadline().unwrap().into_std(), asked);
    assert_eq!(timer.status(), Status::Running { last: false });
    stepped.go_on.send(()).unwrap();
    assert!(stepped.started.recv_timeout(PATIENCE).unwrap() >= asked);

    // The last call counts, and its deadline may have passed.
    assert_eq!(timer.reset_after(2 * HOUR), Reset::AfterRun);
    assert_eq!(timer.reset_at(asked), Reset::AfterRun);
    stepped.go_on.send(()).unwrap();
    stepped.started.recv_timeout(PATIENCE).unwrap();

    // `refresh` begins the period anew. It is the period that `reset_after` has set.
    let before = Instant::now();
    assert_eq!(timer.refresh(), Reset::AfterRun);
    let after = Instant::now();
    let deadline = timer.deadline().unwrap().into_std();
    assert!(deadline >= before + 2 * HOUR && deadline <= after + 2 * HOUR);
    stepped.go_on.send(()).unwrap();
    eventually("it waits", || timer.status() == Status::Pending);
    assert_eq!(timer.deadline().unwrap().into_std(), deadline);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
}

#[test]
fn a_period_of_zero_counts_as_one_nanosecond() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let runs = Arc::new(AtomicUsize::new(0));
    let counter = runs.clone();
    let timer = runtime.handle().every(Duration::ZERO, move || {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    eventually("it runs", || runs.load(Ordering::SeqCst) > 100);
    // The only worker is never idle. Jobs of remote threads and due timers still run.
    on_worker(&runtime, || ());
    assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
    runtime.block_on(tourbillon::time::sleep(Duration::from_millis(1)));
    let (sender, receiver) = mpsc::channel();
    let asked = Instant::now() + Duration::from_millis(1);
    runtime.handle().at(asked, reporter(&sender, asked));
    none_early(&receiver, 1);
    assert!(matches!(
        timer.cancel(),
        Cancel::Cancelled | Cancel::AfterRun
    ));
    eventually("it is over", || {
        timer.status() == Status::Over(Outcome::Cancelled)
    });
    let after = runs.load(Ordering::SeqCst);
    on_worker(&runtime, || ());
    assert_eq!(runs.load(Ordering::SeqCst), after);
}
