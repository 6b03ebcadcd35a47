//! One holder: a timer is in its home's inbox, in its store, or held by a thread that took it as
//! due. It is never in two of these places, and while it lives it is always in one, even if other
//! threads cancel or reset it.
//!
//! A second holder shows as a second run, or as an entry of another timer's slot that vanishes. A
//! lost holder shows as a deadlock, or as a timer that is still pending after the shard was closed.
//! A surplus reference shows as a leak.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{EventLoop, HORIZON, Probe, close, due, expire, model, resets, run, shard};
use tourbillon_shards::{Cancel, Outcome, Ran, Reset, Status, Timer};

/// Makes the threads of this test's models check, before they drop a reference, whether it is the
/// last.
fn looks_for_the_last() {
    tourbillon_shards::model::LOOKS_FOR_THE_LAST.set(true);
}

/// A remote thread armed a timer, and another cancels it: in the inbox, on its way to the store, or
/// in the store.
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

/// The canceller drops its reference while the store, or the inbox, drops the other one. Each of
/// the two threads checks first whether its reference is the last. At most one thread finds that
/// it is, and no other thread has a reference then.
#[test]
fn at_most_one_thread_sees_the_last_reference() {
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

/// A thread drops its handle while the owner runs the timer. The thread that frees the node sees
/// all that the other thread did with the node. Only the dropped references give that order:
/// neither a claim nor a join does.
fn a_handle_is_dropped_as_its_timer_runs() {
    model!(None, || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());
        EventLoop::new(&home);
        let dropper = thread::spawn(move || drop(timer));
        expire(&home, 5);
        assert_eq!((probe.runs(), probe.drops()), (1, 1));
        dropper.join().unwrap();
        close(&home);
    });
}

#[test]
fn the_last_of_two_references_frees_the_node() {
    a_handle_is_dropped_as_its_timer_runs();
}

#[test]
fn the_thread_that_sees_the_last_reference_frees_the_node() {
    looks_for_the_last();
    a_handle_is_dropped_as_its_timer_runs();
}

/// A remote thread armed a timer, and another resets it, later and then earlier, in the inbox or in
/// the store.
#[test]
fn an_arrival_is_moved() {
    model!(None, || {
        let home = shard();
        let probe = Probe::new();
        let timer = Timer::once(&home, 50, 5, probe.once());
        EventLoop::new(&home);
        let mover = thread::spawn(move || {
            assert_eq!(timer.reset_at(60), Reset::Pending);
            assert_eq!(timer.reset_at(10), Reset::Pending);
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

/// A thread resets a timer, which pushes it again, while the owner follows its link to the next one
/// in the inbox.
#[test]
fn an_arrival_is_moved_before_another() {
    model!(None, || {
        let home = shard();
        let (probe, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 20, 5, other.once()));
        let timer = Timer::once(&home, 50, 5, probe.once());
        EventLoop::new(&home);
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Pending));
        expire(&home, 0);
        mover.join().unwrap();
        expire(&home, 10);
        assert_eq!((probe.runs(), other.runs()), (1, 0));
        expire(&home, 20);
        assert_eq!(other.runs(), 1);
        close(&home);
    });
}

/// The owner resets a timer that is in the inbox still, or that another thread is reading there:
/// the published deadline is never too late.
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
        assert_eq!(timer.reset_at(10), Reset::Pending);
        assert!(home.next_deadline() <= 10);
        remote_thread.join().unwrap();
        expire(&home, 10);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// The owner reads a pending update of a timer that a thread holds as due. The timer's old slot
/// belongs to another timer now, which the update must not change.
#[test]
fn a_due_timer_is_moved_when_its_slot_belongs_to_another() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let (probe, other) = (Probe::new(), Probe::new());
        let timer = Timer::once(&home, 5, 5, probe.once());
        let held = due(&home, 5);
        drop(Timer::once(&home, 30, 5, other.once()));
        let mover = thread::spawn(move || {
            assert_eq!(timer.reset_at(50), Reset::Pending);
            assert_eq!(timer.reset_at(40), Reset::Pending);
        });
        expire(&home, 30);
        assert_eq!(other.runs(), 1);
        mover.join().unwrap();
        expire(&home, 30);
        assert!(matches!(run(held, 30), Ran::PutBack));
        assert_eq!(home.stored(), 1, "one holder");
        assert_eq!(probe.runs(), 0);
        expire(&home, 40);
        assert_eq!(probe.runs(), 1);
        close(&home);
    });
}

/// The owner reads the cancellation of a timer that a thread holds as due. The timer's old slot
/// belongs to another timer now, which the cancellation must not remove from the store.
#[test]
fn a_due_timer_is_cancelled_when_its_slot_belongs_to_another() {
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

/// A thief holds a timer that was reset to a later time, so the thief puts it back. Meanwhile a
/// thread resets it to an earlier time, and the owner parks.
#[test]
fn a_put_back_meets_a_move_earlier() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, 5, 5, probe.once());
        let held = due(&home, 5);
        // The owner sleeps until another timer's deadline, which is between this timer's two new
        // ones.
        drop(Timer::once(&home, HORIZON + 30, 5, || {}));
        assert_eq!(timer.reset_at(HORIZON + 50), Reset::Pending);
        let thief = thread::spawn(move || drop(run(held, 5)));
        let mover = thread::spawn(move || assert_eq!(timer.reset_at(10), Reset::Pending));
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 10);
        thief.join().unwrap();
        mover.join().unwrap();
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 1);
    });
}

/// A thief has run a recurring timer and returns it to its shard, while another thread resets it to
/// an earlier time and the owner parks.
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

/// A thief returns a recurring timer to its shard while another thread cancels it and the owner
/// reads its inbox: neither a holder nor the payload is left.
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

/// Two threads reset one timer while the owner reads the inbox: the later update is not lost in the
/// entry of the earlier one.
#[test]
fn two_threads_update_one_timer() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 50, 5, probe.once()));
        let movers = [20, 10].map(|to| {
            let timer = timer.clone();
            thread::spawn(move || assert_eq!(timer.reset_at(to), Reset::Pending))
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

/// Two threads reset one timer. The first thread has to push it again, since another timer was
/// pushed in between. So it writes the timer's link once more, after the second thread has found
/// the timer queued.
#[test]
fn two_threads_update_one_timer_while_another_arrives() {
    model!(Some(2), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 50, 5, probe.once()));
        let movers = [20, 10].map(|to| {
            let timer = timer.clone();
            thread::spawn(move || assert_eq!(timer.reset_at(to), Reset::Pending))
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

/// A holder drops a timer that was reset, which ends the timer, while the owner reads the update.
#[test]
fn a_due_timer_is_dropped_while_it_is_moved() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 5, 5, probe.once()));
        let held = due(&home, 5);
        assert_eq!(timer.reset_at(50), Reset::Pending);
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
