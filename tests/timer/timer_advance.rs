//! A worker that has itself woken earlier, by as much as the kernel is late, and waits for the rest awake.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::common::{HOUR, PATIENCE, alarm};
use tourbillon::{Runtime, Timer, metrics::Activity, runtime::PreciseWait, time::sleep_until};

/// So many sleeps, one after another, of some lengths each.
const SLEEPS: u64 = 200;

fn runtime(advance: Duration, wait: PreciseWait) -> Runtime {
    Runtime::builder()
        .worker_threads(1)
        .timer_advance(advance)
        .precise_wait(wait)
        .build()
        .unwrap()
}

/// Sleeps, each as long as its number says, and none of them early.
fn sleeps(runtime: &Runtime, lengths: impl Fn(u64) -> Duration + Send + Sync + 'static) {
    let task = runtime.spawn(async move {
        for n in 0..SLEEPS {
            let deadline = Instant::now() + lengths(n);
            sleep_until(deadline.into()).await;
            let now = Instant::now();
            assert!(now >= deadline, "early by {:?}", deadline - now);
        }
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn nothing_is_early_by_a_nanosecond() {
    let _alarm = alarm();
    for wait in [PreciseWait::Auto, PreciseWait::Timerfd] {
        for most in [Duration::ZERO, Duration::from_micros(100), Duration::MAX] {
            let runtime = runtime(most, wait);
            sleeps(&runtime, |n| Duration::from_micros(20 + n * 37 % 1_700));
            sleeps(&runtime, |_| Duration::from_micros(300));
            assert!(runtime.metrics().workers()[0].timer_advance <= most);
        }
    }
}

#[test]
fn callbacks_are_not_early_either() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100), PreciseWait::Auto);
    sleeps(&runtime, |_| Duration::from_micros(300));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..SLEEPS {
        let (sender, due) = (sender.clone(), Instant::now() + Duration::from_micros(300));
        runtime.at(due, move || sender.send(Instant::now()).unwrap());
        let ran = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(ran >= due, "early by {:?}", due - ran);
    }
}

#[test]
fn without_it_no_sleep_ends_before_its_deadline() {
    let _alarm = alarm();
    for wait in [PreciseWait::Auto, PreciseWait::Timerfd] {
        let runtime = runtime(Duration::ZERO, wait);
        sleeps(&runtime, |n| Duration::from_micros(100 + n * 37 % 900));
        let metrics = runtime.metrics();
        assert_eq!(metrics.total().early_wakes, 0);
        assert_eq!(metrics.workers()[0].timer_advance, Duration::ZERO);
    }
}

/// It does not go on waiting for a deadline that is there no more.
#[test]
fn who_is_awake_for_a_timer_that_is_cancelled_or_moved_sleeps_again() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100), PreciseWait::Auto);
    sleeps(&runtime, |_| Duration::from_micros(300));
    for n in 0..SLEEPS {
        let due = Instant::now() + Duration::from_micros(300);
        let timer = runtime.at(due, || ());
        // From outside, at about the time that the worker wakes.
        while Instant::now() + Duration::from_micros(n) < due {}
        match n % 2 {
            0 => drop(timer.cancel()),
            _ => drop(timer.reset(HOUR)),
        }
    }
    let parks = || runtime.metrics().total().parks;
    let begin = Instant::now();
    // One that waits awake would look around without end.
    while runtime.metrics().workers()[0].activity != Activity::Parked {
        assert!(begin.elapsed() < PATIENCE, "after {} sleeps", parks());
        std::thread::yield_now();
    }
    sleeps(&runtime, |_| Duration::from_micros(300));
}

#[test]
fn timers_that_may_be_late_are_not_waited_for() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100), PreciseWait::Auto);
    let (sender, receiver) = mpsc::channel();
    for _ in 0..SLEEPS {
        let (sender, due) = (sender.clone(), Instant::now() + Duration::from_micros(300));
        let timer = Timer::at(due).tolerance(Duration::from_micros(200));
        timer
            .on(runtime.handle())
            .start(move || sender.send(Instant::now()).unwrap());
        assert!(receiver.recv_timeout(PATIENCE).unwrap() >= due);
    }
    assert_eq!(runtime.metrics().workers()[0].timer_advance, Duration::ZERO);
}

#[test]
fn on_a_paused_clock_nothing_is_learned_and_all_is_exact() {
    let _alarm = alarm();
    let runtime = Runtime::builder()
        .worker_threads(2)
        .timer_advance(Duration::MAX)
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        for n in 0..SLEEPS {
            let (start, length) = (tourbillon::time::Instant::now(), Duration::from_micros(n));
            tourbillon::time::sleep(length).await;
            assert_eq!(start.elapsed(), length);
        }
    });
    let metrics = runtime.metrics();
    assert_eq!(metrics.total().early_wakes, 0);
    let learned = metrics.workers().iter().map(|worker| worker.timer_advance);
    assert!(learned.eq([Duration::ZERO; 2]));
}
