//! `Builder::timer_advance`: a worker wakes as much earlier as the kernel is late, and spins for
//! the rest.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::common::{HOUR, PATIENCE, alarm};
use tourbillon::{Runtime, Timer, metrics::Activity, runtime::Builder, time::sleep_until};

/// The number of sleeps or timers in a series, one after another.
const SLEEPS: u64 = 200;

fn runtime(advance: Duration) -> Runtime {
    Builder::new()
        .worker_threads(1)
        .timer_advance(advance)
        .build()
        .unwrap()
}

/// Runs `SLEEPS` sleeps, the nth for `lengths(n)`. Checks that none of them ends early.
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
fn sleeps_are_never_early() {
    let _alarm = alarm();
    for most in [Duration::ZERO, Duration::from_micros(100), Duration::MAX] {
        let runtime = runtime(most);
        sleeps(&runtime, |n| Duration::from_micros(20 + n * 37 % 1_700));
        sleeps(&runtime, |_| Duration::from_micros(300));
        assert!(runtime.metrics().workers()[0].timer_advance() <= most);
    }
}

#[test]
fn callbacks_are_never_early() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100));
    sleeps(&runtime, |_| Duration::from_micros(300));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..SLEEPS {
        let (sender, due) = (sender.clone(), Instant::now() + Duration::from_micros(300));
        runtime
            .handle()
            .at(due, move || sender.send(Instant::now()).unwrap());
        let ran = receiver.recv_timeout(PATIENCE).unwrap();
        assert!(ran >= due, "early by {:?}", due - ran);
    }
}

#[test]
fn without_an_advance_no_worker_wakes_early() {
    let _alarm = alarm();
    let runtime = runtime(Duration::ZERO);
    sleeps(&runtime, |n| Duration::from_micros(100 + n * 37 % 900));
    let metrics = runtime.metrics();
    assert_eq!(metrics.total().early_wakes(), 0);
    assert_eq!(metrics.workers()[0].timer_advance(), Duration::ZERO);
}

/// The worker does not spin for a deadline that no longer exists.
#[test]
fn a_worker_sleeps_again_when_its_timer_is_cancelled_or_moved() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100));
    sleeps(&runtime, |_| Duration::from_micros(300));
    for n in 0..SLEEPS {
        let due = Instant::now() + Duration::from_micros(300);
        let timer = runtime.handle().at(due, || ());
        // This thread cancels or moves the timer at about the time that the worker wakes.
        while Instant::now() + Duration::from_micros(n) < due {}
        match n % 2 {
            0 => drop(timer.cancel()),
            _ => drop(timer.reset_after(HOUR)),
        }
    }
    let parks = || runtime.metrics().total().parks();
    let begin = Instant::now();
    // A worker that spins would never park.
    while runtime.metrics().workers()[0].activity() != Activity::Parked {
        assert!(begin.elapsed() < PATIENCE, "after {} sleeps", parks());
        std::thread::yield_now();
    }
    sleeps(&runtime, |_| Duration::from_micros(300));
}

#[test]
fn workers_do_not_spin_for_timers_with_a_tolerance() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(100));
    let (sender, receiver) = mpsc::channel();
    for _ in 0..SLEEPS {
        let (sender, due) = (sender.clone(), Instant::now() + Duration::from_micros(300));
        let timer = Timer::at(due).tolerance(Duration::from_micros(200));
        timer
            .on(runtime.handle())
            .start(move || sender.send(Instant::now()).unwrap());
        assert!(receiver.recv_timeout(PATIENCE).unwrap() >= due);
    }
    assert_eq!(
        runtime.metrics().workers()[0].timer_advance(),
        Duration::ZERO
    );
}

#[test]
fn a_paused_clock_is_exact_and_changes_no_advance() {
    let _alarm = alarm();
    let runtime = Builder::new()
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
    assert_eq!(metrics.total().early_wakes(), 0);
    let learned = metrics
        .workers()
        .iter()
        .map(|worker| worker.timer_advance());
    assert!(learned.eq([Duration::ZERO; 2]));
}
