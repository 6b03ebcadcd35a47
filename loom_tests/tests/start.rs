//! Starting: if several threads use a timer that was built and not started, one comes first. A
//! timer that was cancelled before its start takes that outcome once, when it is started, and never
//! if it is not.
//!
//! The worker's count shows an outcome that is pending and never delivered, or delivered and not
//! pending. The probe shows a callback that is kept, or dropped twice.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Home, Probe, Worker, cancels, close, expire, model, resets, shard, tell,
};
use tourbillon_shards::{
    Cancel, Flow, Name, Names, Options, Outcome, Reset, Started, Status, Timer,
};

/// Returns a timer that will wait for 5 when started, and its shard, owned by this thread.
fn built(options: Options<Worker>) -> (Home, Timer<Worker>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let callback = probe.told(Flow::Continue(()));
    let timer = Timer::build(&home, 5, options, callback);
    (home, timer, probe)
}

/// Like [`built`], but the timer will wait until the time 20, and has no wait until it is started.
fn built_for_20(options: Options<Worker>) -> (Home, Timer<Worker>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let callback = probe.told(Flow::Continue(()));
    let options = Options {
        deadline: Some(20),
        ..options
    };
    let timer = Timer::build(&home, 0, options, callback);
    (home, timer, probe)
}

fn told() -> Options<Worker> {
    Options {
        outcome: true,
        ..Options::default()
    }
}

/// Closes the shard. Asserts that the callback took these outcomes and was dropped, and that the
/// timer ended once.
fn ended(home: &Home, probe: &Probe, outcomes: &[Outcome]) {
    close(home);
    assert_eq!(probe.outcomes(), outcomes);
    assert_eq!(probe.drops(), 1);
    assert_eq!(home.owner().overs(), 1);
    assert_eq!(home.owner().owes(), 0);
}

/// A timer is started and cancelled at the same time: the cancel wins in either order.
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
        assert_ne!(started, Started::AlreadyStarted);
        canceller.join().unwrap();
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
        ended(&home, &probe, &[]);
    });
}

/// A timer that takes its outcome is started and cancelled at the same time: it takes the outcome
/// in either order, but not on the cancelling thread.
#[test]
fn start_or_cancel_of_a_timer_that_takes_outcomes() {
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
        assert_ne!(timer.start(0), Started::AlreadyStarted);
        canceller.join().unwrap();
        tell(&home);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(timer.start(0), Started::Cancelled);
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// Two threads cancel while one starts: one cancel wins, and the timer takes one outcome.
#[test]
fn start_or_two_cancels_of_a_timer_that_takes_outcomes() {
    model!(Some(3), || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let cancellers =
            [timer.clone(), timer.clone()].map(|it| thread::spawn(move || it.cancel()));
        assert_ne!(timer.start(0), Started::AlreadyStarted);
        let answers = cancellers.map(|it| it.join().unwrap());
        let won = answers.iter().filter(|&&it| it == Cancel::Cancelled);
        assert_eq!(won.count(), 1);
        tell(&home);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// Two threads start a timer: one of the starts counts.
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
            Started::Pending => (5, (here, there)),
            _ => (15, (there, here)),
        };
        assert_eq!(answers, (Started::Pending, Started::AlreadyStarted));
        assert_eq!(timer.deadline(), Some(deadline));
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// A timer is reset before or after its start. Before it, the timer has no deadline that the reset
/// could change.
#[test]
fn start_or_reset() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let timer = Arc::new(timer);
        let mover = resets(&timer, 20);
        assert_eq!(timer.start(0), Started::Pending);
        let deadline = match mover.join().unwrap() {
            Reset::NotStarted => 5,
            reset => {
                assert_eq!(reset, Reset::Pending);
                20
            }
        };
        expire(&home, deadline - 1);
        assert_eq!(probe.runs(), 0);
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// A timer is refreshed by its name while another thread starts it for a given time. It waits until
/// that time, or for its whole wait again. A refresh that reads the wait too early finds none.
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
        assert_eq!(timer.start(0), Started::Pending);
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

/// A thread reads the clock, and then refreshes a timer by its name while another thread starts it:
/// the timer waits at least its wait from its start.
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
        assert_eq!(timer.start(now), Started::Pending);
        home.owner().now();
        other.join().unwrap();
        let deadline = timer.deadline().unwrap();
        assert!(deadline >= now + 5, "started at {now}, due at {deadline}");
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// A timer gets another wait while another thread starts it for a given time: the new wait counts
/// from the start.
#[test]
fn start_or_reset_from_start() {
    model!(None, || {
        let (home, timer, probe) = built_for_20(told());
        let timer = Arc::new(timer);
        let mover = thread::spawn({
            let timer = timer.clone();
            move || timer.reset_from_start(30)
        });
        assert_eq!(timer.start(0), Started::Pending);
        let deadline = match mover.join().unwrap() {
            Reset::NotStarted => 20,
            reset => {
                assert_eq!(reset, Reset::Pending);
                30
            }
        };
        assert_eq!((timer.deadline(), timer.wait()), (Some(deadline), deadline));
        expire(&home, deadline);
        ended(&home, &probe, &[Outcome::Fired]);
    });
}

/// A timer is started on a shard that is being closed: the closer or the starter delivers that
/// outcome.
#[test]
fn start_or_close() {
    model!(None, || {
        let (home, timer, probe) = built(told());
        let starter = thread::spawn(move || {
            let started = timer.start(0);
            assert!(matches!(started, Started::Pending | Started::Shutdown));
            timer
        });
        close(&home);
        let timer = starter.join().unwrap();
        tell(&home);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(timer.start(0), Started::Shutdown);
        ended(&home, &probe, &[Outcome::Shutdown]);
    });
}

/// One thread starts a timer, another cancels it, and the owner takes the due timers.
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
        assert_ne!(starter.join().unwrap(), Started::AlreadyStarted);
        let cancel = canceller.join().unwrap();
        tell(&home);
        let how = match cancel {
            Cancel::Cancelled => Outcome::Cancelled,
            _ => Outcome::Fired,
        };
        ended(&home, &probe, &[how]);
    });
}

/// A timer is started while another thread cancels it by its name.
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
        assert_ne!(timer.start(0), Started::AlreadyStarted);
        assert_eq!(canceller.join().unwrap(), 1);
        tell(&home);
        assert_eq!(names.list(), []);
        ended(&home, &probe, &[Outcome::Cancelled]);
    });
}

/// A timer is dropped before its start, while another thread cancels it by its name: its callback
/// is dropped and takes no outcome.
#[test]
fn an_abandoned_one_is_cancelled_by_name() {
    model!(None, || abandoned(Options::default()));
}

/// A timer that takes outcomes is dropped before its start, while another thread cancels it by
/// its name: its callback is dropped and takes no outcome.
#[test]
fn an_abandoned_timer_that_takes_outcomes_is_cancelled_by_name() {
    model!(None, || abandoned(told()));
}

/// A timer is dropped before its start while another thread refreshes it by its name: it is not
/// found any more.
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
