//! A destructor that panics is reported, stops no other destructor, and leaves all counts right.

use std::{
    future::{self, Future},
    panic::panic_any,
    pin::Pin,
    task::{Context, Poll},
    thread,
    time::{Duration, SystemTime},
};

use crate::common::{
    Drops, Gate, HOUR, alarm, eventually, on_worker,
    panics::{assert_alive, panics},
    process::alone,
    runtime,
};
use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    task::yield_now,
    timer::{Cancel, Outcome, Status},
};

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Two panics at once would abort, which is not what is being tested.
        if !thread::panicking() {
            panic!("a destructor panics");
        }
    }
}

/// Checks that a runtime whose bound is one timer has room for it.
#[track_caller]
fn assert_room(runtime: &Runtime) {
    let armed = Timer::after(HOUR).on(runtime.handle()).try_start(|| ());
    assert!(armed.is_ok(), "it made room");
}

#[test]
fn captured_values_that_panic_after_the_run_are_contained() {
    let _alarm = alarm();
    let runtime = runtime(1);
    runtime.handle().after(Duration::ZERO, {
        let bomb = Bomb;
        move || drop(bomb)
    });
    eventually("it is counted", || panics(&runtime) == 1);
    assert_alive(&runtime);
}

#[test]
fn captured_values_that_panic_on_cancel_are_contained() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .max_timers(1)
        .build()
        .unwrap();
    for recurs in [false, true] {
        let bomb = Bomb;
        let timer = if recurs {
            Timer::every(HOUR).on(runtime.handle()).try_start(move || {
                let _ = &bomb;
            })
        } else {
            Timer::after(HOUR)
                .on(runtime.handle())
                .try_start(move || drop(bomb))
        };
        let timer = timer.expect("there is room for one");
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(timer.cancel(), Cancel::Over);
    }
    assert_room(&runtime);
    let total = runtime.metrics().total();
    assert_eq!((total.cancelled(), total.panics()), (2, 2));
}

#[test]
fn cancel_named_counts_timers_whose_destructors_panic() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    // There are more timers than `cancel_named` takes out of the list at a time.
    for i in 0..600 {
        let (token, bomb) = (drops.token(), (i % 100 == 0).then(|| Bomb));
        let f = move || drop((token, bomb));
        Timer::after(HOUR).on(runtime.handle()).name("n").start(f);
    }
    assert_eq!(runtime.handle().cancel_named("n", 500), 500);
    assert_eq!(runtime.handle().cancel_all_named("n"), 100);
    assert_eq!((drops.count(), panics(&runtime)), (600, 6));
    assert_eq!(runtime.timers().named, []);
}

/// The test covers all other ways to end a timer from a thread that is no worker.
#[test]
fn a_destructor_panic_does_not_reach_the_caller_that_ends_a_timer() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let held = || {
        let bomb = Bomb;
        move || drop(bomb)
    };
    drop(runtime.handle().after(HOUR, held()).cancel_on_drop());
    drop(
        Timer::after(HOUR)
            .on(runtime.handle())
            .manual()
            .start(held()),
    );
    let built = Timer::after(HOUR)
        .on(runtime.handle())
        .manual()
        .start(held());
    assert_eq!(built.cancel(), Cancel::Cancelled);
    let wall = Timer::at_wall(SystemTime::now() + HOUR)
        .on(runtime.handle())
        .start(held());
    assert_eq!(wall.cancel(), Cancel::Cancelled);
    let waited = runtime.handle().after(HOUR, held());
    assert_eq!(waited.blocking_cancel_and_wait(), Ok(Cancel::Cancelled));
    assert_eq!(panics(&runtime), 5);
    assert_alive(&runtime);
}

#[test]
fn captured_values_of_a_recurring_callback_that_panic_are_contained() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .max_timers(1)
        .build()
        .unwrap();
    let (started, release) = (Gate::new(), Gate::new());
    let timer = {
        let (started, release, bomb) = (started.clone(), release.clone(), Bomb);
        let armed = Timer::every(Duration::from_millis(1))
            .on(runtime.handle())
            .try_start(move || {
                let _ = &bomb;
                started.open();
                release.wait();
            });
        armed.unwrap()
    };
    started.wait();
    assert_eq!(timer.cancel(), Cancel::AfterRun);
    release.open();
    eventually("the panic is counted", || panics(&runtime) == 1);
    assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    // The counts are right in spite of the panic.
    eventually("the cancellation is counted", || {
        runtime.metrics().total().cancelled() == 1
    });
    assert_room(&runtime);
}

