//! The models of "Learn loom" in `loom_tests/README.md`, from two increments to a parked word. The
//! page shows parts of this file, and a test of the docs compares the two.
#![cfg(loom)]

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};
use loom_tests::{EventFd, model};

#[test]
#[should_panic(expected = "an increment is lost")]
fn two_threads_count_by_load_and_store() {
    model!(None, || {
        let count = Arc::new(AtomicUsize::new(0));
        let add = |count: &AtomicUsize| {
            let before = count.load(Ordering::Relaxed);
            count.store(before + 1, Ordering::Relaxed);
        };
        let other = thread::spawn({
            let count = count.clone();
            move || add(&count)
        });
        add(&count);
        other.join().unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2, "an increment is lost");
    });
}

#[test]
fn two_threads_count_by_fetch_add() {
    model!(None, || {
        let count = Arc::new(AtomicUsize::new(0));
        let add = |count: &AtomicUsize| _ = count.fetch_add(1, Ordering::Relaxed);
        let other = thread::spawn({
            let count = count.clone();
            move || add(&count)
        });
        add(&count);
        other.join().unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 2, "an increment is lost");
    });
}

/// A worker that sleeps while its inbox is empty.
struct Worker {
    /// Whether the inbox has a timer.
    inbox: AtomicBool,
    /// The parked word: whether the worker sleeps, or is about to.
    sleeps: AtomicBool,
    eventfd: EventFd,
    /// How the threads differ from the right protocol.
    mistake: Mistake,
}

#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    LooksFirst,
    ParksWithoutFence,
    PushesWithoutFence,
}

impl Worker {
    /// Sleeps until the inbox has a timer. For the worker's own thread.
    fn park(&self) {
        if self.mistake == Mistake::LooksFirst && self.inbox.load(Ordering::Relaxed) {
            return;
        }
        self.sleeps.swap(true, Ordering::AcqRel);
        if self.mistake != Mistake::ParksWithoutFence {
            fence(Ordering::SeqCst);
        }
        if self.mistake == Mistake::LooksFirst || !self.inbox.load(Ordering::Relaxed) {
            self.eventfd.sleep();
        }
        self.sleeps.swap(false, Ordering::AcqRel);
    }

    /// Brings a timer, and wakes the worker if it sleeps. For any other thread.
    fn push(&self) {
        self.inbox.store(true, Ordering::Relaxed);
        if self.mistake != Mistake::PushesWithoutFence {
            fence(Ordering::SeqCst);
        }
        if self.sleeps.load(Ordering::Relaxed) {
            self.eventfd.write();
        }
    }
}

fn a_thread_pushes_while_the_worker_parks(mistake: Mistake) {
    model!(None, move || {
        // loom's own `Arc` panics again if it is dropped in a deadlock.
        let worker = std::sync::Arc::new(Worker {
            inbox: AtomicBool::new(false),
            sleeps: AtomicBool::new(false),
            eventfd: EventFd::default(),
            mistake,
        });
        let pusher = thread::spawn({
            let worker = worker.clone();
            move || worker.push()
        });
        worker.park();
        pusher.join().unwrap();
        assert!(worker.inbox.load(Ordering::Relaxed), "nothing was lost");
    });
}

#[test]
fn no_wake_up_is_lost() {
    a_thread_pushes_while_the_worker_parks(Mistake::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_that_looks_first_sleeps_for_ever() {
    a_thread_pushes_while_the_worker_parks(Mistake::LooksFirst);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_that_parks_without_a_fence_sleeps_for_ever() {
    a_thread_pushes_while_the_worker_parks(Mistake::ParksWithoutFence);
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_worker_that_is_pushed_to_without_a_fence_sleeps_for_ever() {
    a_thread_pushes_while_the_worker_parks(Mistake::PushesWithoutFence);
}
