//! The rescuer of a blocked worker is there when its timers come due: it wakes earlier by its own
//! latency, and spins for the rest.

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::common::{
    PATIENCE, alarm,
    blocked::{AllBlocked, Blocked, Says, all_come_elsewhere},
};
use tourbillon::{Runtime, runtime::Builder, time};

/// How far apart the timers are: each is looked for by itself.
const APART: Duration = Duration::from_millis(3);
/// So many at each worker that is blocked.
const TIMERS: usize = 40;

fn runtime(grace: Duration, advance: Duration, helpers: usize) -> Runtime {
    Builder::new()
        .worker_threads(2 - helpers.min(1))
        .helpers(0..=helpers)
        .rescue_grace(grace)
        .timer_advance(advance)
        .build()
        .unwrap()
}

/// Blocks a worker until all of its timers have fired, none of them early, and all elsewhere. If
/// there is but one, that is where helpers are.
fn fire_elsewhere(runtime: &Runtime) {
    let (says, fired) = Says::new();
    let arm = move || {
        let begin = Instant::now();
        for (n, index) in (1..).zip(0..TIMERS) {
            let due = begin + n * APART;
            drop(tourbillon::at(due, says.comes(index, due)));
        }
    };
    if runtime.metrics().num_workers() == 1 {
        let blocked = AllBlocked::after(runtime, move |_| arm());
        blocked.all_come_elsewhere(&fired, TIMERS);
    } else {
        let (blocked, ()) = Blocked::after(runtime.handle(), arm);
        all_come_elsewhere(&blocked, &fired, TIMERS);
    }
}

/// Tries several graces, and several bounds of the latency that the rescuers learn.
#[test]
fn rescued_timers_are_never_early_and_never_lost() {
    let _alarm = alarm();
    for grace in [0, 50, 1_000].map(Duration::from_micros) {
        for advance in [Duration::ZERO, Duration::from_micros(100), Duration::MAX] {
            fire_elsewhere(&runtime(grace, advance, 0));
        }
    }
    fire_elsewhere(&runtime(Duration::ZERO, Duration::MAX, 2));
}

/// A rescuer that comes too early spins, and is counted. How often that happens depends on the
/// machine, but it happens on any.
#[test]
fn a_rescuer_that_is_early_spins() {
    let _alarm = alarm();
    for helpers in [0, 2] {
        let runtime = runtime(Duration::ZERO, Duration::from_millis(50), helpers);
        let begin = Instant::now();
        let early = || {
            let metrics = runtime.metrics();
            metrics.total().early_wakes + metrics.helper_counts().early_wakes
        };
        while early() == 0 {
            assert!(begin.elapsed() < PATIENCE, "nobody ever came early");
            fire_elsewhere(&runtime);
        }
    }
}

/// If no sleep may end before its deadline, no rescuer arrives before a timer is due.
#[test]
fn without_an_advance_no_rescuer_spins() {
    let _alarm = alarm();
    let runtime = runtime(Duration::from_micros(50), Duration::ZERO, 0);
    fire_elsewhere(&runtime);
    assert_eq!(runtime.metrics().total().early_wakes, 0);
}

/// The clock is paused while a peer rescues a worker. The peer does not spin for a deadline that
/// real time does not reach.
#[test]
fn no_rescuer_spins_for_a_paused_clock() {
    let _alarm = alarm();
    let runtime = runtime(Duration::ZERO, Duration::from_millis(50), 0);
    fire_elsewhere(&runtime);
    runtime.block_on(async {
        let (sender, fired) = mpsc::channel();
        let timer = tourbillon::after(APART, move || sender.send(()).unwrap());
        time::pause();
        time::sleep(APART).await;
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(()));
        drop(timer);
    });
}
