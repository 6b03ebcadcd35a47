//! Helpers on a paused clock.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use super::helper_threads::{builder, on_helper};
use crate::common::{
    Gate, HOUR, PATIENCE, alarm,
    blocked::{AllBlocked, REST},
};
use tourbillon::time::{self, sleep};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_paused_clock_is_exact_with_helpers() {
    const COUNT: u32 = 200;
    let _alarm = alarm();
    for (workers, least, most) in [(1, 0, 1), (1, 2, 2), (2, 0, 2), (2, 1, 3)] {
        let runtime = builder(workers)
            .helpers(least..=most)
            .thread_keep_alive(MS)
            .start_paused(true)
            .build()
            .unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let start = runtime.block_on(async { time::Instant::now() });
        for i in 0..COUNT {
            let (seen, delay) = (seen.clone(), (i * 71 % COUNT + 1) * 1_000 * MS);
            let note = move || seen.lock().unwrap().push((delay, time::Instant::now()));
            if i % 2 == 0 {
                drop(runtime.handle().after(delay, note));
            } else {
                runtime.spawn(async move {
                    time::sleep_until(start + delay).await;
                    // On a running clock, this is long enough for helpers to be called.
                    thread::sleep(Duration::from_micros(300));
                    note();
                });
            }
        }
        runtime.block_on(sleep(HOUR));
        let now = runtime.block_on(async { time::Instant::now() });
        assert_eq!(now, start + HOUR);
        let seen = seen.lock().unwrap();
        assert_eq!(seen.len(), COUNT as usize);
        for (i, (delay, at)) in (1..).zip(&*seen) {
            assert_eq!(*delay, i * 1_000 * MS, "in order");
            assert_eq!(*at, start + *delay, "at its time, exactly");
        }
    }
}

/// The paused clock stands still while a helper runs something.
#[test]
fn a_paused_clock_waits_for_running_helpers() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = builder(workers)
            .helpers(0..=2)
            .thread_keep_alive(REST)
            .build()
            .unwrap();
        for _ in 0..3 {
            let blocked = AllBlocked::all(&runtime);
            let release = Gate::new();
            let (gate, (sender, receiver)) = (release.clone(), mpsc::channel());
            let begun = Gate::new();
            let open = begun.clone();
            runtime.spawn(async move {
                open.open();
                gate.wait();
                let start = time::Instant::now();
                sleep(HOUR).await;
                sender.send(start.elapsed()).unwrap();
            });
            begun.wait();
            runtime.pause_clock();
            drop(blocked);
            let handle = runtime.handle().clone();
            let sleeper = thread::spawn(move || {
                handle.block_on(async {
                    let start = time::Instant::now();
                    sleep(2 * HOUR).await;
                    start.elapsed()
                })
            });
            thread::sleep(3 * REST);
            assert!(!sleeper.is_finished(), "a helper is at a task");
            release.open();
            assert_eq!(sleeper.join().unwrap(), 2 * HOUR);
            assert_eq!(receiver.recv_timeout(PATIENCE), Ok(HOUR));
            runtime.resume_clock();
        }
        // On the clock that runs again, helpers are called as before.
        assert_eq!(on_helper(&runtime, || 1), 1);
    }
}
