//! Outcomes: a callback that takes outcomes is called exactly once with the outcome that won, on a
//! thread that runs callbacks. The answer of `cancel` agrees with it.
//!
//! The worker keeps the outcomes that are delivered to it, and the model calls the callbacks at the
//! end. An outcome that is not delivered shows in the worker's count and as a leak; one that two
//! threads deliver as a causality violation.
#![cfg(loom)]

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Home, Probe, Worker, close, due, expire, model, resets, run, shard, tell,
};
use tourbillon_shards::{Cancel, Flow, Options, Outcome, Reset, Started, Status, Timer};

const GO_ON: Flow = Flow::Continue(());

/// Returns a timer that takes its outcome, with deadline 5 (and period 5), and its shard, owned by
/// this thread.
fn told(recurring: bool, answer: Flow) -> (Home, Arc<Timer<Worker>>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let options = Options {
        outcome: true,
        recurring,
        ..Options::default()
    };
    let timer = Timer::build(&home, 5, options, probe.told(answer));
    assert_eq!(timer.start(0), Started::Pending);
    (home, Arc::new(timer), probe)
}

/// Cancels in another thread, and asserts that this thread does not call the callback.
fn cancel(timer: &Arc<Timer<Worker>>, probe: &Probe) -> thread::JoinHandle<Cancel> {
    let (timer, probe) = (timer.clone(), probe.clone());
    thread::spawn(move || {
        let cancel = timer.cancel();
        assert!(!probe.was_told_here());
        cancel
    })
}

/// Delivers all outcomes. Asserts that the callback got exactly these, and that the timer ended
/// once.
fn ended(home: &Home, timer: &Timer<Worker>, probe: &Probe, outcomes: &[Outcome]) {
    tell(home);
    assert_eq!(probe.outcomes(), outcomes);
    assert_eq!(timer.status(), Status::Over(*outcomes.last().unwrap()));
    assert_eq!(home.owner().owes(), 0);
    close(home);
    assert_eq!(probe.outcomes(), outcomes);
    assert_eq!(probe.drops(), 1);
    assert_eq!(home.owner().overs(), 1);
}

/// Returns how a timer ends if one thread cancels it and another ends it as `how`.
fn unless_cancelled(cancel: Cancel, how: Outcome) -> Outcome {
    match cancel {
        Cancel::Cancelled => Outcome::Cancelled,
        Cancel::Running | Cancel::Over => how,
        Cancel::AfterRun => unreachable!("it does not recur"),
    }
}

/// A timer fires, or takes the outcome of a cancel, as the answer of the cancel says.
#[test]
fn fire_or_cancel() {
    model!(None, || {
        let (home, timer, probe) = told(false, GO_ON);
        let canceller = cancel(&timer, &probe);
        expire(&home, 5);
        let how = unless_cancelled(canceller.join().unwrap(), Outcome::Fired);
        ended(&home, &timer, &probe, &[how]);
        expire(&home, 5);
        assert_eq!(home.stored(), 0);
    });
}

/// Of two cancels one wins, and only if the timer does not run.
#[test]
fn run_or_two_cancels() {
    model!(Some(3), || {
        let (home, timer, probe) = told(false, GO_ON);
        let due = due(&home, 5);
        let cancellers = [cancel(&timer, &probe), cancel(&timer, &probe)];
        run(due, 5);
        let answers = cancellers.map(|it| it.join().unwrap());
        let won = answers.iter().filter(|&&it| it == Cancel::Cancelled);
        let how = match won.count() {
            0 => Outcome::Fired,
            won => {
                assert_eq!(won, 1);
                Outcome::Cancelled
            }
        };
        ended(&home, &timer, &probe, &[how]);
    });
}

/// The closer delivers `Shutdown`, or the canceller has `Cancelled` delivered.
#[test]
fn close_or_cancel() {
    model!(None, || {
        let (home, timer, probe) = told(false, GO_ON);
        let canceller = cancel(&timer, &probe);
        close(&home);
        let how = unless_cancelled(canceller.join().unwrap(), Outcome::Shutdown);
        ended(&home, &timer, &probe, &[how]);
    });
}

/// The holder of a due timer shuts it down while other threads cancel and reset it.
#[test]
fn shutdown_of_a_due_timer_or_cancel_or_reset() {
    model!(Some(3), || {
        let (home, timer, probe) = told(false, GO_ON);
        let due = due(&home, 5);
        let canceller = cancel(&timer, &probe);
        let mover = thread::spawn({
            let timer = timer.clone();
            move || assert_ne!(timer.reset_at(20), Reset::AfterRun)
        });
        due.shutdown();
        mover.join().unwrap();
        let how = unless_cancelled(canceller.join().unwrap(), Outcome::Shutdown);
        ended(&home, &timer, &probe, &[how]);
    });
}

