//! `Builder::max_timers`: refusals with a typed error, and room again when a timer ends.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use tourbillon::{
    ArmError, Runtime, Timer,
    runtime::Builder,
    timer::{Cancel, Outcome, Reset, Status},
};

use crate::common::{Drops, HOUR, PATIENCE, alarm, eventually, timers::stepped};

/// Builds a runtime of two workers that has this bound.
pub fn bounded(max_timers: usize) -> Runtime {
    Builder::new()
        .worker_threads(2)
        .max_timers(max_timers)
        .build()
        .unwrap()
}

/// Arms a timer that waits, or returns why the runtime refuses it.
fn try_arm(runtime: &Runtime) -> Result<Timer, ArmError> {
    Timer::after(HOUR).on(runtime.handle()).try_start(|| ())
}

#[test]
fn a_full_runtime_refuses_timers_until_one_ends() {
    let _alarm = alarm();
    let runtime = bounded(3);
    let full = Some(ArmError::Full { max_timers: 3 });
    let drops = Drops::new();
    let first = try_arm(&runtime).unwrap();
    let every = || Timer::every(HOUR).on(runtime.handle());
    let second = every().try_start(|| ()).unwrap();
    let at = || Timer::at(Instant::now() + HOUR).on(runtime.handle());
    let third = at().try_start(|| ()).unwrap();
    let token = drops.token();
    let after = Timer::after(HOUR).on(runtime.handle());
    let refused = after.try_start(move || drop(token));
    assert_eq!(refused.err(), full);
    assert_eq!(drops.count(), 1, "the callback is dropped");
    assert_eq!(at().try_start(|| ()).err(), full);
    assert_eq!(every().try_start(|| ()).err(), full);
    {
        let _entered = runtime.enter();
        assert_eq!(Timer::after(HOUR).try_start(|| ()).err(), full);
        assert_eq!(Timer::at(Instant::now()).try_start(|| ()).err(), full);
        assert_eq!(Timer::every(HOUR).try_start(|| ()).err(), full);
    }

    // A cancellation makes room at once, for one timer.
    assert_eq!(first.cancel(), Cancel::Cancelled);
    let first = try_arm(&runtime).unwrap();
    assert_eq!(try_arm(&runtime).err(), full);
    // A cancellation that comes too late makes no room.
    assert_eq!(first.cancel(), Cancel::Cancelled);
    assert_eq!(first.cancel(), Cancel::Over);
    let first = try_arm(&runtime).unwrap();
    assert_eq!(try_arm(&runtime).err(), full);

    // A timer that fires makes room.
    assert_eq!(first.reset_after(Duration::ZERO), Reset::Pending);
    eventually("it fires", || {
        matches!(first.status(), Status::Over(Outcome::Fired))
    });
    let mut again = None;
    eventually("there is room", || {
        again = try_arm(&runtime).ok();
        again.is_some()
    });
    assert_eq!(try_arm(&runtime).err(), full);

    // A recurring timer that ran is still pending.
    assert_eq!(second.reset_at(Instant::now()), Reset::Pending);
    eventually("it has run", || {
        runtime.metrics().total().callbacks() == 2 && second.status() == Status::Pending
    });
    assert_eq!(try_arm(&runtime).err(), full);
    assert_eq!(second.cancel(), Cancel::Cancelled);
    assert_eq!(third.cancel(), Cancel::Cancelled);
    for _ in 0..2 {
        drop(try_arm(&runtime).unwrap());
    }
    assert_eq!(try_arm(&runtime).err(), full);
}

#[test]
fn a_recurring_timer_cancelled_during_a_run_makes_room() {
    let _alarm = alarm();
    let runtime = bounded(1);
    let stepped = stepped(&runtime, Duration::from_millis(1));
    stepped.started.recv_timeout(PATIENCE).unwrap();
    assert_eq!(stepped.timer.cancel(), Cancel::AfterRun);
    let full = Some(ArmError::Full { max_timers: 1 });
    assert_eq!(try_arm(&runtime).err(), full, "it still runs");
    stepped.go_on.send(()).unwrap();
    eventually("there is room", || try_arm(&runtime).is_ok());
}

#[test]
fn the_bound_is_exact_across_threads() {
    let _alarm = alarm();
    let runtime = bounded(100);
    let armed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    if let Ok(timer) = try_arm(&runtime) {
                        let now = armed.fetch_add(1, Ordering::SeqCst) + 1;
                        assert!(now <= 100, "{now} timers are pending");
                        thread::yield_now();
                        armed.fetch_sub(1, Ordering::SeqCst);
                        assert_eq!(timer.cancel(), Cancel::Cancelled);
                    }
                }
            });
        }
    });
    let timers: Vec<_> = (0..200).filter_map(|_| try_arm(&runtime).ok()).collect();
    assert_eq!(timers.len(), 100);
}
