//! Cancelling a task while another thread runs it, or wakes it: its future is dropped once, by a thread
//! that runs it, and never polled after that.
//!
//! The task is run by the first thread, which changes the word the most (see `README.md`).
#![cfg(loom)]

use std::task::Poll;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use loom_tests::{Executor, Tally, counted, model, run_queued, spawned};

/// Runs a task that is pending for ever, or for `polls`, while it is cancelled.
fn cancelled(polls: usize, wakes: bool) {
    let (executor, drops) = (Executor::new(), Tally::default());
    let mut left = polls;
    let (runnable, join) = spawned(
        &executor,
        counted(&drops, move |_| {
            if left == 0 {
                return Poll::Ready(7);
            }
            left -= 1;
            Poll::Pending
        }),
    );
    let task = join.reference();
    let cancels = thread::spawn(move || task.cancel());
    let waker = join.waker();
    let woken = wakes.then(|| thread::spawn(move || waker.wake()));
    runnable.run();
    run_queued(&executor);
    cancels.join().unwrap();
    if let Some(woken) = woken {
        woken.join().unwrap();
    }
    run_queued(&executor);
    assert!(join.has_ended(), "it was cancelled");
    assert_eq!(drops.get(), 1);
    match join.into_output() {
        None => assert!(polls > 0 || drops.get() == 1),
        Some(output) => assert_eq!(output.unwrap(), 7),
    }
}

#[test]
fn what_waits_for_ever_ends_when_it_is_cancelled() {
    model!(None, || cancelled(usize::MAX, false));
}

#[test]
fn what_is_ready_at_once_ends_in_one_way_or_the_other() {
    model!(None, || cancelled(0, false));
}

#[test]
fn what_is_woken_and_cancelled_ends() {
    model!(Some(2), || cancelled(usize::MAX, true));
}

#[test]
fn who_drops_the_future_sees_why_the_task_was_cancelled() {
    model!(None, || {
        let executor = Executor::new();
        let why = Arc::new(AtomicBool::new(false));
        let (runnable, mut join) = spawned(&executor, std::future::pending::<()>());
        let (task, told) = (join.reference(), why.clone());
        let cancels = thread::spawn(move || {
            told.store(true, Relaxed);
            task.cancel();
        });
        let (queue, other) = (executor.clone(), join.reference());
        let runs = thread::spawn(move || {
            runnable.run();
            run_queued(&queue);
            drop(other);
        });
        let waker = futures_waker();
        if join
            .poll_ended(&mut std::task::Context::from_waker(&waker))
            .is_ready()
        {
            // What the canceller has written comes to the joiner by way of the thread that ends the task.
            assert!(why.load(Relaxed));
        }
        cancels.join().unwrap();
        runs.join().unwrap();
        run_queued(&executor);
        assert!(join.into_output().is_none());
    });
}

/// A waker that does nothing.
fn futures_waker() -> std::task::Waker {
    std::task::Waker::noop().clone()
}

#[test]
fn a_runnable_that_is_dropped_beside_a_canceller_ends_the_task() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runnable, join) = spawned(&executor, counted(&drops, |_| Poll::<()>::Pending));
        let task = join.reference();
        let cancels = thread::spawn(move || task.cancel());
        drop(runnable);
        cancels.join().unwrap();
        assert_eq!(run_queued(&executor), 0);
        assert_eq!(drops.get(), 1);
        assert!(join.into_output().is_none());
    });
}
