//! `Timer::ended`: a thread that waits for the end of a callback is woken, and the callback is no
//! longer in use then.
//!
//! A lost wake-up shows as a deadlock of the waiter. One that comes too early shows as a causality
//! violation, since the waiter then uses the callback's memory.
#![cfg(loom)]

use std::{
    pin::{Pin, pin},
    sync::{Arc as Plain, Mutex},
    task::{Context, Poll, Waker},
};

use loom::{sync::Arc, thread};
use loom_tests::{
    EventLoop, Home, Probe, Task, Worker, close, due, expire, model, run, shard, tell, tell_one,
    wait_for_the_end,
};
use tourbillon_shards::{
    Cancel, Due, Ended, Flow, InsideCallback, Options, Outcome, Started, Status, Timer,
};

/// A timer with deadline 5 and period 5, and its shard, owned by this thread.
fn timer(options: Options<Worker>) -> (Home, Arc<Timer<Worker>>, Probe) {
    let home = shard();
    EventLoop::new(&home);
    let probe = Probe::new();
    let callback = probe.told(Flow::Continue(()));
    let timer = Timer::build(&home, 5, options, callback);
    assert_eq!(timer.start(0), Started::Pending);
    (home, Arc::new(timer), probe)
}

fn once() -> (Home, Arc<Timer<Worker>>, Probe) {
    timer(Options::default())
}

/// Runs a due timer in another thread.
fn elsewhere(due: Due<Worker>) -> thread::JoinHandle<()> {
    thread::spawn(move || drop(run(due, 5)))
}

fn poll(ended: &mut Pin<&mut Ended<Worker>>, waker: &Waker) -> Poll<Result<(), InsideCallback>> {
    ended.as_mut().poll(&mut Context::from_waker(waker))
}

/// A thread that cancels too late waits for the run.
#[test]
fn a_canceller_waits_for_the_run() {
    model!(None, || {
        let (home, timer, probe) = once();
        let runner = elsewhere(due(&home, 5));
        let cancel = timer.cancel();
        wait_for_the_end(&timer);
        probe.touch();
        match cancel {
            Cancel::Cancelled => assert_eq!(probe.runs(), 0),
            _ => assert_eq!(timer.status(), Status::Over(Outcome::Fired)),
        }
        runner.join().unwrap();
        assert_eq!(probe.drops(), 1);
        close(&home);
    });
}

/// Two threads wait; each is woken.
#[test]
fn two_wait_for_the_run() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let waiters = [timer.clone(), timer].map(|timer| {
            let probe = probe.clone();
            thread::spawn(move || {
                if timer.cancel() == Cancel::Running {
                    wait_for_the_end(&timer);
                    assert_eq!(probe.drops(), 1);
                }
            })
        });
        run(due, 5);
        waiters.into_iter().for_each(|it| it.join().unwrap());
        probe.touch();
        close(&home);
    });
}

/// One of two waiters gives up. The other one still gets its wake-up.
#[test]
fn a_waiter_gives_up() {
    model!(Some(3), || {
        let (home, timer, probe) = once();
        let due = due(&home, 5);
        let other = thread::spawn({
            let timer = timer.clone();
            move || {
                let (task, waker) = Task::new();
                let _ = poll(&mut pin!(timer.ended()), &waker);
                drop(waker);
                // The thread that took the waker may be using it still.
                task
            }
        });
        let waiter = thread::spawn({
            let probe = probe.clone();
            move || {
                if timer.cancel() != Cancel::Cancelled {
                    wait_for_the_end(&timer);
                    probe.touch();
                }
            }
        });
        run(due, 5);
        waiter.join().unwrap();
        let task = other.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(Plain::strong_count(&task), 1);
        close(&home);
    });
}

/// The waiter polls again with another waker: the timer wakes the second one.
#[test]
fn the_waker_changes() {
    model!(None, || {
        let (home, timer, probe) = once();
        let runner = elsewhere(due(&home, 5));
        timer.cancel();
        let mut ended = pin!(timer.ended());
        let (first, second) = (Task::new(), Task::new());
        if poll(&mut ended, &first.1).is_pending() {
            while poll(&mut ended, &second.1).is_pending() {
                second.0.sleep();
            }
        }
        probe.touch();
        runner.join().unwrap();
        close(&home);
    });
}

