//! One holder: a timer stands in its home's inbox, or in its store, or is in somebody's hands. It
//! is never in two of them, and never in none while it lives, whatever is done to it meanwhile.
//!
//! A second holder shows as a second run or as an entry of somebody else's slot that vanishes; a
//! lost one as a deadlock or as a timer that is still pending after the shard was closed; a
//! reference too many as a leak.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{EventLoop, HORIZON, Probe, close, due, expire, model, resets, run, shard};
use tourbillon_shards::{Cancel, Outcome, Ran, Reset, Status, Timer};

/// The models of this thread have who drops a reference look first whether it is the last.
fn looks_for_the_last() {
    tourbillon_shards::model::LOOKS_FOR_THE_LAST.set(true);
}

/// A timer that another thread armed is cancelled where it stands: in the inbox, on its way, or in
/// the store.
#[test]
fn an_arrival_is_cancelled() {
    model!(Some(6), || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());
        EventLoop::new(&home);
        let canceller = thread::spawn(move || timer.cancel());
        home.expire(0, usize::MAX, &mut Vec::new());
        assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
        assert_eq!((probe.runs(), probe.drops()), (0, 1));
        home.expire(0, usize::MAX, &mut Vec::new());
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// The canceller drops its reference while the store, or the inbox, lets go of the other: who drops
/// a reference looks whether it is the last, and then nobody else has one, and nobody else sees
/// that.
#[test]
fn who_sees_the_last_reference_is_alone() {
    looks_for_the_last();
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());
        EventLoop::new(&home);
        let canceller = thread::spawn(move || timer.cancel());
        home.expire(0, usize::MAX, &mut Vec::new());
        assert_eq!(canceller.join().unwrap(), Cancel::Cancelled);
        assert_eq!((probe.runs(), probe.drops()), (0, 1));
        close(&home);
    });
}

/// A timer that another thread armed is moved, later and earlier, where it stands.
#[test]
fn an_arrival_is_moved() {
    model!(None, || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 50, 5, probe.once());
        EventLoop::new(&home);
        let mover = thread::spawn(move || {
            assert_eq!(timer.reset_at(60), Reset::Waiting);
            assert_eq!(timer.reset_at(10), Reset::Waiting);
        });
        expire(&home, 0);
        mover.join().unwrap();
        assert!(home.next_deadline() <= 10);
        expire(&home, 9);
        assert_eq!(probe.runs(), 0);
        expire(&home, 10);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// A timer is moved, and pushed again, while the owner follows its link to the next in the inbox.
#[test]
fn an_arrival_is_moved_before_another() {
    model!(None, || {
        let home = shard();
        let (probe, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 20, 5, other.once()));
        let timer = Timer::once(&home, 50, 5, probe.once());
        EventLoop::new(&home);
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Waiting));
        expire(&home, 0);
        mover.join().unwrap();
        expire(&home, 10);
        assert_eq!((probe.runs(), other.runs()), (1, 0));
        expire(&home, 20);
        assert_eq!(other.runs(), 1);
        close(&home);
    });
}

/// The owner moves a timer that stands in the inbox still, or is being read there: the published
/// deadline is never too late.
#[test]
fn the_owner_moves_an_arrival_earlier() {
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 50, 5, probe.once());
        EventLoop::new(&home);
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        assert_eq!(timer.reset_at(10), Reset::Waiting);
        assert!(home.next_deadline() <= 10);
        remote_thread.join().unwrap();
        expire(&home, 10);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// News of a timer that is in somebody's hands is read when its slot has become another timer's.
#[test]
fn a_due_timer_is_moved_when_its_slot_is_anothers() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let (probe, other) = (Probe::new(), Probe::new());
        let timer = Timer::once(&home, 5, 5, probe.once());
        let held = due(&home, 5);
        drop(Timer::once(&home, 30, 5, other.once()));
        let mover = thread::spawn(move || {
            assert_eq!(timer.reset_at(50), Reset::Waiting);
            assert_eq!(timer.reset_at(40), Reset::Waiting);
        });
        expire(&home, 30);
        assert_eq!(other.runs(), 1);
        mover.join().unwrap();
        expire(&home, 30);
        assert!(matches!(run(held, 30), Ran::PutBack));
        assert_eq!(home.stored(), 1, "one carrier");
        assert_eq!(probe.runs(), 0);
        expire(&home, 40);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// As above, with a cancellation: it must not take the other timer out of the store.
