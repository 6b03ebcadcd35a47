//! The hooks that a worker calls before and after it sleeps.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        mpsc::channel,
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
    assert_eq!(runtime.metrics().panics(), 0);
    drop(runtime);
    assert_eq!(parks.load(SeqCst), unparks.load(SeqCst));
}

/// The worker has looked for work before it calls the hook.
#[test]
fn work_that_a_hook_makes_is_not_slept_over() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let (sender, receiver) = channel();
        let notify = Arc::new(Notify::new());
        let (armed, notifies) = (AtomicBool::new(false), notify.clone());
        let sender = Mutex::new(sender);
        let go = Arc::new(AtomicBool::new(false));
        let goes = go.clone();
        let runtime = Builder::new()
            .worker_threads(workers)
            .on_thread_park(move || {
                if !goes.load(SeqCst) || armed.swap(true, SeqCst) {
                    return;
                }
                let sender = sender.lock().unwrap();
                let [spawned, pinned, fired] = [(); 3].map(|()| sender.clone());
                // A task for the deque, one that only this worker runs, and a timer.
                tourbillon::spawn(async move { spawned.send("spawned").unwrap() });
                let pin = || async move { pinned.send("pinned").unwrap() };
                tourbillon::task::spawn_pinned_by_idx(pin, 0).unwrap();
                tourbillon::after(Duration::from_millis(1), move || {
                    fired.send("fired").unwrap();
                });
                // A task for the LIFO slot.
                notifies.notify_one();
            })
            .build()
            .unwrap();
        let woken = runtime.spawn(async move { notify.notified().await });
        go.store(true, SeqCst);
        on_worker(&runtime, || ());
        let mut came = [(); 3].map(|()| receiver.recv_timeout(PATIENCE).unwrap());
        came.sort_unstable();
        assert_eq!(came, ["fired", "pinned", "spawned"]);
        runtime.block_on(woken).unwrap();
    }
}

#[test]
fn a_hook_that_panics_is_counted_and_the_worker_goes_on() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .on_thread_park(|| panic!("the park hook panics"))
        .on_thread_unpark(|| panic!("the unpark hook panics"))
        .build()
        .unwrap();
    for _ in 0..5 {
        runtime
            .block_on(runtime.spawn(sleep(Duration::from_millis(1))))
            .unwrap();
    }
    eventually("each is counted", || runtime.metrics().panics() >= 10);
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
