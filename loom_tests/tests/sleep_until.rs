//! `Shard::sleep_until` and `resume`, by which an event loop that steals from nobody sleeps: what
//! `inbox.rs` and `lock.rs` show of `park`, without searchers.
//!
//! A tickle that is lost shows as a deadlock.
#![cfg(loom)]

use loom::thread;
use loom_tests::{EventLoop, HORIZON, Probe, close, expire, model, shard};
use tourbillon_shards::{Cancel, Reset, Timer};

/// A timer armed by another thread fires, whatever the owner is about to do.
#[test]
fn a_producer_arms_while_the_owner_goes_to_sleep() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 5, 5, probe.once()))
        });
        owner.run_and_sleep_until(|| probe.runs() == 1);
        producer.join().unwrap();
        assert_eq!(owner.now, 5);
        close(&home);
    });
}

/// The owner sleeps towards a deadline that another thread makes earlier.
#[test]
fn a_timer_is_moved_earlier_while_the_owner_goes_to_sleep() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, HORIZON + 50, 5, probe.once());
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Waiting));
        owner.run_and_sleep_until(|| probe.runs() == 1);
        mover.join().unwrap();
        assert_eq!(owner.now, 10);
        close(&home);
    });
}

/// Who armed a timer moves it from inbox to store while the owner looks at both.
#[test]
fn a_remote_thread_drains_while_the_owner_goes_to_sleep() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let remote_thread = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || {
                drop(Timer::once(&home, 5, 5, probe.once()));
                expire(&home, 0);
            }
        });
        owner.run_and_sleep_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// It wakes for a timer that is cancelled meanwhile, or does not; then it sleeps on.
#[test]
fn a_timer_is_cancelled_while_the_owner_goes_to_sleep() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let (probe, other) = (Probe::new(), Probe::new());
        let timer = Timer::once(&home, 5, 5, probe.once());
        drop(Timer::once(&home, 20, 5, other.once()));
        let canceller = thread::spawn(move || timer.cancel());
        owner.run_and_sleep_until(|| other.runs() == 1);
        assert_eq!(owner.now, 20);
        let cancelled = canceller.join().unwrap() == Cancel::Cancelled;
        assert_eq!(probe.runs(), usize::from(!cancelled));
        close(&home);
        assert_eq!(home.owner().wakes(), 0);
    });
}
