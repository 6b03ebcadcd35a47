//! Timers with a tolerance, which may be late by that much; and timers that must not run because
//! their condition has gone.
//!
//! A timer that the owner misses shows as a clock that went past the timer's window. Other timers
//! behind the window make that possible.
#![cfg(loom)]

use std::sync::atomic::Ordering;

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, HORIZON, Home, Probe, Worker, close, expire, model, resets, shard, tell,
};
use tourbillon_shards::{Cancel, Flow, Options, Outcome, Reset, Started, Status, Timer, Tolerance};

/// Returns options with a tolerance of 3. With them, a timer that is due at 5 waits until 8, and
/// a timer that is due at 17 until 20.
fn tolerant() -> Options<Worker> {
    Options {
        tolerance: Tolerance::new(3),
        ..Options::default()
    }
}

/// Returns a timer that runs at `deadline`, or later.
fn timer(home: &Home, deadline: u64, options: Options<Worker>, probe: &Probe) -> Timer<Worker> {
    let callback = probe.told(Flow::Continue(()));
    let options = Options {
        deadline: Some(deadline),
        ..options
    };
    let timer = Timer::build(home, 5, options, callback);
    assert_eq!(timer.start(0), Started::Pending);
    timer
}

/// A remote thread arms the timer: the owner does not sleep past the end of its window.
#[test]
fn a_tolerant_timer_is_armed_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(timer(&home, 5, tolerant(), &probe))
        });
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 8);
        producer.join().unwrap();
        close(&home);
    });
}

/// The owner goes to sleep until a timer that is just behind the window: it is woken, and then
/// sleeps until the window.
#[test]
fn a_tolerant_timer_is_armed_just_before_another() {
    model!(None, || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            // Its window is 126 ..= 129.
            move || drop(timer(&home, HORIZON + 26, tolerant(), &probe))
        });
        owner.run_until(|| home.stored() == 2);
        assert_eq!(home.next_deadline(), HORIZON + 28);
        producer.join().unwrap();
        close(&home);
    });
}

/// A timer without options is armed on a shard whose timers have a tolerance, while the owner
/// goes to sleep until a timer that is just behind the window. The owner is woken, and then
/// sleeps until the window.
#[test]
fn a_plain_tolerant_timer_is_armed_just_before_another() {
    model!(None, || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        home.owner().tolerance.store(3, Ordering::Relaxed);
        let producer = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, HORIZON + 26, 5, || {}))
        });
        owner.run_until(|| home.stored() == 2);
        assert_eq!(home.next_deadline(), HORIZON + 28);
        producer.join().unwrap();
        close(&home);
    });
}

/// The owner moves a timer without options to an earlier time, while a remote thread arms another.
/// Both have a tolerance.
#[test]
fn a_plain_tolerant_timer_is_moved_earlier_by_the_owner() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        home.owner().tolerance.store(3, Ordering::Relaxed);
        let (mine, other) = (Probe::new(), Probe::new());
        let timer = Timer::once(&home, 17, 5, mine.once());
        assert_eq!(home.next_deadline(), 20);
        let producer = thread::spawn({
            let (home, other) = (home.clone(), other.clone());
            move || drop(Timer::once(&home, 13, 5, other.once()))
        });
        assert_eq!(timer.reset_at(5), Reset::Pending);
        owner.run_until(|| mine.runs() == 1);
        assert_eq!(owner.now, 8);
        owner.run_until(|| other.runs() == 1);
        assert_eq!(owner.now, 16);
        producer.join().unwrap();
        close(&home);
    });
}

/// A remote thread resets the timer to an earlier time, while the owner goes to sleep until a timer
/// that is behind the new window.
#[test]
fn a_tolerant_timer_is_moved_earlier_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = timer(&home, HORIZON + 50, tolerant(), &probe);
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(5), Reset::Pending));
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 8);
        mover.join().unwrap();
        close(&home);
    });
}

