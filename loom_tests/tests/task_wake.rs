//! Waking a task while another thread runs it: no wake-up is lost, the poll that follows sees what
//! was done before, and nobody has the future twice.
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

/// What a thread writes before it wakes. Loom checks that no thread reads it too soon.
#[derive(Default)]
struct Memory(UnsafeCell<usize>);

impl Memory {
    fn read(&self) -> usize {
        // SAFETY: loom checks that no thread writes beside this.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&self, new: usize) {
        // SAFETY: loom checks that this thread is alone with it.
        self.0.with_mut(|value| unsafe { *value = new });
    }
}

// SAFETY: loom checks each access.
unsafe impl Sync for Memory {}
// SAFETY: see above.
unsafe impl Send for Memory {}

/// A task that is ready when `wanted` threads have written; they write as `by_ref` says, by a waker
/// or a clone of it.
fn woken(threads: usize, by_ref: bool) {
    let (executor, polls, drops) = (Executor::new(), Tally::default(), Tally::default());
    let written = Arc::new(AtomicUsize::new(0));
    let (seen, polled) = (written.clone(), polls.clone());
    let (runnable, join) = spawned(
        &executor,
        counted(&drops, move |_| {
            polled.add();
            // No order comes from this: it has to come from the wake-ups.
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
                // Polled again, the task was woken by the other thread, or by this one at the end.
                Poll::Ready(seen.read())
            }),
        );
        let (waker, queue) = (join.waker(), executor.clone());
        let other = thread::spawn(move || {
            memory.write(7);
            waker.wake();
            // Whichever thread polls, it has the future as the poll before has left it.
            run_queued(&queue);
        });
        runnable.run();
        run_queued(&executor);
        other.join().unwrap();
        // The other thread may have been there before the first poll.
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
                // Whichever thread has this first may run it while this one has not returned.
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
