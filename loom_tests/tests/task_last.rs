//! The last reference to a task: the task is freed once. A future that no thread can wake any more
//! is dropped where tasks run. Loom tracks its allocations: one that is not freed is a failure.
#![cfg(loom)]

use std::task::Poll;

use loom::thread;
use loom_tests::{Executor, Tally, counted, model, run_queued, spawned};

#[test]
fn a_task_that_waits_is_dropped_with_its_last_waker_and_handle() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runnable, join) = spawned(&executor, counted(&drops, |_| Poll::<()>::Pending));
        let (first, second) = (join.waker(), join.reference());
        runnable.run();
        let others = [
            thread::spawn(move || drop(first)),
            thread::spawn(move || drop(second)),
        ];
        drop(join);
        for other in others {
            other.join().unwrap();
        }
        assert_eq!(drops.get(), 0, "it is dropped by whoever runs it");
        assert_eq!(run_queued(&executor), 1);
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn a_task_whose_last_waker_is_dropped_as_it_is_polled_is_dropped() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runnable, join) = spawned(&executor, counted(&drops, |_| Poll::<()>::Pending));
        let waker = join.waker();
        drop(join);
        let other = thread::spawn(move || drop(waker));
        runnable.run();
        other.join().unwrap();
        run_queued(&executor);
        assert_eq!(drops.get(), 1);
    });
}

#[test]
fn a_task_that_has_ended_is_freed_with_the_last_of_handle_waker_and_runner() {
    model!(Some(2), || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (dropped, metadata) = (drops.at_drop(), executor.clone());
        let (runnable, join) = spawned(&executor, async move { dropped });
        let waker = join.waker();
        let others = [
            thread::spawn(move || waker.wake()),
            thread::spawn(move || drop(join)),
        ];
        runnable.run();
        for other in others {
            other.join().unwrap();
        }
        run_queued(&executor);
        assert_eq!(drops.get(), 1);
        drop(executor);
        assert_eq!(loom::sync::Arc::strong_count(&metadata), 1, "it was freed");
    });
}

/// The thread that frees the task sees all that the other thread did with it. Only the changes of
/// the word that drop the references give that order.
#[test]
fn a_task_that_has_ended_is_freed_with_the_last_of_two_references() {
    model!(None, || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let (runnable, join) = spawned(&executor, counted(&drops, |_| Poll::Ready(())));
        let (first, second) = (join.reference(), join.reference());
        runnable.run();
        drop(join);
        let other = thread::spawn(move || drop(first));
        drop(second);
        other.join().unwrap();
        assert_eq!(drops.get(), 1);
    });
}
