//! `Sleep` with a waker that changes: who sleeps on a future is woken by the waker it registered
//! last, or has been told that the sleep is over; and a sleep can be armed again while the one who
//! fired it is still at it.
//!
//! A lost wake shows as a deadlock of the task.
#![cfg(loom)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    task::{Poll, RawWaker, RawWakerVTable, Waker},
};

use loom::thread;
use loom_tests::{EventLoop, Home, Task, Worker, close, due, expire, model, run, shard};
use tourbillon_shards::{Outcome, Sleep};

/// A shard owned by this thread, and a sleep there until 5.
fn sleep() -> (Home, Sleep<Worker>) {
    let home = shard();
    EventLoop::new(&home);
    let sleep = Sleep::new(&home, 5);
    (home, sleep)
}

/// Awaits the sleep as a task would.
fn wait(sleep: &Sleep<Worker>, task: &Task, waker: &Waker) -> Outcome {
    loop {
        match sleep.poll(waker) {
            Poll::Ready(how) => return how,
            Poll::Pending => task.sleep(),
        }
        // Who registers while it is being woken is woken at once, and polls again: a spin.
        thread::yield_now();
    }
}

/// Polled with one waker and then with another while it fires: the second is woken.
#[test]
fn the_waker_changes_while_it_fires() {
    model!(None, || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let worker = thread::spawn(move || drop(run(due, 5)));
        let (first, second) = (Task::new(), Task::new());
        let _ = sleep.poll(&first.1);
        assert_eq!(wait(&sleep, &second.0, &second.1), Outcome::Fired);
        // When it was taken is known while who fired it may be at it still; and told once.
        assert!(sleep.sample(1).is_some());
        assert!(sleep.sample(1).is_none());
        worker.join().unwrap();
        drop(sleep);
        close(&home);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// Polled with a waker, and then with one that panics as it is cloned, while it fires: the first
/// one is woken.
#[test]
fn a_waker_that_panics_as_it_is_cloned_loses_no_wake_up() {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("as planned"), |_| (), |_| (), |_| ());
    // Each execution panics once, and would say so.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("as planned") {
            hook(panic);
        }
    }));
    model!(None, || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let worker = thread::spawn(move || drop(run(due, 5)));
        let (task, waker) = Task::new();
        let mut is_over = sleep.poll(&waker).is_ready();
        // SAFETY: none of the functions but `clone` does anything, and that one does not return.
        let panics = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
        let poll = catch_unwind(AssertUnwindSafe(|| sleep.poll(&panics)));
        is_over |= poll.is_ok_and(|poll| poll.is_ready());
        if !is_over {
            // The task was told to wait, and nothing but the waker tells it more.
            task.sleep();
        }
        worker.join().unwrap();
        drop(sleep);
        close(&home);
    });
}

/// The same waker again, while it fires.
#[test]
fn the_waker_stays_while_it_fires() {
    model!(None, || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let worker = thread::spawn(move || drop(run(due, 5)));
        let (task, waker) = Task::new();
        let _ = sleep.poll(&waker);
        assert_eq!(wait(&sleep, &task, &waker), Outcome::Fired);
        worker.join().unwrap();
        assert!(task.wakes() <= 2);
        drop(sleep);
        close(&home);
    });
}

