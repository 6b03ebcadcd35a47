//! The hooks that a worker calls before and after it sleeps.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

use crate::common::{HOUR, PATIENCE, alarm, eventually, on_worker};
use tourbillon::{runtime::Builder, sync::Notify, time::sleep};

#[test]
fn both_hooks_surround_each_sleep() {
    let _alarm = alarm();
    let [parks, unparks] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (park, unpark) = (parks.clone(), unparks.clone());
    let (parked, unparked) = (parks.clone(), unparks.clone());
    let runtime = Builder::new()
        .worker_threads(1)
        .on_thread_park(move || {
            assert_eq!(unparked.load(SeqCst), park.fetch_add(1, SeqCst));
        })
        .on_thread_unpark(move || {
            assert_eq!(parked.load(SeqCst), unpark.fetch_add(1, SeqCst) + 1);
        })
        .build()
        .unwrap();
    for _ in 0..50 {
        let before = parks.load(SeqCst);
        on_worker(&runtime, || ());
        eventually("it sleeps again", || parks.load(SeqCst) > before);
    }
    assert_eq!(runtime.metrics().total().panics(), 0);
    drop(runtime);
    assert_eq!(parks.load(SeqCst), unparks.load(SeqCst));
}

/// Creates work of the given kind. The work sends a word when it runs.
fn make(kind: usize, notify: &Notify, sender: Sender<&'static str>) {
    match kind {
        // The task goes to the deque.
        0 => drop(tourbillon::spawn(
            async move { sender.send("spawned").unwrap() },
        )),
        // Only worker 0 may run this task.
        1 => {
            let pinned = || async move { sender.send("pinned").unwrap() };
            drop(tourbillon::task::spawn_pinned_by_idx(pinned, 0).unwrap());
        }
        2 => {
            let delay = Duration::from_millis(1);
            tourbillon::after(delay, move || sender.send("fired").unwrap());
        }
        // The woken task goes to the LIFO slot.
        _ => notify.notify_one(),
    }
}

/// The worker searches for work before it calls the hook. It must not sleep over work that the
/// hook creates.
#[test]
fn a_worker_does_not_sleep_over_work_from_its_hook() {
    let _alarm = alarm();
    for (workers, kind) in [
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
        (2, 0),
        (2, 1),
        (2, 2),
        (2, 3),
    ] {
        let (sender, words) = channel();
        let (notify, begins) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (notified, woken) = (notify.clone().notified_owned(), sender.clone());
        let (sender, begun) = (Mutex::new(sender), begins.clone());
        let runtime = Builder::new()
            .worker_threads(workers)
            .on_thread_park(move || {
                if begun.swap(false, SeqCst) {
                    make(kind, &notify, sender.lock().unwrap().clone());
                }
            })
            .build()
            .unwrap();
        runtime.spawn(async move {
            notified.await;
            woken.send("woken").unwrap();
        });
        on_worker(&runtime, || ());
        begins.store(true, SeqCst);
        on_worker(&runtime, || ());
        let word = ["spawned", "pinned", "fired", "woken"][kind];
        assert_eq!(words.recv_timeout(PATIENCE), Ok(word));
    }
}

#[test]
fn a_hook_that_panics_is_counted_and_the_worker_goes_on() {
    let _alarm = alarm();
    let calls = Arc::new(AtomicUsize::new(0));
    let (park, unpark) = (calls.clone(), calls.clone());
    let runtime = Builder::new()
        .worker_threads(1)
        .on_thread_park(move || panic!("the park hook panics, call {}", park.fetch_add(1, SeqCst)))
        .on_thread_unpark(move || {
            panic!(
                "the unpark hook panics, call {}",
                unpark.fetch_add(1, SeqCst)
            )
        })
        .build()
        .unwrap();
    // On a busy machine a sleep may be over before the worker parks: sleep until it has parked.
    eventually("the worker parks", || {
        runtime
            .block_on(runtime.spawn(sleep(Duration::from_millis(1))))
            .unwrap();
        calls.load(SeqCst) >= 10
    });
    eventually("each is counted", || {
        runtime.metrics().total().panics() == calls.load(SeqCst) as u64
    });
    assert_eq!(on_worker(&runtime, || 42), 42);
}

#[test]
fn a_paused_clock_advances_past_hooks() {
    let _alarm = alarm();
    let parks = Arc::new(AtomicUsize::new(0));
    let park = parks.clone();
    let runtime = Builder::new()
        .worker_threads(2)
        .start_paused(true)
        .on_thread_park(move || _ = park.fetch_add(1, SeqCst))
        .build()
        .unwrap();
    runtime.block_on(runtime.spawn(sleep(HOUR))).unwrap();
    assert!(parks.load(SeqCst) > 0);
}
