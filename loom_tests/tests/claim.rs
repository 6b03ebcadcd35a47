//! The claim word: if several threads try to end a timer at the same moment, one wins, and each
//! gets an exact answer.
//!
//! A probe shows a callback that is neither run nor dropped, or that is run or dropped twice. A
//! callback that two threads use shows as a causality violation.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Home, Probe, Worker, cancels, close, due, expire, model, resets, run, shard,
};
use tourbillon_shards::{Cancel, Outcome, Ran, Reset, Status, Timer};

/// A timer with deadline 5 and wait 5, and its shard, owned by this thread.
fn once() -> (Home, Arc<Timer<Worker>>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let timer = Arc::new(Timer::once(&home, 5, 5, probe.once()));
    (home, timer, probe)
}

/// A recurring timer with deadline 5 and period 10, and its shard, owned by this thread.
fn recurring() -> (Home, Arc<Timer<Worker>>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let timer = Arc::new(Timer::recurring(&home, 5, 10, probe.recurring()));
    (home, timer, probe)
}

/// Closes the shard. Asserts that the callback was dropped once and that the timer counted once.
fn ended(home: &Home, probe: &Probe) {
    close(home);
    assert_eq!(probe.drops(), 1);
    assert_eq!(home.owner().overs(), 1);
}

/// A cancel wins against expiry and run, or comes too late; its answer says which.
#[test]
fn fire_or_cancel() {
    model!(None, || {
        let (home, timer, probe) = once();
        let canceller = cancels(&timer);
        expire(&home, 5);
        let cancel = canceller.join().unwrap();
        match probe.runs() {
            0 => {
                assert_eq!(cancel, Cancel::Cancelled);
                assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
            }
            _ => {
                assert!(matches!(cancel, Cancel::Running | Cancel::Over));
                assert_eq!(timer.status(), Status::Over(Outcome::Fired));
            }
        }
        ended(&home, &probe);
    });
}

/// Of two cancels one wins, and only if the timer does not run.
#[test]
fn fire_or_two_cancels() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let cancellers = [timer.clone(), timer].map(|it| thread::spawn(move || it.cancel()));
        run(due, 5);
        let won = cancellers
            .into_iter()
            .map(|it| it.join().unwrap())
            .filter(|&it| it == Cancel::Cancelled)
            .count();
        assert_eq!(won + probe.runs(), 1);
        ended(&home, &probe);
    });
}

/// A reset that comes in time keeps the timer from running at its old deadline.
#[test]
fn fire_or_reset() {
    model!(None, || {
        let (home, timer, probe) = once();
        let mover = thread::spawn(move || timer.reset_at(20));
        expire(&home, 5);
        let reset = mover.join().unwrap();
        let ran = probe.runs();
        assert_eq!(reset == Reset::Pending, ran == 0);
        assert_ne!(reset, Reset::AfterRun);
        expire(&home, 19);
        assert_eq!(probe.runs(), ran);
        expire(&home, 20);
        assert_eq!(probe.runs(), 1);
        ended(&home, &probe);
    });
}

/// A due timer in a deque can be refreshed until it starts to run.
#[test]
fn run_or_refresh() {
    model!(None, || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let mover = thread::spawn(move || timer.refresh(5));
        let ran = run(due, 5);
        match mover.join().unwrap() {
            Reset::Pending => {
                assert!(matches!(ran, Ran::PutBack));
                assert_eq!(probe.runs(), 0);
                assert_eq!(home.next_deadline(), 10);
                expire(&home, 10);
            }
            reset => {
                assert_eq!(reset, Reset::TooLate);
                assert!(matches!(ran, Ran::Fired));
            }
        }
        assert_eq!(probe.runs(), 1);
        ended(&home, &probe);
    });
}

/// Of two refreshes, the one that read the clock later counts, in either order of the updates.
#[test]
fn two_refreshes() {
    model!(None, || {
        let (home, timer, probe) = once();
        let refresh = |timer: &Timer<Worker>| {
            let owner = timer.home().owner();
            let now = owner.past();
            assert_eq!(timer.refresh(now), Reset::Pending);
            owner.now();
            now
        };
        let other = thread::spawn({
            let timer = timer.clone();
            move || refresh(&timer)
        });
        let here = refresh(&timer);
        let last = other.join().unwrap().max(here);
        let deadline = timer.deadline().unwrap();
        assert!(
            deadline >= last + 5,
            "refreshed at {last}, due at {deadline}"
        );
        ended(&home, &probe);
    });
}

