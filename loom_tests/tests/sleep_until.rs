//! `Shard::sleep_until` and `resume`, with which an event loop that does not steal work sleeps: the
//! models of `park` in `inbox.rs` and `lock.rs`, without searchers.
//!
//! A lost notification shows as a deadlock.
#![cfg(loom)]

use loom::thread;
use loom_tests::{EventLoop, HORIZON, Probe, close, expire, model, shard};
use tourbillon_shards::{Cancel, Reset, Timer};

/// A timer that another thread armed fires, at whichever step the owner is.
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

/// The owner goes to sleep until a deadline, while another thread makes that deadline earlier.
#[test]
fn a_timer_is_moved_earlier_while_the_owner_goes_to_sleep() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, HORIZON + 50, 5, probe.once());
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Pending));
        owner.run_and_sleep_until(|| probe.runs() == 1);
        mover.join().unwrap();
        assert_eq!(owner.now, 10);
        close(&home);
    });
}

/// The thread that armed a timer moves it from the inbox to the store, while the owner checks both.
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

/// A timer is cancelled while the owner goes to sleep. The owner may wake for it; then it sleeps
/// again.
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
