//! Joining a task, or dropping its handle, while another thread ends it. Either one thread takes
//! the output, and sees all that made it, or the output is dropped once. A task that waits is
//! woken.
#![cfg(loom)]

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use loom::{cell::UnsafeCell, thread};
use loom_tests::{AtDrop, Executor, Meta, Tally, model, run_queued, spawned};
use tourbillon_tasks::{Join, Runnable};

/// An output for which loom checks each read.
struct Output {
    value: UnsafeCell<usize>,
    _dropped: AtDrop,
}

// SAFETY: loom checks each access.
unsafe impl Send for Output {}

impl Output {
    fn read(&self) -> usize {
        // SAFETY: loom checks that no thread writes at the same time.
        self.value.with(|value| unsafe { *value })
    }
}

fn output(drops: &Tally) -> impl Future<Output = Output> + Send + use<> {
    let _dropped = drops.at_drop();
    async move {
        Output {
            value: UnsafeCell::new(7),
            _dropped,
        }
    }
}

/// Waits for a task, and passes on its output.
struct Waits(Option<Join<Output, Meta>>);

impl Future for Waits {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let Some(join) = &mut self.0 else {
            panic!("it was ready")
        };
        if join.poll_ended(cx).is_pending() {
            return Poll::Pending;
        }
        let output = self.0.take().and_then(Join::into_output);
        Poll::Ready(
            output
                .expect("it has an output")
                .expect("it did not panic")
                .read(),
        )
    }
}

/// Returns a task, another one that waits for it, and the join of the second. Neither has run.
fn pair(executor: &Meta, drops: &Tally) -> (Runnable<Meta>, Runnable<Meta>, Join<usize, Meta>) {
    let (runs, join) = spawned(executor, output(drops));
    let (waits, joined) = spawned(executor, Waits(Some(join)));
    (runs, waits, joined)
}

#[test]
fn a_joiner_is_woken_and_sees_the_output() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runs, waits, joined) = pair(&executor, &drops);
        let runner = thread::spawn(move || runs.run());
        waits.run();
        run_queued(&executor);
        runner.join().unwrap();
        run_queued(&executor);
        assert!(joined.has_ended(), "it was not woken");
        assert_eq!(joined.into_output().map(Result::unwrap), Some(7));
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn the_waker_is_replaced_as_the_task_ends() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runs, mut join) = spawned(&executor, output(&drops));
        // No task waits with the first waker.
        let nobody = std::task::Waker::noop();
        assert!(
            join.poll_ended(&mut Context::from_waker(nobody))
                .is_pending()
        );
        let (waits, joined) = spawned(&executor, Waits(Some(join)));
        let runner = thread::spawn(move || runs.run());
        waits.run();
        run_queued(&executor);
        runner.join().unwrap();
        run_queued(&executor);
        assert!(joined.has_ended(), "it was not woken");
        assert_eq!(joined.into_output().map(Result::unwrap), Some(7));
        assert_eq!(drops.get(), 1);
    });
}

/// Drops the handle as the task ends. If `waits_first`, it has left another task's waker there.
fn detached(waits_first: bool) {
    let (executor, drops) = (Executor::new(), Tally::default());
    let (runs, mut join) = spawned(&executor, output(&drops));
    let (other, other_join) = spawned(&executor, async {});
    if waits_first {
        let waker = other_join.waker();
        let poll = join.poll_ended(&mut Context::from_waker(&waker));
        assert!(poll.is_pending());
    }
    let runner = thread::spawn(move || runs.run());
    drop(join);
    runner.join().unwrap();
    assert_eq!(drops.get(), 1, "the output is dropped, and once");
    other.run();
    run_queued(&executor);
    assert!(other_join.has_ended());
}

#[test]
fn the_output_of_a_task_that_is_detached_as_it_ends_is_dropped_once() {
    model!(None, || detached(false));
}

#[test]
fn the_waker_of_a_handle_that_is_dropped_as_the_task_ends_is_given_up_once() {
    model!(None, || detached(true));
}