/// A reset that read the clock before the timer was refreshed counts from a later reading.
#[test]
fn reset_or_refresh() {
    model!(None, || {
        let (home, timer, probe) = once();
        let other = thread::spawn({
            let timer = timer.clone();
            move || {
                let past = timer.home().owner().past();
                assert_eq!(timer.reset_after(past, 5), Reset::Pending);
            }
        });
        let now = home.owner().now();
        assert_eq!(timer.refresh(now), Reset::Pending);
        home.owner().now();
        other.join().unwrap();
        let deadline = timer.deadline().unwrap();
        assert!(deadline >= now + 5, "refreshed at {now}, due at {deadline}");
        ended(&home, &probe);
    });
}

/// Two threads give the timer another wait from its start: both count from that start, and it
/// stays.
#[test]
fn two_resets_from_the_start() {
    model!(None, || {
        let (home, timer, probe) = once();
        assert_eq!(timer.refresh(50), Reset::Pending);
        let other = thread::spawn({
            let timer = timer.clone();
            move || assert_eq!(timer.reset_from_start(20), Reset::Pending)
        });
        assert_eq!(timer.reset_from_start(30), Reset::Pending);
        other.join().unwrap();
        assert!(matches!(timer.deadline(), Some(70 | 80)));
        assert_eq!(timer.reset_from_start(40), Reset::Pending);
        assert_eq!(timer.deadline(), Some(90));
        ended(&home, &probe);
    });
}

/// One thread gives the timer a new wait of another length, and another one a wait from its start:
/// from the old start, or from the new one.
#[test]
fn reset_after_or_from_the_start() {
    model!(None, || {
        let (home, timer, probe) = once();
        assert_eq!(timer.refresh(50), Reset::Pending);
        let other = thread::spawn({
            let timer = timer.clone();
            move || assert_eq!(timer.reset_after(60, 100), Reset::Pending)
        });
        assert_eq!(timer.reset_from_start(30), Reset::Pending);
        let between = timer.deadline();
        assert!(matches!(between, Some(80 | 90 | 160)), "{between:?}");
        other.join().unwrap();
        assert!(matches!(timer.deadline(), Some(90 | 160)));
        assert_eq!(timer.reset_from_start(40), Reset::Pending);
        assert_eq!(timer.deadline(), Some(100));
        ended(&home, &probe);
    });
}

/// One thread resets the timer to a time, another to a wait from its start, which is the old start
/// or the one that the time implies: with the old wait, or with the new one.
#[test]
fn reset_to_a_moment_or_from_the_start() {
    model!(None, || {
        let (home, timer, probe) = once();
        assert_eq!(timer.refresh(50), Reset::Pending);
        let other = thread::spawn({
            let timer = timer.clone();
            move || assert_eq!(timer.reset_at(60), Reset::Pending)
        });
        assert_eq!(timer.reset_from_start(30), Reset::Pending);
        other.join().unwrap();
        assert!(matches!(timer.deadline(), Some(60 | 80 | 85)));
        ended(&home, &probe);
    });
}

/// Three threads run, cancel and reset a timer at the same time.
#[test]
fn fire_or_cancel_or_reset() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let canceller = cancels(&timer);
        let mover = thread::spawn(move || timer.reset_at(20));
        let ran = run(due, 5);
        let (cancel, reset) = (canceller.join().unwrap(), mover.join().unwrap());
        let early = probe.runs();
        assert_eq!(matches!(ran, Ran::Fired), early == 1);
        if early == 1 {
            assert_eq!(reset, Reset::TooLate);
        }
        assert_eq!(cancel == Cancel::Cancelled, early == 0);
        expire(&home, 20);
        assert_eq!(probe.runs(), early);
        ended(&home, &probe);
    });
}

/// Two threads reset a timer, and a third runs it. It runs once: at its old deadline only if both
/// resets come too late, and otherwise not before the earlier of the two new deadlines.
#[test]
fn fire_or_two_resets() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let movers = [20, 30].map(|to| {
            let timer = timer.clone();
            thread::spawn(move || timer.reset_at(to))
        });
        run(due, 5);
        let resets = movers.map(|it| it.join().unwrap());
        let early = probe.runs();
        for reset in resets {
            assert_eq!(reset == Reset::TooLate, early == 1);
        }
        expire(&home, 19);
        assert_eq!(probe.runs(), early);
        if early == 0 {
            let deadline = timer.deadline().unwrap();
            assert!(deadline == 20 || deadline == 30);
            expire(&home, deadline - 1);
            assert_eq!(probe.runs(), 0);
            expire(&home, deadline);
        }
        assert_eq!(probe.runs(), 1);
        ended(&home, &probe);
    });
}

