//! Inbox, parked word and eventfd: other threads arm and reset timers in a shard whose owner goes
//! to sleep. The owner does not sleep past any of them.
//!
//! A lost notification shows as a deadlock: without one, the owner's clock does not pass the
//! horizon.
#![cfg(loom)]

use loom::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use loom_tests::{EventLoop, HORIZON, Probe, arm_many, close, expire, model, shard};
use tourbillon_shards::{Cancel, Outcome, Reset, Timer, model::LOOKS_AT_THE_DEADLINE};

/// A timer that another thread armed fires, at whichever step the owner is.
#[test]
fn one_producer_arms_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 5, 5, probe.once()))
        });
        owner.run_until(|| probe.runs() == 1);
        producer.join().unwrap();
        assert_eq!(owner.now, 5);
        close(&home);
        assert_eq!((probe.runs(), probe.drops()), (1, 1));
        assert_eq!(home.owner().over(Outcome::Fired), 1);
    });
}

/// Two threads arm timers; neither relies wrongly on the other's notification.
#[test]
fn two_producers_arm_while_the_owner_parks() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        let producers = [0, 1].map(|i| {
            let (home, probe) = (home.clone(), probes[i].clone());
            thread::spawn(move || drop(Timer::once(&home, 5 + i as u64, 5, probe.once())))
        });
        owner.run_until(|| probes.iter().all(|probe| probe.runs() == 1));
        producers.into_iter().for_each(|it| it.join().unwrap());
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 2);
    });
}

/// The owner goes to sleep until a deadline, while another thread makes that deadline earlier.
#[test]
fn a_timer_is_moved_earlier_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, HORIZON + 50, 5, probe.once());
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Pending));
        owner.run_until(|| probe.runs() == 1);
        mover.join().unwrap();
        assert_eq!(owner.now, 10);
        close(&home);
    });
}

/// Two threads reset one timer to an earlier time, and one of them relies on the other's entry in
/// the inbox. Before that entry is there, the owner may have woken and gone to sleep again, until
/// the deadline of another timer, which is between the two new ones.
#[test]
fn two_threads_move_a_timer_earlier_while_the_owner_parks() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let between = Timer::once(&home, HORIZON + 30, 5, || {});
        let timer = Arc::new(Timer::once(&home, HORIZON + 100, 5, probe.once()));
        let moved = Arc::new(AtomicUsize::new(0));
        let movers = [HORIZON + 50, 10].map(|deadline| {
            let (timer, moved) = (timer.clone(), moved.clone());
            thread::spawn(move || {
                timer.reset_at(deadline);
                // The later of the two deadlines may have been set last.
                let last = moved.fetch_add(1, Ordering::AcqRel) == 1;
                if last && timer.deadline() > Some(HORIZON) {
                    timer.reset_at(10);
                }
            })
        });
        drop((timer, between));
        owner.run_until(|| probe.runs() == 1);
        movers.into_iter().for_each(|it| it.join().unwrap());
        close(&home);
    });
}

/// An owner that sleeps until an earlier deadline is not woken for a later one.
#[test]
fn a_later_timer_is_armed_while_the_owner_parks() {
    model!(None, || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        drop(Timer::once(&home, 5, 5, probe.once()));
        let producer = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 50, 5, || {}))
        });
        owner.run_until(|| probe.runs() == 1);
        producer.join().unwrap();
        assert_eq!(home.owner().wakes(), 0);
        close(&home);
    });
}

/// Two threads arm timers while a third reads the inbox: no thread sees a published deadline that
/// is later than its own timer's.
#[test]
fn the_published_deadline_is_never_too_late() {
    model!(Some(2), || {
        let home = shard();
        let producers = [6, 5].map(|deadline| {
            let home = home.clone();
            thread::spawn(move || {
                drop(Timer::once(&home, deadline, 5, || {}));
                assert!(home.next_deadline() <= deadline);
            })
        });
        expire(&home, 0);
        producers.into_iter().for_each(|it| it.join().unwrap());
        assert_eq!(home.next_deadline(), 5);
        close(&home);
    });
}

/// A thread that arms a timer relies on an earlier published deadline. That deadline stays until a
/// drainer removes it, and the drainer reads the inbox after that.
#[test]
fn an_earlier_deadline_is_relied_on() {
    model!(None, || {
        LOOKS_AT_THE_DEADLINE.set(true);
        let home = shard();
        drop(Timer::once(&home, 5, 5, || {}));
        let producer = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 50, 5, || {}))
        });
        expire(&home, 5);
        producer.join().unwrap();
        assert!(home.next_deadline() <= 50);
        close(&home);
    });
}