/// Polled with one waker and then with another while the shard is closed.
#[test]
fn the_waker_changes_while_the_shard_is_closed() {
    model!(None, || {
        let (home, sleep) = sleep();
        let closer = thread::spawn({
            let home = home.clone();
            move || close(&home)
        });
        let (first, second) = (Task::new(), Task::new());
        let _ = sleep.poll(&first.1);
        assert_eq!(wait(&sleep, &second.0, &second.1), Outcome::Shutdown);
        closer.join().unwrap();
        drop(sleep);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// Moved while it is about to fire: it fires for the old deadline or waits for the new one, and its
/// task is woken for that. Where the old one had fired, it is armed again while the one who fired
/// it is still at it.
#[test]
fn it_is_moved_while_it_fires() {
    model!(Some(3), || {
        let (home, mut sleep) = sleep();
        let due = due(&home, 5);
        let worker = thread::spawn(move || drop(run(due, 5)));
        sleep.reset(20);
        let (task, waker) = Task::new();
        assert_eq!(sleep.poll(&waker), Poll::Pending);
        assert_eq!(sleep.deadline(), Some(20));
        expire(&home, 19);
        assert_eq!(sleep.outcome(), None);
        // The one who fired it may not have brought it home yet.
        worker.join().unwrap();
        expire(&home, 20);
        assert_eq!(wait(&sleep, &task, &waker), Outcome::Fired);
        assert!(sleep.sample(1).is_some(), "also what fires again");
        drop(sleep);
        close(&home);
    });
}

/// It fires, is armed again and fires again, while the first worker that fired it still takes the
/// waker.
#[test]
fn it_fires_again_while_it_fires() {
    model!(Some(3), || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let task = thread::spawn({
            let home = home.clone();
            move || {
                let mut sleep = sleep;
                if sleep.outcome().is_none() {
                    return;
                }
                sleep.reset(20);
                let (task, waker) = Task::new();
                let _ = sleep.poll(&waker);
                while sleep.outcome().is_none() {
                    expire(&home, 20);
                    thread::yield_now();
                }
                // A task that has not seen it sleeps until it is woken.
                task.sleep();
                assert_eq!(sleep.poll(&waker), Poll::Ready(Outcome::Fired));
            }
        });
        run(due, 5);
        task.join().unwrap();
        close(&home);
    });
}

/// It is armed again by its owner while a remote thread reads the inbox, in which there is still an
/// older entry of it.
#[test]
fn it_is_armed_again_while_old_news_is_read() {
    model!(Some(3), || {
        let home = shard();
        let sleep = Sleep::new(&home, 5);
        EventLoop::new(&home);
        let due = due(&home, 5);
        let task = thread::spawn(move || {
            let mut sleep = sleep;
            sleep.reset(40);
            sleep.reset(20);
            let (task, waker) = Task::new();
            let how = wait(&sleep, &task, &waker);
            sleep.reset(30);
            (sleep, how)
        });
        run(due, 5);
        let mut fired = false;
        while !fired {
            let mut due = Vec::new();
            let expired = home.expire(20, usize::MAX, &mut due);
            fired = !due.is_empty();
            due.into_iter().for_each(|due| drop(run(due, 20)));
            if !fired {
                assert_eq!(expired.count, 0);
                thread::yield_now();
            }
        }
        let (sleep, how) = task.join().unwrap();
        assert_eq!(how, Outcome::Fired);
        expire(&home, 29);
        assert_eq!(sleep.deadline(), Some(30));
        expire(&home, 30);
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
        drop(sleep);
        close(&home);
    });
}

/// Its holder shuts it down, and it is armed again at that moment: it waits, and fires.
#[test]
fn it_is_armed_again_while_its_holder_shuts_it_down() {
    model!(None, || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let task = thread::spawn(move || {
            let mut sleep = sleep;
            sleep.reset(20);
            sleep
        });
        due.shutdown();
        let sleep = task.join().unwrap();
        match sleep.deadline() {
            Some(deadline) => {
                assert_eq!(deadline, 20);
                expire(&home, 20);
                assert_eq!(sleep.outcome(), Some(Outcome::Fired));
            }
            None => assert_eq!(sleep.outcome(), Some(Outcome::Shutdown)),
        }
        drop(sleep);
        close(&home);
    });
}

/// Moved, and moved earlier again, while its holder shuts it down.
#[test]
fn it_is_moved_while_its_holder_shuts_it_down() {
    model!(None, || {
        let (home, sleep) = sleep();
        let due = due(&home, 5);
        let task = thread::spawn(move || {
            let mut sleep = sleep;
            sleep.reset(50);
            sleep.reset(20);
            let (task, waker) = Task::new();
            let _ = sleep.poll(&waker);
            (sleep, task, waker)
        });
        due.shutdown();
        let (sleep, task, waker) = task.join().unwrap();
        expire(&home, 20);
        wait(&sleep, &task, &waker);
        drop(sleep);
        expire(&home, 50);
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// Dropped while it fires: it is over once, and nothing of it is left.
#[test]
fn it_is_dropped_while_it_fires() {
    model!(None, || {
        let (home, sleep) = sleep();
        let (task, waker) = Task::new();
        assert_eq!(sleep.poll(&waker), Poll::Pending);
        drop(waker);
        let due = due(&home, 5);
        let worker = thread::spawn(move || drop(run(due, 5)));
        drop(sleep);
        worker.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(std::sync::Arc::strong_count(&task), 1);
        assert_eq!(home.owner().overs(), 1);
        close(&home);
    });
}

/// Armed again, if it has fired, and dropped, on the shard's own thread, which has two references
/// then, and counts them: the one who fired it has another while it is at the waker.
#[test]
fn it_is_armed_again_and_dropped_while_it_fires() {
    tourbillon_shards::model::LOOKS_FOR_THE_LAST.set(true);
    model!(Some(3), || {
        let (home, sleep) = sleep();
        let (task, waker) = Task::new();
        assert_eq!(sleep.poll(&waker), Poll::Pending);
        drop(waker);
        let due = due(&home, 5);
        let owner = thread::spawn({
            let home = home.clone();
            move || {
                EventLoop::new(&home);
                let mut sleep = sleep;
                if sleep.outcome().is_some() {
                    sleep.reset(20);
                }
            }
        });
        run(due, 5);
        owner.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(std::sync::Arc::strong_count(&task), 1);
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// Dropped by another thread while it expires, and while the shard is closed.
#[test]
fn it_is_dropped_while_the_shard_is_closed() {
    model!(Some(3), || {
        let (home, sleep) = sleep();
        let (task, waker) = Task::new();
        assert_eq!(sleep.poll(&waker), Poll::Pending);
        drop(waker);
        let dropper = thread::spawn(move || drop(sleep));
        expire(&home, 5);
        close(&home);
        dropper.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(std::sync::Arc::strong_count(&task), 1);
        assert_eq!(home.owner().overs(), 1);
    });
}