/// The holder of a due timer cancels it, while another thread resets it: the timer waits on, or
/// takes the outcome.
#[test]
fn a_due_timer_is_cancelled_by_its_holder_or_moved() {
    model!(None, || {
        let (home, timer, probe) = told(false, GO_ON);
        let due = due(&home, 5);
        let mover = resets(&timer, 20);
        due.cancel();
        let how = match mover.join().unwrap() {
            Reset::Pending => Outcome::Fired,
            _ => Outcome::Cancelled,
        };
        expire(&home, 20);
        ended(&home, &timer, &probe, &[how]);
    });
}

/// Three threads run, cancel and reset a timer at the same time.
#[test]
fn run_or_cancel_or_reset() {
    model!(Some(3), || {
        let (home, timer, probe) = told(false, GO_ON);
        let due = due(&home, 5);
        let canceller = cancel(&timer, &probe);
        let mover = resets(&timer, 20);
        run(due, 5);
        mover.join().unwrap();
        let how = unless_cancelled(canceller.join().unwrap(), Outcome::Fired);
        expire(&home, 20);
        ended(&home, &timer, &probe, &[how]);
    });
}

/// A recurring timer takes the outcome of each run, and then the outcome of its end, once.
#[test]
fn a_recurring_one_runs_or_is_cancelled() {
    model!(None, || {
        let (home, timer, probe) = told(true, GO_ON);
        let due = due(&home, 5);
        let canceller = cancel(&timer, &probe);
        let ran = run(due, 5);
        let cancel = canceller.join().unwrap();
        assert!(matches!(cancel, Cancel::Cancelled | Cancel::AfterRun));
        match probe.runs() {
            0 => assert_eq!(cancel, Cancel::Cancelled, "{ran:?}"),
            runs => assert_eq!(runs, 1 + usize::from(cancel == Cancel::AfterRun)),
        }
        expire(&home, 100);
        let fired = probe.outcomes().contains(&Outcome::Fired);
        let outcomes = [Outcome::Fired, Outcome::Cancelled];
        ended(&home, &timer, &probe, &outcomes[usize::from(!fired)..]);
    });
}

/// A recurring timer ends itself and takes no further outcome. If the cancel comes first, the
/// timer takes `Cancelled` instead.
#[test]
fn a_recurring_one_ends_itself_or_is_cancelled() {
    model!(None, || {
        let (home, timer, probe) = told(true, Flow::Break(Outcome::Fired));
        let due = due(&home, 5);
        let canceller = cancel(&timer, &probe);
        run(due, 5);
        let how = match canceller.join().unwrap() {
            Cancel::Cancelled => Outcome::Cancelled,
            _ => Outcome::Fired,
        };
        ended(&home, &timer, &probe, &[how]);
    });
}

/// A recurring timer runs while its shard is closed: it takes the outcome of the run, and then
/// `Shutdown`.
#[test]
fn a_recurring_one_runs_while_the_shard_is_closed() {
    model!(None, || {
        let (home, timer, probe) = told(true, GO_ON);
        let due = due(&home, 5);
        let thief = thread::spawn(move || drop(run(due, 5)));
        close(&home);
        thief.join().unwrap();
        ended(&home, &timer, &probe, &[Outcome::Fired, Outcome::Shutdown]);
    });
}

/// A recurring timer runs while its shard is closed and another thread cancels the timer: it
/// takes the outcome of the run, if it ran, and then the outcome of the cancel or of the closing.
#[test]
fn a_recurring_one_runs_or_is_cancelled_while_the_shard_is_closed() {
    model!(Some(3), || {
        let (home, timer, probe) = told(true, GO_ON);
        let due = due(&home, 5);
        let thief = thread::spawn(move || drop(run(due, 5)));
        let canceller = cancel(&timer, &probe);
        close(&home);
        thief.join().unwrap();
        let last = match canceller.join().unwrap() {
            Cancel::Cancelled | Cancel::AfterRun => Outcome::Cancelled,
            _ => Outcome::Shutdown,
        };
        tell(&home);
        let fired = probe.outcomes().contains(&Outcome::Fired);
        ended(
            &home,
            &timer,
            &probe,
            &[Outcome::Fired, last][usize::from(!fired)..],
        );
    });
}