/// A remote thread publishes a deadline after its timer has already run, and another thread
/// relies on that deadline. The drainer that removes the deadline finds either an empty inbox or
/// the timer of the thread that relies on it.
#[test]
fn a_deadline_that_was_left_behind_is_relied_on() {
    model!(Some(3), || {
        LOOKS_AT_THE_DEADLINE.set(true);
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let overtaken = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 5, 5, probe.once()))
        });
        owner.run_until(|| probe.runs() == 1);
        let producer = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 50, 5, || {}))
        });
        owner.expire();
        overtaken.join().unwrap();
        producer.join().unwrap();
        assert!(home.next_deadline() <= 50);
        close(&home);
    });
}

/// Two threads reset a timer to an earlier time, while a drainer removes an earlier published
/// deadline. The thread that finds the timer queued must not rely on that deadline: the other
/// thread may push the timer after the removal.
#[test]
fn an_earlier_deadline_is_not_relied_on_by_a_thread_that_does_not_push() {
    model!(Some(3), || {
        LOOKS_AT_THE_DEADLINE.set(true);
        let home = shard();
        let timer = Arc::new(Timer::once(&home, 100, 5, || {}));
        expire(&home, 0);
        drop(Timer::once(&home, 5, 5, || {}));
        let movers = [50, 10].map(|deadline| {
            let timer = timer.clone();
            thread::spawn(move || _ = timer.reset_at(deadline))
        });
        expire(&home, 5);
        movers.into_iter().for_each(|it| it.join().unwrap());
        assert!(home.next_deadline() <= timer.deadline().unwrap());
        close(&home);
    });
}

/// A thread arms three timers together. The owner is woken for the one that is due first, which is
/// neither the first nor the last of them. A timer of its own would wake it before the others.
#[test]
fn a_chain_is_armed_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let between = Timer::once(&home, HORIZON + 40, 5, || {});
        let probes = [Probe::new(), Probe::new(), Probe::new()];
        let producer = thread::spawn({
            let (home, probes) = (home.clone(), probes.clone());
            move || drop(arm_many(&home, &[HORIZON + 50, 5, HORIZON + 60], &probes))
        });
        owner.run_until(|| probes[1].runs() == 1);
        producer.join().unwrap();
        assert_eq!(owner.now, 5);
        drop(between);
        close(&home);
        assert_eq!(
            probes.map(|probe| (probe.runs(), probe.drops())),
            [(0, 1), (1, 1), (0, 1)]
        );
    });
}

/// Two threads push at once, and one of them two timers together: none is lost between the others.
#[test]
fn a_chain_and_a_timer_are_armed_at_once() {
    model!(None, || {
        let home = shard();
        let probes = [Probe::new(), Probe::new(), Probe::new()];
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probes[2].clone());
            move || drop(Timer::once(&home, 7, 5, probe.once()))
        });
        drop(arm_many(&home, &[5, 6], &probes));
        producer.join().unwrap();
        let mut owner = EventLoop::new(&home);
        owner.now = 7;
        owner.expire();
        assert_eq!(probes.map(|probe| probe.runs()), [1, 1, 1]);
        close(&home);
    });
}

/// A thread arms two timers together, and cancels the first, while the owner reads its inbox.
#[test]
fn a_timer_of_a_chain_is_cancelled_while_the_owner_reads() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        let producer = thread::spawn({
            let (home, probes) = (home.clone(), probes.clone());
            move || {
                let timers = arm_many(&home, &[HORIZON + 50, 5], &probes);
                assert_eq!(timers[0].cancel(), Cancel::Cancelled);
            }
        });
        owner.run_until(|| probes[1].runs() == 1);
        producer.join().unwrap();
        assert_eq!((probes[0].runs(), probes[0].drops()), (0, 1));
        close(&home);
        assert_eq!(home.owner().overs(), 2);
    });
}

/// The owner arms two timers together, while another thread has the shard's lock.
#[test]
fn the_owner_arms_a_chain_while_another_thread_reads() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        drop(Timer::once(&home, 5, 5, || {}));
        let reader = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        drop(arm_many(&home, &[7, 6], &probes));
        owner.run_until(|| probes.iter().all(|probe| probe.runs() == 1));
        reader.join().unwrap();
        close(&home);
    });
}