#[test]
fn a_destructor_panic_at_shutdown_does_not_stop_other_destructors() {
    let _alarm = alarm();
    let drops = Drops::new();
    let runtime = runtime(2);
    let mut timers = Vec::new();
    for i in 0..100 {
        let token = drops.token();
        let bomb = (i % 10 == 0).then(|| Bomb);
        timers.push(runtime.handle().after(HOUR, move || drop((token, bomb))));
    }
    let tokens = drops.clone();
    on_worker(&runtime, move || {
        for i in 0..100 {
            let token = tokens.token();
            let bomb = (i % 10 == 5).then(|| Bomb);
            tourbillon::after(HOUR, move || drop((token, bomb)));
        }
    });
    drop(runtime);
    assert_eq!(drops.count(), 200, "the others are dropped");
    for timer in timers {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
    }
}

#[test]
fn a_future_that_panics_on_drop_does_not_abort_the_process() {
    alone(|| {
        let drops = Drops::new();
        let runtime = runtime(1);
        // The destructor panics at the end of the future of a detached task.
        let (bomb, token) = (Bomb, drops.token());
        drop(runtime.spawn(async move {
            let _held = (token, bomb);
            yield_now().await;
        }));
        eventually("it is dropped", || drops.count() == 1);
        assert_alive(&runtime);
        // The destructor panics when the task is aborted.
        let (bomb, token) = (Bomb, drops.token());
        let task = runtime.spawn(async move {
            let _held = (token, bomb);
            future::pending::<()>().await;
        });
        on_worker(&runtime, || ());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        assert_eq!(drops.count(), 2);
        eventually("both are counted", || panics(&runtime) == 2);
        assert_alive(&runtime);
        // The destructors panic when the runtime ends.
        for _ in 0..5 {
            let (bomb, token) = (Bomb, drops.token());
            runtime.spawn(async move {
                let _held = (token, bomb);
                future::pending::<()>().await;
            });
        }
        on_worker(&runtime, || ());
        drop(runtime);
        assert_eq!(drops.count(), 7);
    });
}

/// A future that is ready at once and panics when it is dropped.
struct ReadyBomb(Bomb);

impl Future for ReadyBomb {
    type Output = i32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<i32> {
        let _ = &self.0;
        Poll::Ready(5)
    }
}

#[test]
fn a_future_that_panics_after_its_return_does_not_abort_the_process() {
    alone(|| {
        let runtime = runtime(1);
        let joined = runtime.block_on(runtime.spawn(ReadyBomb(Bomb)));
        // Its result is lost, as in tokio.
        assert!(joined.unwrap_err().is_panic());
        assert_eq!(panics(&runtime), 1);
        assert_alive(&runtime);
    });
}

#[test]
fn an_unclaimed_result_that_panics_on_drop_is_counted() {
    alone(|| {
        let runtime = runtime(1);
        let go = Gate::new();
        let gate = go.clone();
        // Detached while it runs, so that its worker drops the result.
        drop(runtime.spawn(async move {
            gate.wait();
            Bomb
        }));
        go.open();
        eventually("it is counted", || panics(&runtime) == 1);
        assert_alive(&runtime);
    });
}

#[test]
fn a_panic_payload_that_panics_on_drop_is_contained() {
    alone(|| {
        let runtime = runtime(1);
        runtime.handle().after(Duration::ZERO, || panic_any(Bomb));
        eventually("both are counted", || panics(&runtime) == 2);
        assert_alive(&runtime);
        // The payload of the panic of a detached task is contained, too.
        let go = Gate::new();
        let gate = go.clone();
        drop(runtime.spawn(async move {
            gate.wait();
            panic_any(Bomb)
        }));
        go.open();
        eventually("both are counted", || panics(&runtime) == 4);
        assert_alive(&runtime);
    });
}
