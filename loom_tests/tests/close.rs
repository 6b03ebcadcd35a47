//! Closing a shard: each of its timers ends, exactly once. The shard refuses and ends timers that
//! come later: new ones, and those that a thief puts back or re-arms.
//!
//! A timer that the closer misses is still pending after all threads are done.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Probe, arm_many, cancels, close, due, expire, model, resets, run, shard,
};
use tourbillon_shards::{Outcome, Sleep, Status, Timer};

/// One producer arms a timer while the owner closes the shard.
#[test]
fn a_producer_arms_while_the_shard_is_closed() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || Timer::once(&home, 5, 5, probe.once())
        });
        close(&home);
        let timer = producer.join().unwrap();
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!((probe.runs(), probe.drops()), (0, 1));
        assert_eq!(home.owner().overs(), 1);
    });
}

/// One producer arms two timers together while the owner reads its inbox and closes the shard.
#[test]
fn a_producer_arms_a_chain_while_the_shard_is_closed() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        let producer = thread::spawn({
            let (home, probes) = (home.clone(), probes.clone());
            move || arm_many(&home, &[5, 6], &probes)
        });
        expire(&home, 0);
        close(&home);
        for timer in producer.join().unwrap() {
            assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        }
        for probe in &probes {
            assert_eq!((probe.runs(), probe.drops()), (0, 1));
        }
        assert_eq!(home.owner().overs(), 2);
    });
}

/// Two producers arm timers, and one cancels its own, while the owner reads its inbox and closes.
#[test]
fn two_producers_arm_and_cancel_while_the_shard_is_closed() {
    model!(Some(2), || {
        let home = shard();
        EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        let producers = [false, true].map(|cancels| {
            let (home, probe) = (home.clone(), probes[usize::from(cancels)].clone());
            thread::spawn(move || {
                let timer = Timer::once(&home, 5, 5, probe.once());
                if cancels {
                    timer.cancel();
                }
                timer
            })
        });
        home.expire(0, usize::MAX, &mut Vec::new());
        close(&home);
        for producer in producers {
            let timer = producer.join().unwrap();
            assert!(matches!(timer.status(), Status::Over(_)));
        }
        for probe in &probes {
            assert_eq!((probe.runs(), probe.drops()), (0, 1));
        }
        assert_eq!(home.owner().overs(), 2);
    });
}

/// A due timer was reset. A thief puts it back onto a shard that the owner is closing, while
/// another thread resets it to an earlier time.
#[test]
fn a_put_back_and_a_move_earlier_while_the_shard_is_closed() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 5, 5, probe.once()));
        let held = due(&home, 5);
        timer.reset_at(50);
        let thief = thread::spawn(move || drop(run(held, 5)));
        let mover = resets(&timer, 20);
        close(&home);
        thief.join().unwrap();
        mover.join().unwrap();
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!((probe.runs(), probe.drops()), (0, 1));
        assert_eq!(home.owner().overs(), 1);
    });
}

/// A thief returns a recurring timer to a shard that the owner is closing, while another thread
/// cancels it.
#[test]
fn a_rearm_and_a_cancel_while_the_shard_is_closed() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::recurring(&home, 5, 10, probe.recurring()));
        let held = due(&home, 5);
        let thief = thread::spawn(move || drop(run(held, 5)));
        let canceller = cancels(&timer);
        close(&home);
        thief.join().unwrap();
        canceller.join().unwrap();
        assert!(matches!(timer.status(), Status::Over(_)));
        assert_eq!(probe.drops(), 1);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// A task resets its sleep again and again while the shard is closed. The sleep ends with
/// `Shutdown` each time.
#[test]
fn a_sleep_is_armed_again_while_the_shard_is_closed() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let task = thread::spawn({
            let home = home.clone();
            move || {
                let mut sleep = Sleep::new(&home, 5);
                for deadline in [10, 7] {
                    sleep.reset(deadline);
                }
                sleep
            }
        });
        close(&home);
        let sleep = task.join().unwrap();
        assert_eq!(sleep.outcome(), Some(Outcome::Shutdown));
    });
}

/// Another thread closes the shard while its owner arms a timer, and then two together.
#[test]
fn the_owner_arms_while_the_shard_is_closed() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new(), Probe::new()];
        let closer = thread::spawn({
            let home = home.clone();
            move || close(&home)
        });
        let mut timers = vec![Timer::once(&home, 5, 5, probes[0].once())];
        timers.extend(arm_many(&home, &[5, 6], &probes[1..]));
        closer.join().unwrap();
        for (timer, probe) in timers.iter().zip(&probes) {
            assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
            assert_eq!((probe.runs(), probe.drops()), (0, 1));
        }
        assert_eq!(home.owner().overs(), 3);
    });
}

/// A remote thread holds the shard's lock while the owner closes it, and has read a part of the
/// inbox.
#[test]
fn a_remote_thread_expires_while_the_shard_is_closed() {
    model!(Some(3), || {
        let home = shard();
        let probes = [Probe::new(), Probe::new()];
        let timers = [0, 1].map(|i| Timer::once(&home, 5, 5, probes[i].once()));
        EventLoop::new(&home);
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 5)
        });
        close(&home);
        remote_thread.join().unwrap();
        for (timer, probe) in timers.iter().zip(&probes) {
            let how = match probe.runs() {
                0 => Outcome::Shutdown,
                _ => Outcome::Fired,
            };
            assert_eq!(timer.status(), Status::Over(how));
            assert_eq!(probe.drops(), 1);
        }
        assert_eq!(home.owner().overs(), 2);
    });
}
