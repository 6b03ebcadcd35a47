//! Waking a task while another thread runs it: no wake-up is lost, the next poll sees what was done
//! before, and no two threads have the future at the same time.
//!
//! The task is run by the first thread, which changes the word the most (see `README.md`).
#![cfg(loom)]

use std::task::Poll;

use loom::{
    cell::UnsafeCell,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};
use loom_tests::{Executor, Tally, counted, model, run_queued, spawned};

/// Memory that a thread writes before it wakes. Loom checks that no thread reads it too soon.
#[derive(Default)]
struct Memory(UnsafeCell<usize>);

impl Memory {
    fn read(&self) -> usize {
        // SAFETY: loom checks that no thread writes at the same time.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&self, new: usize) {
        // SAFETY: loom checks that no other thread accesses it.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

// SAFETY: loom checks each access.
unsafe impl Sync for Memory {}
// SAFETY: see above.
unsafe impl Send for Memory {}

/// Runs a task that is ready after `threads` threads have counted themselves and woken it. They
/// wake it by reference if `by_ref` is set, or else by value.
fn woken(threads: usize, by_ref: bool) {
    let (executor, polls, drops) = (Executor::new(), Tally::default(), Tally::default());
    let written = Arc::new(AtomicUsize::new(0));
    let (seen, polled) = (written.clone(), polls.clone());
    let (runnable, join) = spawned(
        &executor,
        counted(&drops, move |_| {
            polled.add();
            // This load orders nothing: the order has to come from the wake-ups.
            if seen.load(Relaxed) < threads {
                return Poll::Pending;
            }
            Poll::Ready(())
        }),
    );
    let wakers: Vec<_> = (0..threads)
        .map(|_| {
            let (waker, written) = (join.waker(), written.clone());
            thread::spawn(move || {
                written.fetch_add(1, Relaxed);
                if by_ref {
                    waker.wake_by_ref()
                } else {
                    waker.wake()
                }
            })
        })
        .collect();
    runnable.run();
    run_queued(&executor);
    for waker in wakers {
        waker.join().unwrap();
    }
    run_queued(&executor);
    assert!(join.has_ended(), "a wake-up was lost");
    assert!(polls.get() <= 1 + threads);
    assert_eq!(drops.get(), 1);
    assert!(join.into_output().is_some());
}

#[test]
fn a_wake_up_beside_a_poll_is_not_lost() {
    model!(None, || woken(1, false));
}

#[test]
fn a_wake_up_by_reference_beside_a_poll_is_not_lost() {
    model!(None, || woken(1, true));
}

#[test]
fn two_wake_ups_beside_a_poll_are_not_lost() {
    model!(Some(2), || woken(2, false));
}

#[test]
fn the_poll_that_was_asked_for_sees_what_was_done_before() {
    model!(None, || {
        let executor = Executor::new();
        let memory = Arc::new(Memory::default());
        let (seen, mut polls) = (memory.clone(), 0);
        let (runnable, join) = spawned(
            &executor,
            counted(&Tally::default(), move |_| {
                polls += 1;
                if polls == 1 {
                    return Poll::Pending;
                }
                // In the second poll, the other thread has woken the task, or this one has at the
                // end.
                Poll::Ready(seen.read())
            }),
        );
        let (waker, queue) = (join.waker(), executor.clone());
        let other = thread::spawn(move || {
            memory.write(7);
            waker.wake();
            // The thread that polls sees the future as the last poll has left it.
            run_queued(&queue);
        });
        runnable.run();
        run_queued(&executor);
        other.join().unwrap();
        // The other thread may have woken the task before the first poll.
        join.wake();
        run_queued(&executor);
        assert_eq!(join.into_output().map(Result::unwrap), Some(7));
    });
}

#[test]
fn one_thread_polls_after_the_other_and_none_beside_it() {
    model!(Some(2), || {
        let (executor, drops) = (Executor::new(), Tally::default());
        let mut polls = 0;
        let (runnable, join) = spawned(
            &executor,
            counted(&drops, move |cx| {
                polls += 1;
                if polls == 3 {
                    return Poll::Ready(());
                }
                // Another thread may take the task from the queue before this thread returns.
                cx.waker().wake_by_ref();
                Poll::Pending
            }),
        );
        let queue = executor.clone();
        let waker = join.waker();
        let other = thread::spawn(move || {
            waker.wake();
            run_queued(&queue);
        });
        runnable.run();
        run_queued(&executor);
        other.join().unwrap();
        run_queued(&executor);
        assert!(join.has_ended());
        assert_eq!(drops.get(), 1);
    });
}
