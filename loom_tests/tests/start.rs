//! Starting: of all that happens to a timer that was built and not started, one comes first; and
//! one that was cancelled before is told of it when it is started, once, or never if it is not.
//!
//! What is owed and never told, or told and not owed, shows in the worker's count; a callback that
//! is kept, or dropped twice, in its probe.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Home, Probe, Worker, cancels, close, expire, model, resets, shard, tell,
};
use tourbillon_shards::{
    Cancel, Flow, Name, Names, Options, Outcome, Reset, Started, Status, Timer,
};

/// A timer that will wait for 5 when started, and its shard, owned by this thread.
fn built(options: Options<Worker>) -> (Home, Timer<Worker>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let callback = probe.told(Flow::Continue(()));
    let timer = Timer::build(&home, 5, None, options, callback);
    (home, timer, probe)
}

/// The same, but it will wait for the moment 20, and has no wait until it is started.
fn built_for_20(options: Options<Worker>) -> (Home, Timer<Worker>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let callback = probe.told(Flow::Continue(()));
    let timer = Timer::build(&home, 0, Some(20), options, callback);
    (home, timer, probe)
}

fn told() -> Options<Worker> {
    Options {
        outcome: true,
        ..Options::default()
    }
}

/// Closes the shard; after that the callback has been told this, dropped, and the timer counted.
fn ended(home: &Home, probe: &Probe, outcomes: &[Outcome]) {
    close(home);
    assert_eq!(probe.outcomes(), outcomes);
    assert_eq!(probe.drops(), 1);
    assert_eq!(home.owner().overs(), 1);
    assert_eq!(home.owner().owes(), 0);
}

/// Either way the cancel wins.
#[test]
fn start_or_cancel() {
    model!(None, || {
        let (home, timer, probe) = built(Options::default());
        let timer = Arc::new(timer);
        let canceller = thread::spawn({
            let timer = timer.clone();
            move || assert_eq!(timer.cancel(), Cancel::Cancelled)
        });
        let started = timer.start(0);
        assert_ne!(started, Started::TooLate);
        canceller.join().unwrap();
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
        ended(&home, &probe, &[]);
    });
}