/// A recurring timer is cancelled before, during or after a run.
#[test]
fn a_canceller_waits_for_a_recurring_timer() {
    model!(None, || {
        let (home, timer, probe) = timer(Options {
            recurring: true,
            ..Options::default()
        });
        let runner = elsewhere(due(&home, 5));
        let cancel = timer.cancel();
        assert!(matches!(cancel, Cancel::Cancelled | Cancel::AfterRun));
        wait_for_the_end(&timer);
        probe.touch();
        assert_eq!(probe.drops(), 1);
        runner.join().unwrap();
        close(&home);
        assert_eq!(home.owner().over(Outcome::Cancelled), 1);
    });
}

/// A recurring timer with an outcome is cancelled while it runs: the canceller waits until the
/// outcome is delivered, too.
#[test]
fn a_canceller_waits_for_a_recurring_timer_that_takes_outcomes() {
    model!(None, || {
        let (home, timer, probe) = timer(Options {
            recurring: true,
            outcome: true,
            ..Options::default()
        });
        let runner = elsewhere(due(&home, 5));
        if timer.cancel() == Cancel::AfterRun {
            wait_for_the_end(&timer);
            assert_eq!(probe.outcomes(), [Outcome::Fired, Outcome::Cancelled]);
            probe.touch();
        }
        runner.join().unwrap();
        tell(&home);
        assert_eq!(home.owner().owes(), 0);
        close(&home);
    });
}

/// A timer was cancelled, and a worker delivers the outcome. A thread that waits for the delivery
/// may use the callback's memory afterwards.
#[test]
fn a_canceller_waits_until_the_outcome_is_delivered() {
    model!(None, || {
        let (home, timer, probe) = timer(Options {
            outcome: true,
            ..Options::default()
        });
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        let notice = home.owner().notice().unwrap();
        let worker = thread::spawn(move || tell_one(notice));
        wait_for_the_end(&timer);
        assert_eq!(probe.outcomes(), [Outcome::Cancelled]);
        probe.touch();
        worker.join().unwrap();
        expire(&home, 5);
        close(&home);
    });
}

/// The shard is closed before a thread cancels: the thread waits until the callback has taken
/// `Shutdown`.
#[test]
fn a_waiter_is_woken_when_the_shard_is_closed() {
    model!(None, || {
        let (home, timer, probe) = timer(Options {
            outcome: true,
            ..Options::default()
        });
        let waiter = thread::spawn({
            let (timer, probe) = (timer.clone(), probe.clone());
            move || {
                if timer.cancel() == Cancel::Over {
                    wait_for_the_end(&timer);
                    assert_eq!(probe.outcomes(), [Outcome::Shutdown]);
                    probe.touch();
                }
            }
        });
        close(&home);
        waiter.join().unwrap();
        tell(&home);
        assert_eq!(home.owner().owes(), 0);
    });
}

/// A poll of `ended` in the callback itself returns `InsideCallback`, and does not disturb a
/// waiter outside.
#[test]
fn a_poll_inside_the_callback_is_an_error() {
    model!(None, || {
        let home = shard();
        EventLoop::new(&home);
        let probe = Probe::new();
        let own = Plain::new(Mutex::new(None::<Arc<Timer<Worker>>>));
        let timer = Arc::new(Timer::once(&home, 5, 5, {
            let own = own.clone();
            let mut run = probe.told(Flow::Continue(()));
            move || {
                let own = own.lock().unwrap().take().unwrap();
                let (task, waker) = Task::new();
                let inside = poll(&mut pin!(own.ended()), &waker);
                assert_eq!(inside, Poll::Ready(Err(InsideCallback)));
                let _ = run(Outcome::Fired);
                assert_eq!(task.wakes(), 0);
            }
        }));
        *own.lock().unwrap() = Some(timer.clone());
        let due = due(&home, 5);
        let waiter = thread::spawn({
            let probe = probe.clone();
            move || {
                wait_for_the_end(&timer);
                if timer.status() == Status::Over(Outcome::Fired) {
                    probe.touch();
                }
            }
        });
        run(due, 5);
        waiter.join().unwrap();
        close(&home);
        own.lock().unwrap().take();
    });
}