/// A remote thread resets the timer to a later time, and then to an earlier one, while the owner
/// takes the due timers.
#[test]
fn a_tolerant_timer_is_moved_later_and_earlier() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = timer(&home, 5, tolerant(), &probe);
        let mover = thread::spawn(move || {
            let later = timer.reset_at(33);
            let earlier = timer.reset_at(17);
            assert_eq!(later, earlier);
            later
        });
        expire(&home, 8);
        let moved = mover.join().unwrap();
        assert_eq!(moved == Reset::Pending, probe.runs() == 0);
        assert!(probe.runs() == 1 || home.next_deadline() <= 20);
        expire(&home, 16);
        assert_eq!(moved == Reset::Pending, probe.runs() == 0);
        expire(&home, 20);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// The owner is awake and takes the timer within its window, unless another thread refreshes it
/// first.
#[test]
fn a_tolerant_timer_is_taken_early_or_refreshed() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = timer(&home, 5, tolerant(), &probe);
        let mover = thread::spawn(move || timer.refresh(6));
        expire(&home, 6);
        let moved = mover.join().unwrap() == Reset::Pending;
        assert_eq!(probe.runs(), usize::from(!moved));
        expire(&home, 10);
        assert_eq!(probe.runs(), usize::from(!moved));
        assert!(!moved || home.next_deadline() <= 12);
        expire(&home, 12);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// The owner is awake and takes the timer within its window, unless another thread cancels it
/// first.
#[test]
fn a_tolerant_timer_is_taken_early_or_cancelled() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = timer(&home, 5, tolerant(), &probe);
        let canceller = thread::spawn(move || timer.cancel());
        expire(&home, 6);
        let cancelled = canceller.join().unwrap() == Cancel::Cancelled;
        assert_eq!(probe.runs(), usize::from(!cancelled));
        expire(&home, 8);
        assert_eq!(home.stored(), 0);
        assert_eq!((home.owner().overs(), probe.drops()), (1, 1));
        close(&home);
    });
}

/// A remote thread takes the timer within its window, while the owner is about to sleep until the
/// window's end: the timer runs once, and the owner sleeps on until the next one.
#[test]
fn a_tolerant_timer_is_taken_early_by_a_remote_thread() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        drop(timer(&home, 5, tolerant(), &probe));
        let other = Probe::new();
        drop(Timer::once(&home, 20, 5, other.once()));
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 6)
        });
        owner.run_until(|| other.runs() == 1);
        assert_eq!(owner.now, 20);
        remote_thread.join().unwrap();
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// Returns a timer that takes outcomes, that is reset to 20, and whose condition has gone.
fn dead(home: &Home, probe: &Probe) -> Arc<Timer<Worker>> {
    let options = Options {
        outcome: true,
        condition: Some(Box::new(|| false)),
        ..Options::default()
    };
    let timer = timer(home, 5, options, probe);
    assert_eq!(timer.reset_at(20), Reset::Pending);
    Arc::new(timer)
}

/// A due timer whose condition has gone is put back, while another thread cancels it. The thread
/// that puts it back may find the missing condition first: the timer ends as cancelled, once.
#[test]
fn a_dead_one_is_put_back_or_cancelled() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = dead(&home, &probe);
        let canceller = thread::spawn({
            let timer = timer.clone();
            move || assert_ne!(timer.cancel(), Cancel::AfterRun)
        });
        expire(&home, 5);
        canceller.join().unwrap();
        tell(&home);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(probe.outcomes(), [Outcome::Cancelled]);
        assert_eq!(home.owner().owes(), 0);
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// A due timer whose condition has gone is put back, while another thread resets it: the timer
/// ends as cancelled when it would run, or before.
#[test]
fn a_dead_one_is_put_back_or_moved() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = dead(&home, &probe);
        let mover = resets(&timer, 30);
        expire(&home, 5);
        mover.join().unwrap();
        expire(&home, 30);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(probe.outcomes(), [Outcome::Cancelled]);
        assert_eq!(home.owner().owes(), 0);
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}
