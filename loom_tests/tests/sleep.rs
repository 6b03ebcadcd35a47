//! `Sleep` with a waker that changes. A task that waits for the sleep is woken by the waker it
//! registered last, or has seen that the sleep is over. The task can arm the sleep again while the
//! thread that fired it still uses it.
//!
//! A lost wake shows as a deadlock of the task.
#![cfg(loom)]

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    task::{Poll, RawWaker, RawWakerVTable, Waker},
};

use loom::thread;
use loom_tests::{EventLoop, Home, Task, Worker, close, due, expire, model, run, shard};
use tourbillon_shards::{Outcome, Sleep};

/// Returns a shard owned by this thread, and a sleep there until 5.
fn sleep() -> (Home, Sleep<Worker>) {
    let home = shard();
    EventLoop::new(&home);
    let sleep = Sleep::new(&home, 5);
    (home, sleep)
}

/// Returns such a shard and sleep, and the task that has polled the sleep. Only the sleep has the
/// task's waker.
fn polled() -> (Home, Sleep<Worker>, Arc<Task>) {
    let (home, sleep) = sleep();
    let (task, waker) = Task::new();
    assert_eq!(sleep.poll(&waker), Poll::Pending);
    (home, sleep, task)
}

/// Takes the sleep, which is due, and fires it on another thread.
fn fire(home: &Home) -> thread::JoinHandle<()> {
    let due = due(home, 5);
    thread::spawn(move || drop(run(due, 5)))
}

/// Awaits the sleep as a task would.
fn wait(sleep: &Sleep<Worker>, task: &Task, waker: &Waker) -> Outcome {
    loop {
        match sleep.poll(waker) {
            Poll::Ready(how) => return how,
            Poll::Pending => task.sleep(),
        }
        // A task that registers while it is being woken is woken immediately, and polls again: a
        // spin.
        thread::yield_now();
    }
}

/// The sleep is polled with one waker and then with another while it fires: the second is woken.
#[test]
fn the_waker_changes_while_it_fires() {
    model!(None, || {
        let (home, sleep) = sleep();
        let worker = fire(&home);
        let (first, second) = (Task::new(), Task::new());
        let _ = sleep.poll(&first.1);
        assert_eq!(wait(&sleep, &second.0, &second.1), Outcome::Fired);
        // The time at which it was taken is known while the firing thread may still use it, and is
        // returned only once.
        assert!(sleep.sample(1).is_some());
        assert!(sleep.sample(1).is_none());
        worker.join().unwrap();
        drop(sleep);
        close(&home);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// The sleep is polled with a waker, and then with one that panics as it is cloned, while it fires:
/// the first one is woken.
#[test]
fn a_waker_that_panics_as_it_is_cloned_loses_no_wake_up() {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(|_| panic!("as planned"), |_| (), |_| (), |_| ());
    // Each execution panics once, and would print a message.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload_as_str() != Some("as planned") {
            hook(panic);
        }
    }));
    model!(None, || {
        let (home, sleep) = sleep();
        let worker = fire(&home);
        let (task, waker) = Task::new();
        let mut is_over = sleep.poll(&waker).is_ready();
        // SAFETY: none of the functions but `clone` does anything, and that one does not return.
        let panics = unsafe { Waker::from_raw(RawWaker::new(std::ptr::null(), &TABLE)) };
        let poll = catch_unwind(AssertUnwindSafe(|| sleep.poll(&panics)));
        is_over |= poll.is_ok_and(|poll| poll.is_ready());
        if !is_over {
            // The poll returned `Pending`, so only the waker can wake the task.
            task.sleep();
        }
        worker.join().unwrap();
        drop(sleep);
        close(&home);
    });
}

/// The sleep is polled twice with the same waker while it fires.
#[test]
fn the_waker_stays_while_it_fires() {
    model!(None, || {
        let (home, sleep) = sleep();
        let worker = fire(&home);
        let (task, waker) = Task::new();
        let _ = sleep.poll(&waker);
        assert_eq!(wait(&sleep, &task, &waker), Outcome::Fired);
        worker.join().unwrap();
        assert!(task.wakes() <= 2);
        drop(sleep);
        close(&home);
    });
}

