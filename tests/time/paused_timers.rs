//! Snapshots of timers, tolerances and lateness on a paused clock. All are exact.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use crate::common::{HOUR, Random, alarm, paused::paused};
use tourbillon::{
    Handle, Timer,
    time::{self, BootInstant, Instant, advance, sleep},
};

const MS: Duration = Duration::from_millis(1);

/// Waits until all pending updates were read and all due timers have run.
async fn quiet() {
    advance(Duration::ZERO).await;
}

#[test]
fn the_next_deadline_is_exact_whatever_was_moved_or_cancelled() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        paused(workers).block_on(async {
            let handle = Handle::current();
            quiet().await;
            assert_eq!(handle.timers().next_deadline(), None);
            assert_eq!(handle.timers().pending(), 0);
            let mut random = Random::new(workers as u64);
            let start = Instant::now();
            let mut deadlines: Vec<_> = (0..50)
                .map(|_| {
                    let delay = Duration::from_nanos(1 + random.below(1_000_000_000));
                    (start + delay, tourbillon::after(delay, || ()))
                })
                .collect();
            while !deadlines.is_empty() {
                let earliest = deadlines.iter().map(|timer| timer.0).min();
                quiet().await;
                let timers = handle.timers();
                assert_eq!(timers.next_deadline(), earliest);
                assert_eq!((timers.pending(), timers.garbage()), (deadlines.len(), 0));
                // Half of the rounds pick the earliest timer.
                let which = match random.below(2) {
                    0 => random.below(deadlines.len() as u64) as usize,
                    _ => (0..deadlines.len())
                        .min_by_key(|&i| deadlines[i].0)
                        .unwrap(),
                };
                if random.below(2) == 0 {
                    let to = start + Duration::from_nanos(1 + random.below(2_000_000_000));
                    deadlines[which].1.reset_at(to);
                    deadlines[which].0 = to;
                } else {
                    deadlines.swap_remove(which).1.cancel();
                }
            }
            quiet().await;
            assert_eq!(handle.timers().next_deadline(), None);
            assert_eq!(handle.timers().pending(), 0);
        });
    }
}

#[test]
fn each_clock_has_its_own_next_deadline() {
    let _alarm = alarm();
    paused(2).block_on(async {
        let handle = Handle::current();
        let (wall, boot) = (time::wall_clock() + HOUR, BootInstant::now() + 2 * HOUR);
        Timer::at_wall(wall).name("tea").start(|| ());
        Timer::at_boot(boot).name("tea").start(|| ());
        let mono = Timer::after(3 * HOUR).name("tea").start(|| ());
        quiet().await;
        let timers = handle.timers();
        assert_eq!(timers.wall.next_deadline, Some(wall));
        assert_eq!(timers.boot.next_deadline, Some(boot));
        assert_eq!(timers.next_deadline(), mono.deadline());
        assert_eq!((timers.wall.pending, timers.boot.pending), (1, 1));
        assert_eq!(timers.named, [("tea".to_owned(), 3)]);
        // The sleep itself is a timer until it ends.
        sleep(2 * HOUR).await;
        quiet().await;
        let timers = handle.timers();
        assert_eq!(timers.wall.next_deadline, None);
        assert_eq!(timers.boot.next_deadline, None);
        assert_eq!(timers.pending(), 1);
        assert_eq!(timers.named, [("tea".to_owned(), 1)]);
    });
}

#[test]
fn timers_with_a_tolerance_run_in_their_windows_and_share_instants() {
    let _alarm = alarm();
    for workers in [1, 2] {
        paused(workers).block_on(async {
            let ran = Arc::new(Mutex::new(Vec::new()));
            let mut random = Random::new(7);
            let start = Instant::now();
            for _ in 0..200 {
                let (delay, ran) = (Duration::from_micros(random.below(1_000_000)), ran.clone());
                Timer::after(delay).tolerance(50 * MS).start(move || {
                    ran.lock().unwrap().push((start + delay, Instant::now()));
                });
            }
            sleep(2 * HOUR).await;
            let ran = ran.lock().unwrap();
            assert_eq!(ran.len(), 200);
            for (deadline, at) in &*ran {
                assert!((*deadline..=*deadline + 50 * MS).contains(at));
            }
            let mut instants: Vec<_> = ran.iter().map(|run| run.1).collect();
            instants.sort();
            instants.dedup();
            // A second has 20 windows, each with one or two roundest moments. Timers that were due
            // while the worker was awake anyway add some instants.
            assert!(instants.len() < 100, "{}", instants.len());
        });
    }
}

#[test]
fn a_timer_with_a_tolerance_runs_with_an_exact_one_in_its_window() {
    let _alarm = alarm();
    paused(1).block_on(async {
        let start = Instant::now();
        let ran = Arc::new(Mutex::new(Vec::new()));
        for (delay, tolerance) in [(10 * MS, HOUR), (20 * MS, Duration::ZERO)] {
            let ran = ran.clone();
            Timer::after(delay).tolerance(tolerance).start(move || {
                ran.lock().unwrap().push((delay, start.elapsed()));
            });
        }
        sleep(20 * MS).await;
        quiet().await;
        let mut ran = ran.lock().unwrap().clone();
        ran.sort();
        assert_eq!(ran, [(10 * MS, 20 * MS), (20 * MS, 20 * MS)]);
    });
}

#[test]
fn a_paused_clock_records_no_lateness() {
    let _alarm = alarm();
    let runtime = paused(2);
    runtime.block_on(async {
        for i in 0..100 {
            drop(tourbillon::after(MS * i, || ()));
        }
        for _ in 0..200 {
            sleep(MS).await;
        }
        advance(1000 * MS).await;
        sleep(MS).await;
    });
    let metrics = runtime.metrics();
    assert!(metrics.total().fired() >= 300);
    for late in [
        metrics.wake_lateness(),
        metrics.queue_lateness(),
        metrics.rescued_lateness(),
    ] {
        assert_eq!(late.count(), 0, "{late:?}");
    }
}