/// The holder of a due timer shuts it down while other threads cancel and reset it.
#[test]
fn shutdown_of_a_due_timer_or_cancel_or_reset() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let canceller = cancels(&timer);
        let mover = resets(&timer, 20);
        due.shutdown();
        let cancel = canceller.join().unwrap();
        mover.join().unwrap();
        assert_eq!(probe.runs(), 0);
        let how = match cancel {
            Cancel::Cancelled => Outcome::Cancelled,
            cancel => {
                assert_eq!(cancel, Cancel::Over);
                Outcome::Shutdown
            }
        };
        assert_eq!(timer.status(), Status::Over(how));
        ended(&home, &probe);
    });
}

/// A recurring timer is cancelled while it runs: that run is its last.
#[test]
fn a_recurring_timer_runs_or_is_cancelled() {
    model!(None, || {
        let (home, timer, probe) = recurring();
        let due = due(&home, 5);
        let canceller = thread::spawn(move || {
            let cancel = timer.cancel();
            (cancel, timer.cancel())
        });
        let ran = run(due, 5);
        let (cancel, again) = canceller.join().unwrap();
        assert_eq!(
            again,
            Cancel::Over,
            "the first one ends it, at once or after this run"
        );
        match cancel {
            Cancel::Cancelled => assert_eq!(matches!(ran, Ran::Fired), probe.runs() == 1),
            cancel => {
                assert_eq!(cancel, Cancel::AfterRun);
                assert_eq!(probe.runs(), 1);
            }
        }
        let runs = probe.runs();
        expire(&home, 100);
        assert_eq!(probe.runs(), runs);
        assert_eq!(home.owner().over(Outcome::Cancelled), 1);
        ended(&home, &probe);
    });
}

/// A recurring timer is reset. During a run the reset applies after it; before a run, immediately.
#[test]
fn a_recurring_timer_runs_or_is_moved() {
    model!(None, || {
        let (home, timer, probe) = recurring();
        let due = due(&home, 5);
        let mover = resets(&timer, 50);
        let ran = run(due, 5);
        match mover.join().unwrap() {
            Reset::Pending => {
                assert_eq!(matches!(ran, Ran::PutBack), probe.runs() == 0);
            }
            reset => {
                assert_eq!(reset, Reset::AfterRun);
                assert_eq!(probe.runs(), 1);
            }
        }
        let runs = probe.runs();
        assert_eq!(timer.deadline(), Some(50));
        expire(&home, 49);
        assert_eq!(probe.runs(), runs);
        expire(&home, 50);
        assert_eq!(probe.runs(), runs + 1);
        ended(&home, &probe);
    });
}

/// Three threads run, cancel and reset a recurring timer: two runs never overlap, and none follows
/// the cancel.
#[test]
fn a_recurring_timer_runs_or_is_cancelled_or_moved() {
    model!(Some(3), || {
        let (home, timer, probe) = recurring();
        let due = due(&home, 5);
        let canceller = cancels(&timer);
        let mover = resets(&timer, 20);
        run(due, 5);
        let cancel = canceller.join().unwrap();
        mover.join().unwrap();
        assert!(matches!(cancel, Cancel::Cancelled | Cancel::AfterRun));
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        let runs = probe.runs();
        assert!(runs <= 1);
        expire(&home, 100);
        assert_eq!(probe.runs(), runs);
        ended(&home, &probe);
    });
}

/// A thief runs a recurring timer and re-arms it, and then the owner runs it. The thief may not
/// have returned from the first run yet.
#[test]
fn a_recurring_timer_is_run_by_a_thief_and_then_by_its_owner() {
    model!(Some(3), || {
        let (home, _timer, probe) = recurring();
        let due = due(&home, 5);
        let thief = thread::spawn(move || drop(run(due, 5)));
        expire(&home, 15);
        let early = probe.runs();
        thief.join().unwrap();
        assert!(early <= 2);
        expire(&home, 15);
        assert_eq!(probe.runs(), 2);
        ended(&home, &probe);
    });
}

/// A shard is closed while another thread cancels one of its timers: the timer ends as cancelled or
/// as shut down.
#[test]
fn close_or_cancel() {
    model!(None, || {
        let (home, timer, probe) = once();
        let canceller = cancels(&timer);
        close(&home);
        let cancel = canceller.join().unwrap();
        let how = match cancel {
            Cancel::Cancelled => Outcome::Cancelled,
            _ => Outcome::Shutdown,
        };
        assert_eq!(timer.status(), Status::Over(how));
        assert_eq!(probe.runs(), 0);
        ended(&home, &probe);
    });
}

/// A shard is closed while a thief runs one of its recurring timers: that run is the last.
#[test]
fn close_or_a_recurring_run() {
    model!(None, || {
        let (home, timer, probe) = recurring();
        let due = due(&home, 5);
        let thief = thread::spawn(move || drop(run(due, 5)));
        close(&home);
        thief.join().unwrap();
        assert_eq!(probe.runs(), 1);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        ended(&home, &probe);
    });
}