/// The task moves its sleep to the past while it fires: it takes the waker, ends the sleep, and
/// wakes the waker. It is woken once, by either thread.
#[test]
fn the_task_takes_its_waker_while_the_sleep_fires() {
    model!(None, || {
        let (home, sleep, task) = polled();
        let worker = fire(&home);
        let waker = sleep.take_waker();
        drop(sleep);
        if let Some(waker) = waker {
            waker.wake();
        }
        task.sleep();
        worker.join().unwrap();
        assert_eq!(task.wakes(), 1);
        close(&home);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// The sleep is polled with one waker and then with another while the shard is closed.
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

/// The sleep is reset while it is about to fire: it fires at the old deadline, or waits for the new
/// one, and the task is woken for that. If it fired at the old one, it is armed again while the
/// firing thread still uses it.
#[test]
fn a_sleep_is_moved_while_it_fires() {
    model!(Some(3), || {
        let (home, mut sleep) = sleep();
        let worker = fire(&home);
        sleep.reset(20);
        let (task, waker) = Task::new();
        assert_eq!(sleep.poll(&waker), Poll::Pending);
        assert_eq!(sleep.deadline(), Some(20));
        expire(&home, 19);
        assert_eq!(sleep.outcome(), None);
        // The thread that fired it may not have returned it to the shard yet.
        worker.join().unwrap();
        expire(&home, 20);
        assert_eq!(wait(&sleep, &task, &waker), Outcome::Fired);
        assert!(sleep.sample(1).is_some(), "also what fires again");
        drop(sleep);
        close(&home);
    });
}

/// The sleep fires, is armed again and fires again, while the first thread that fired it still
/// takes the waker.
#[test]
fn a_sleep_fires_again_while_it_fires() {
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
                // A task that has not seen the second firing sleeps until it is woken.
                task.sleep();
                assert_eq!(sleep.poll(&waker), Poll::Ready(Outcome::Fired));
            }
        });
        run(due, 5);
        task.join().unwrap();
        close(&home);
    });
}

/// The task arms the sleep again while a remote thread reads the inbox, which still has an older
/// entry of it.
#[test]
fn a_sleep_is_armed_again_while_an_old_update_is_read() {
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

/// The holder shuts the sleep down, and the task arms it again at that moment: it waits, and fires.
#[test]
fn a_sleep_is_armed_again_while_its_holder_shuts_it_down() {
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

/// The task resets the sleep to a later time, and then to an earlier one, while the holder shuts it
/// down.
#[test]
fn a_sleep_is_moved_while_its_holder_shuts_it_down() {
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

/// The shard's own thread moves the sleep twice, puts it into the store and drops it, while the
/// holder shuts it down: it ends once for each time that it was armed.
#[test]
fn the_owner_drops_a_sleep_while_its_holder_shuts_it_down() {
    model!(Some(3), || {
        let (home, mut sleep) = sleep();
        let due = due(&home, 5);
        let holder = thread::spawn(move || due.shutdown());
        sleep.reset(50);
        sleep.reset(20);
        expire(&home, 6);
        drop(sleep);
        holder.join().unwrap();
        close(&home);
        assert_eq!(home.owner().overs() as u64, home.owner().arms());
    });
}

/// The task drops the sleep while it fires: it ends once, and is freed.
#[test]
fn a_sleep_is_dropped_while_it_fires() {
    model!(None, || {
        let (home, sleep, task) = polled();
        let worker = fire(&home);
        drop(sleep);
        worker.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(home.owner().overs(), 1);
        close(&home);
    });
}

/// The shard's own thread arms the sleep again, if it has fired, and drops it. That thread then has
/// two references, and counts them. The thread that fired the sleep has another one while it uses
/// the waker.
#[test]
fn a_sleep_is_armed_again_and_dropped_while_it_fires() {
    tourbillon_shards::model::LOOKS_FOR_THE_LAST.set(true);
    model!(Some(3), || {
        let (home, sleep, task) = polled();
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
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(home.stored(), 0);
        close(&home);
    });
}

/// Another thread drops the sleep while it expires, and while the shard is closed.
#[test]
fn a_sleep_is_dropped_while_the_shard_is_closed() {
    model!(Some(3), || {
        let (home, sleep, task) = polled();
        let dropper = thread::spawn(move || drop(sleep));
        expire(&home, 5);
        close(&home);
        dropper.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// The shard's own thread drops the sleep while another thread expires it, fires it, and closes the
/// shard: it ends once.
#[test]
fn the_owner_drops_a_sleep_while_it_expires() {
    model!(Some(3), || {
        let (home, sleep, task) = polled();
        let rescuer = thread::spawn({
            let home = home.clone();
            move || {
                expire(&home, 5);
                close(&home);
            }
        });
        drop(sleep);
        rescuer.join().unwrap();
        assert!(task.wakes() <= 1);
        assert_eq!(Arc::strong_count(&task), 1);
        assert_eq!(home.owner().overs(), 1);
        assert_eq!(home.stored(), 0);
    });
}
