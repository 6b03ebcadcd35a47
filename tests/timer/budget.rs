//! The budget for wake-ups: what it changes, what it leaves alone, and what is refused.

use std::{future::Future, time::Duration};

use crate::common::eventually;
use tourbillon::{
    BuildError, Runtime,
    runtime::Builder,
    time::{Instant, pause, sleep, sleep_until, with_tolerance},
};

fn runtime(set: impl FnOnce(&mut Builder)) -> Runtime {
    let mut builder = Builder::new();
    builder.worker_threads(1);
    set(&mut builder);
    builder.build().unwrap()
}

/// Sleeps for many deadlines that are 100 µs apart. None of them is early.
async fn sleeps() {
    let start = Instant::now();
    for i in 1..=500 {
        let deadline = start + i * Duration::from_micros(100);
        sleep_until(deadline).await;
        assert!(Instant::now() >= deadline);
    }
}

/// Runs `load` on the worker until it has slept often, and returns how many of its wake-ups were
/// deferred.
fn deferred(runtime: &Runtime, load: impl Fn() -> BoxedLoad) -> u64 {
    let counts = || runtime.metrics().total();
    let mut rounds = 0;
    eventually("the worker has slept often", || {
        runtime.block_on(runtime.spawn(load())).unwrap();
        rounds += 1;
        rounds >= 4 && counts().parks() > 500
    });
    counts().deferred_wakes()
}

type BoxedLoad = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

#[test]
fn wake_ups_are_deferred_when_timers_come_faster_than_the_budget_allows() {
    let runtime = runtime(|_| ());
    eventually("a wake-up is deferred", || {
        deferred(&runtime, || Box::pin(sleeps())) > 0
    });
}

/// What a worker has spent and learned outlives the `block_on` that ran it.
#[test]
fn the_budget_of_a_current_thread_runtime_lasts() {
    let mut builder = Builder::new_current_thread();
    let runtime = builder.timer_budget(1e-9).build().unwrap();
    eventually("a wake-up is deferred", || {
        // Many in a short time: the budget is spent when wake-ups come faster than one a
        // millisecond, also while other programs have the core between two rounds. A shorter sleep
        // would be over before a worker that a sanitizer slows down has gone to sleep.
        for _ in 0..200 {
            runtime.block_on(sleep(Duration::from_micros(200)));
        }
        runtime.metrics().total().deferred_wakes() > 0
    });
}

#[test]
fn an_exact_runtime_defers_nothing() {
    let runtime = runtime(|builder| _ = builder.exact());
    assert_eq!(deferred(&runtime, || Box::pin(sleeps())), 0);
}

#[test]
fn nothing_is_deferred_for_timers_whose_tolerance_is_stated_as_zero() {
    let runtime = runtime(|builder| _ = builder.timer_budget(1e-9));
    let load = || -> BoxedLoad { Box::pin(with_tolerance(Duration::ZERO, sleeps())) };
    assert_eq!(deferred(&runtime, load), 0);
}

#[test]
fn timers_of_a_runtime_with_a_tolerance_or_that_spins_have_no_budget() {
    let wait = Duration::from_micros(50);
    for set in [Builder::timer_tolerance, Builder::spin_before] {
        let runtime = runtime(|builder| _ = set(builder.timer_budget(1e-9), wait));
        runtime.block_on(runtime.spawn(sleeps())).unwrap();
        assert_eq!(runtime.metrics().total().deferred_wakes(), 0);
    }
}

#[test]
fn timers_on_a_paused_clock_are_exact() {
    let runtime = runtime(|builder| _ = builder.timer_budget(1e-9));
    let task = runtime.spawn(async {
        sleeps().await;
        pause();
        for micros in [1, 10, 100, 1_000] {
            let (start, wait) = (Instant::now(), Duration::from_micros(micros));
            sleep(wait).await;
            assert_eq!(start.elapsed(), wait);
        }
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn a_share_that_is_not_between_zero_and_one_is_refused() {
    for asked in [0.0, -0.1, 1.1, f64::NAN, f64::INFINITY] {
        let error = Builder::new().timer_budget(asked).build().unwrap_err();
        assert!(matches!(error, BuildError::TimerBudget { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("above 0 and at most 1"), "{text}");
    }
    Builder::new().timer_budget(1.0).build().unwrap();
}
