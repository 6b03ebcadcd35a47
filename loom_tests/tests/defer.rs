//! An owner that defers its wake-ups: it wakes up for strict timers, and lets others wait.

#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{EventLoop, HORIZON, Home, Probe, Worker, close, model};
use tourbillon_shards::{Flow, Options, Shard, Started, Timer, Tolerance};

/// Returns a shard whose owner may defer its wake-ups.
fn deferring() -> Home {
    Arc::new(Shard::new(Worker::default()).deferring())
}

fn arm_strict(home: &Home, deadline: u64, probe: &Probe) {
    let options = Options {
        deadline: Some(deadline),
        tolerance: Tolerance::STRICT,
        ..Options::default()
    };
    let callback = probe.told(Flow::Continue(()));
    let timer = Timer::build(home, 5, options, callback);
    assert_eq!(timer.start(0), Started::Pending);
}

/// A remote thread arms a strict timer, while the owner defers the wake-up for another one for ever.
#[test]
fn a_strict_timer_wakes_an_owner_that_defers() {
    model!(Some(3), || {
        let home = deferring();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        drop(Timer::once(&home, 5, 5, || {}));
        home.defer(HORIZON + 50);
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || arm_strict(&home, 9, &probe)
        });
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 9);
        producer.join().unwrap();
        close(&home);
    });
}

/// A remote thread arms a timer that may wait, while the owner defers the wake-up for another one:
/// both run at the end of that sleep, and the owner is woken for neither.
#[test]
fn a_timer_that_may_wait_runs_when_the_owner_wakes_up() {
    model!(Some(3), || {
        let home = deferring();
        let mut owner = EventLoop::new(&home);
        let (mine, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 5, 5, mine.once()));
        home.defer(20);
        let producer = thread::spawn({
            let (home, other) = (home.clone(), other.clone());
            move || drop(Timer::once(&home, 9, 5, other.once()))
        });
        owner.run_until(|| mine.runs() == 1);
        assert_eq!((owner.now, home.owner().wakes()), (20, 0));
        owner.run_until(|| other.runs() == 1);
        assert_eq!(owner.now, 20);
        producer.join().unwrap();
        close(&home);
    });
}

/// The owner announces a sleep in which it defers its wake-up, gives it up, and then sleeps without
/// deferring. A remote thread that sees the second sleep does not take it for the first.
#[test]
fn a_timer_does_not_wait_for_a_sleep_that_is_over() {
    model!(Some(3), || {
        let home = deferring();
        let mut owner = EventLoop::new(&home);
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        home.defer(HORIZON + 50);
        let producer = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, HORIZON + 26, 5, || {}))
        });
        if owner.announce() {
            home.resume();
        }
        home.defer(0);
        owner.run_until(|| home.stored() == 2);
        producer.join().unwrap();
        close(&home);
    });
}

/// A remote thread arms a strict timer, and then reads the inbox, while the owner defers the wake-up
/// for another timer for ever: the owner finds the strict timer in one of the words.
#[test]
fn a_strict_timer_is_found_while_another_thread_reads_the_inbox() {
    model!(Some(3), || {
        let home = deferring();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        drop(Timer::once(&home, 5, 5, || {}));
        home.defer(HORIZON + 50);
        let remote = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || {
                arm_strict(&home, 9, &probe);
                home.settle();
            }
        });
        owner.run_until(|| probe.runs() == 1);
        remote.join().unwrap();
        close(&home);
    });
}
