//! Timers with a tolerance share wake-ups and are never early. Jitter spreads timers.

use std::{
    collections::HashSet,
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::common::{HOUR, PATIENCE, Random, alarm, eventually, runtime};
use tourbillon::{
    Runtime, Timer,
    timer::{Cancel, Outcome, Reset, Status},
};

fn parks(runtime: &Runtime) -> u64 {
    runtime.metrics().total().parks()
}

/// Returns how often the workers slept while this many timers fired at random moments of a second.
/// None may be early.
fn sleeps(tolerance: Duration) -> u64 {
    const COUNT: u64 = 2_000;
    let runtime = runtime(1);
    let mut random = Random::new(3);
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now() + Duration::from_millis(100);
    for _ in 0..COUNT {
        let at = start + Duration::from_micros(random.below(1_000_000));
        let sender = sender.clone();
        let builder = Timer::at(at).on(runtime.handle()).tolerance(tolerance);
        let _detached = builder.start(move || sender.send((at, Instant::now())).unwrap());
    }
    let before = parks(&runtime);
    for _ in 0..COUNT {
        let (at, ran) = receiver.recv_timeout(PATIENCE).expect("all of them run");
        assert!(ran >= at, "early by {:?}", at - ran);
    }
    parks(&runtime) - before
}

#[test]
fn timers_with_a_tolerance_share_wake_ups() {
    let _alarm = alarm();
    let tolerant = sleeps(Duration::from_millis(50));
    // A second has 20 windows of 50 ms, and windows that overlap share a round moment. Slow
    // workers sleep even less often.
    assert!(tolerant <= 2_000 / 20, "{tolerant} sleeps");
    // On a slow machine, workers without a tolerance seldom sleep, either.
    let exact = sleeps(Duration::ZERO);
    if exact >= 500 {
        assert!(tolerant * 5 <= exact, "{tolerant} and {exact} sleeps");
    }
}

#[test]
fn jitter_is_added_to_first_and_recurring_deadlines_only() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let jitter = Duration::from_secs(600);
    let mut deadlines = HashSet::new();
    for _ in 0..40 {
        let before = Instant::now();
        let timer = Timer::after(HOUR)
            .on(runtime.handle())
            .jitter(jitter)
            .start(|| ());
        let after = Instant::now();
        let deadline = timer.deadline().unwrap().into_std();
        assert!(deadline >= before + HOUR, "early");
        // A jitter is shorter than its bound by more than the clock may be ahead.
        assert!(deadline <= after + HOUR + jitter, "beyond the jitter");
        deadlines.insert((deadline - before).as_secs());
        assert_eq!(timer.reset_at(before + HOUR), Reset::Pending);
        assert_eq!(timer.deadline().unwrap().into_std(), before + HOUR);
        let before = Instant::now();
        assert_eq!(timer.reset_after(HOUR), Reset::Pending);
        let deadline = timer.deadline().unwrap().into_std();
        let now = Instant::now();
        assert!(deadline >= before + HOUR, "early");
        // A thread that moves a timer soon after another may count from up to 3 µs ahead.
        let ahead = Duration::from_micros(3);
        assert!(deadline <= now + HOUR + ahead, "{:?}", deadline - now);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    // The chance that all 40 jitters are equal to the second is 1 in 600^39.
    assert!(deadlines.len() > 1, "{deadlines:?}");

    // Each deadline of a recurring timer lies within the jitter after a multiple of the period.
    let (period, jitter) = (Duration::from_millis(2), Duration::from_millis(1));
    let (sender, runs) = mpsc::channel();
    let before = Instant::now();
    let beat = Timer::every(period)
        .on(runtime.handle())
        .jitter(jitter)
        .times(20);
    let beat = beat.start(move || _ = sender.send(Instant::now()));
    for n in 1..=20 {
        let ran = runs.recv_timeout(PATIENCE).expect("it runs");
        assert!(ran >= before + n * period, "early in run {n}");
    }
    eventually("it has run out", || {
        beat.status() == Status::Over(Outcome::Fired)
    });
}

#[test]
fn a_tolerance_does_not_change_the_deadline() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let at = Instant::now() + HOUR;
    let builder = Timer::at(at).on(runtime.handle()).tolerance(HOUR);
    let timer = builder.start(|| ());
    assert_eq!(timer.deadline().unwrap().into_std(), at);
    // The shard may wait for any moment of the window.
    let next = runtime.timers().next_deadline().map(|next| next.into_std());
    assert!(next.is_none_or(|next| next >= at && next <= at + HOUR));
    assert_eq!(timer.cancel(), Cancel::Cancelled);
}

/// A worker may wake for any reason, not only for timers.
#[test]
fn a_worker_awake_in_the_window_runs_the_timer() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    let start = Instant::now();
    let timer = Timer::after(Duration::from_millis(5))
        .on(runtime.handle())
        .tolerance(HOUR)
        .start(move || sender.send(()).unwrap());
    while receiver.try_recv().is_err() {
        assert!(start.elapsed() < PATIENCE, "it waits: {timer:?}");
        runtime.block_on(runtime.spawn(async {})).unwrap();
    }
    assert!(start.elapsed() >= Duration::from_millis(5));
}
