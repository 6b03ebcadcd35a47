//! Cancelling a task while another thread runs it, or wakes it: its future is dropped once, by a
//! thread that runs it, and never polled after that.
//!
//! The task is run by the first thread, which changes the word the most (see `README.md`).
#![cfg(loom)]

use std::task::{Context, Poll, Waker};

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};
use loom_tests::{Executor, Tally, counted, model, run_queued, spawned};

/// Runs a task that is pending for ever, or for `polls` polls, while another thread cancels it.
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
    let output = join.into_output().map(Result::unwrap);
    assert!(output.is_none() || (polls == 0 && output == Some(7)));
}

#[test]
fn a_task_that_waits_for_ever_ends_when_it_is_cancelled() {
    model!(None, || cancelled(usize::MAX, false));
}

#[test]
fn a_task_that_is_ready_at_once_ends_or_is_cancelled() {
    model!(None, || cancelled(0, false));
}

#[test]
fn a_task_that_is_woken_and_cancelled_ends() {
    model!(Some(2), || cancelled(usize::MAX, true));
}

#[test]
fn a_joiner_sees_why_the_task_was_cancelled() {
    model!(Some(2), || {
        let executor = Executor::new();
        let why = Arc::new(AtomicBool::new(false));
        let (runnable, mut join) = spawned(&executor, std::future::pending::<()>());
        let (task, told) = (join.reference(), why.clone());
        let cancels = thread::spawn(move || {
            told.store(true, Relaxed);
            task.cancel();
        });
        let runs = thread::spawn(move || runnable.run());
        let cx = &mut Context::from_waker(Waker::noop());
        if join.poll_ended(cx).is_ready() {
            // The canceller wrote it, and the thread that ended the task passed it on.
            assert!(why.load(Relaxed));
        }
        cancels.join().unwrap();
        runs.join().unwrap();
        run_queued(&executor);
        assert!(join.into_output().is_none());
    });
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