#[test]
fn a_due_timer_is_cancelled_when_its_slot_is_anothers() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let (probe, other) = (Probe::new(), Probe::new());
        let timer = Timer::once(&home, 5, 5, probe.once());
        let held = due(&home, 5);
        drop(Timer::once(&home, 30, 5, other.once()));
        let canceller = thread::spawn(move || assert_eq!(timer.cancel(), Cancel::Cancelled));
        expire(&home, 10);
        canceller.join().unwrap();
        expire(&home, 10);
        assert!(matches!(run(held, 10), Ran::Over));
        expire(&home, 30);
        assert_eq!(other.runs(), 1);
        close(&home);
        assert_eq!(
            probe.runs() + other.runs() + home.owner().over(Outcome::Cancelled),
            2
        );
    });
}

/// A timer in a thief's hands is moved later, so the thief puts it back, while it is moved earlier
/// again and the owner parks.
#[test]
fn a_put_back_meets_a_move_earlier() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());
        let held = due(&home, 5);
        // The owner sleeps towards another one, between the timer's two new deadlines.
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        assert_eq!(timer.reset_at(HORIZON + 50), Reset::Waiting);
        let thief = thread::spawn(move || drop(run(held, 5)));
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Waiting));
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 10);
        thief.join().unwrap();
        mover.join().unwrap();
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 1);
    });
}

/// A thief has run a recurring timer and brings it home, while it is moved earlier and the owner
/// parks.
#[test]
fn a_rearm_meets_a_move_earlier() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::recurring(&home, 5, HORIZON + 50, probe.recurring()));
        let held = due(&home, 5);
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        let thief = thread::spawn(move || drop(run(held, 5)));
        let mover = resets(&timer, 10);
        let mut before = 0;
        owner.run_until(|| {
            before = probe.runs();
            timer.deadline() > Some(HORIZON) && before > 0
        });
        thief.join().unwrap();
        let reset = mover.join().unwrap();
        assert_ne!(reset, Reset::TooLate);
        assert!(probe.runs() <= 2);
        close(&home);
        assert_eq!(probe.drops(), 1);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
    });
}

/// A thief brings a recurring timer home while it is cancelled and the owner reads its inbox: no
/// holder is left, and no payload.
#[test]
fn a_rearm_meets_a_cancel() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::recurring(&home, 5, 10, probe.recurring());
        let held = due(&home, 5);
        let thief = thread::spawn(move || drop(run(held, 5)));
        let canceller = thread::spawn(move || timer.cancel());
        home.expire(0, usize::MAX, &mut Vec::new());
        thief.join().unwrap();
        let cancel = canceller.join().unwrap();
        assert!(matches!(cancel, Cancel::Cancelled | Cancel::AfterRun));
        assert!(probe.runs() <= 1);
        assert_eq!(probe.drops(), 1);
        home.expire(0, usize::MAX, &mut Vec::new());
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// Two threads bring news of one timer, and the owner reads: the later news is not lost in the
/// entry of the earlier.
#[test]
fn two_bring_news_of_one_timer() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 50, 5, probe.once()));
        let movers = [20, 10].map(|to| {
            let timer = timer.clone();
            thread::spawn(move || assert_eq!(timer.reset_at(to), Reset::Waiting))
        });
        expire(&home, 0);
        movers.into_iter().for_each(|it| it.join().unwrap());
        let deadline = timer.deadline().unwrap();
        assert!(deadline == 10 || deadline == 20);
        assert!(home.next_deadline() <= deadline);
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// The same, and the earlier has to push again, since another timer was pushed in between: it
/// writes the link of the timer once more, when the second has found it there.
#[test]
fn two_bring_news_of_one_timer_while_another_arrives() {
    model!(Some(2), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 50, 5, probe.once()));
        let movers = [20, 10].map(|to| {
            let timer = timer.clone();
            thread::spawn(move || assert_eq!(timer.reset_at(to), Reset::Waiting))
        });
        let other = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 100, 5, || {}))
        });
        expire(&home, 0);
        movers.into_iter().for_each(|it| it.join().unwrap());
        other.join().unwrap();
        let deadline = timer.deadline().unwrap();
        assert!(home.next_deadline() <= deadline);
        expire(&home, deadline);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// A holder lets a moved timer go, which ends it, while news of it is read.
#[test]
fn a_due_timer_is_dropped_while_it_is_moved() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 5, 5, probe.once()));
        let held = due(&home, 5);
        assert_eq!(timer.reset_at(50), Reset::Waiting);
        let holder = thread::spawn(move || drop(held));
        let mover = resets(&timer, 20);
        expire(&home, 5);
        holder.join().unwrap();
        mover.join().unwrap();
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        expire(&home, 100);
        assert_eq!((probe.runs(), probe.drops()), (0, 1));
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}