/// Cancelled before or after it was started it is told so, and not by who cancels.
#[test]
fn start_or_cancel_of_one_that_is_told() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let canceller = thread::spawn({
            let (timer, probe) = (timer.clone(), probe.clone());
            move || {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
                assert!(!probe.was_told_here());
            }
        });
        assert_ne!(timer.start(0), Started::TooLate);
        canceller.join().unwrap();
        tell(&home);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(timer.start(0), Started::Cancelled);
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// Of two cancels one wins, and it is told once.
#[test]
fn start_or_two_cancels_of_one_that_is_told() {
    model!(Some(3), || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let cancellers =
            [timer.clone(), timer.clone()].map(|it| thread::spawn(move || it.cancel()));
        assert_ne!(timer.start(0), Started::TooLate);
        let answers = cancellers.map(|it| it.join().unwrap());
        let won = answers.iter().filter(|&&it| it == Cancel::Cancelled);
        assert_eq!(won.count(), 1);
        tell(&home);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// One of two starts counts.
#[test]
fn two_starts() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let other = thread::spawn({
            let timer = timer.clone();
            move || timer.start(10)
        });
        let here = timer.start(0);
        let there = other.join().unwrap();
        let (deadline, answers) = match here {
            Started::Waiting => (5, (here, there)),
            _ => (15, (there, here)),
        };
        assert_eq!(answers, (Started::Waiting, Started::TooLate));
        assert_eq!(timer.deadline(), Some(deadline));
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// Moved before, or after: a timer that was not started has no deadline to move.
#[test]
fn start_or_reset() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let mover = resets(&timer, 20);
        assert_eq!(timer.start(0), Started::Waiting);
        let deadline = match mover.join().unwrap() {
            Reset::NotStarted => 5,
            reset => {
                assert_eq!(reset, Reset::Waiting);
                20
            }
        };
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// Refreshed by its name while it is started for a moment: it waits for that, or a whole wait anew.
/// A wait that is read too early is none.
#[test]
fn start_or_refresh_by_name() {
    model!(None, || {
        let names = Arc::new(Names::new(1));
        let (home, timer, probe) = built_for_20(Options {
            name: Some(Name::new(&names, "n")),
            ..told()
        });
        let other = thread::spawn({
            let names = names.clone();
            move || names.refresh("n", || 5)
        });
        assert_eq!(timer.start(0), Started::Waiting);
        let deadline = match other.join().unwrap() {
            0 => 20,
            _ => 25,
        };
        assert_eq!((timer.deadline(), timer.wait()), (Some(deadline), 20));
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// Started while a thread that has read the clock before refreshes it by its name: it waits no less
/// than its wait from its start.
#[test]
fn start_or_refresh_by_name_is_never_early() {
    model!(None, || {
        let names = Arc::new(Names::new(1));
        let (home, timer, probe) = built(Options {
            name: Some(Name::new(&names, "n")),
            ..Options::default()
        });
        let other = thread::spawn({
            let (names, home) = (names.clone(), home.clone());
            move || names.refresh("n", || home.owner().past())
        });
        let now = home.owner().now();
        assert_eq!(timer.start(now), Started::Waiting);
        home.owner().now();
        other.join().unwrap();
        let deadline = timer.deadline().unwrap();
        assert!(deadline >= now + 5, "started at {now}, due at {deadline}");
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// Given another wait while it is started for a moment: its wait began when it was started.
#[test]
fn start_or_reset_from_start() {
    model!(None, || {
        let (home, timer, probe) = built_for_20(told());
        let timer = Arc::new(timer);
        let mover = thread::spawn({
            let timer = timer.clone();
            move || timer.reset_from_start(30)
        });
        assert_eq!(timer.start(0), Started::Waiting);
        let deadline = match mover.join().unwrap() {
            Reset::NotStarted => 20,
            reset => {
                assert_eq!(reset, Reset::Waiting);
                30
            }
        };
        assert_eq!((timer.deadline(), timer.wait()), (Some(deadline), deadline));
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// Started on a shard that is being closed: it is told that, by the closer or by who starts it.
#[test]
fn start_or_close() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let starter = thread::spawn(move || {
            assert_eq!(timer.start(0), Started::Waiting);
            timer
        });
        close(&home);
        let timer = starter.join().unwrap();
        tell(&home);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        ended(&home, &probe, &[Outcome::Shutdown]);
    });
}

/// Started by another thread, cancelled by a third, while the owner takes what is due.
#[test]
fn start_or_cancel_or_expire() {
    model!(Some(3), || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let starter = thread::spawn({
            let timer = timer.clone();
            move || timer.start(0)
        });
        let canceller = cancels(&timer);
        expire(&home, 5);
        assert_ne!(starter.join().unwrap(), Started::TooLate);
        let cancel = canceller.join().unwrap();
        tell(&home);
        let how = match cancel {
            Cancel::Cancelled => Outcome::Cancelled,
            _ => Outcome::Fired,
        };
        ended(&home, &probe, &[how]);
    });
}

/// Started while it is cancelled by its name.
#[test]
fn start_or_cancel_by_name() {
    model!(None, || {
        let names = Arc::new(Names::new(1));
        let (home, timer, probe) = built(Options {
            name: Some(Name::new(&names, "n")),
            ..told()
        });
        let canceller = thread::spawn({
            let names = names.clone();
            move || names.cancel("n", 9)
        });
        assert_ne!(timer.start(0), Started::TooLate);
        assert_eq!(canceller.join().unwrap(), 1);
        tell(&home);
        assert_eq!(names.list(), []);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// Dropped without having been started, while it is cancelled by its name: its callback goes, and
/// is told nothing.
#[test]
fn an_abandoned_one_is_cancelled_by_name() {
    model!(None, || abandoned(Options::default()));
}

/// The same with one that would have been told.
#[test]
fn an_abandoned_one_that_is_told_is_cancelled_by_name() {
    model!(None, || abandoned(told()));
}

/// Dropped without having been started while it is looked for: it is not found any more.
#[test]
fn an_abandoned_one_is_refreshed_by_name() {
    model!(None, || {
        let names = Arc::new(Names::new(1));
        let (home, timer, probe) = built(Options {
            name: Some(Name::new(&names, "n")),
            ..told()
        });
        let other = thread::spawn({
            let names = names.clone();
            move || assert_eq!(names.refresh("n", || 5), 0)
        });
        drop(timer);
        other.join().unwrap();
        assert_eq!(names.list(), []);
        ended(&home, &probe, &[]);
    });
}

fn abandoned(options: Options<Worker>) {
    let names = Arc::new(Names::new(1));
    let (home, timer, probe) = built(Options {
        name: Some(Name::new(&names, "n")),
        ..options
    });
    let canceller = thread::spawn({
        let names = names.clone();
        move || names.cancel("n", 9)
    });
    drop(timer);
    assert!(canceller.join().unwrap() <= 1);
    assert_eq!(names.list(), []);
    assert_eq!(home.owner().over(Outcome::Cancelled), 1);
    ended(&home, &probe, &[]);
}
