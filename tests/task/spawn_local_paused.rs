//! A paused clock waits for local tasks that are ready.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use crate::common::{HOUR, alarm, event::Event, paused::paused};
use tourbillon::{
    task::{LocalSet, spawn_local, spawn_pinned_by_idx, yield_now},
    time::{Instant, sleep},
};

#[test]
fn sleeps_of_pinned_tasks_are_exact() {
    let _alarm = alarm();
    for workers in 1..=3 {
        paused(workers).block_on(async {
            let start = Instant::now();
            let tasks: Vec<_> = (0..24_u32)
                .map(|n| {
                    let create = move || async move {
                        let naps = Rc::new(n);
                        for _ in 0..*naps {
                            sleep(HOUR).await;
                            let nested = spawn_local(sleep(HOUR));
                            nested.await.unwrap();
                        }
                        assert_eq!(start.elapsed(), 2 * HOUR * n);
                    };
                    spawn_pinned_by_idx(create, n as usize % workers).unwrap()
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(start.elapsed(), 46 * HOUR);
        });
    }
}

#[test]
fn the_clock_stands_still_while_a_local_task_is_ready() {
    let _alarm = alarm();
    for workers in 1..=3 {
        let runtime = paused(workers);
        runtime.block_on(async {
            let start = Instant::now();
            let create = move || async move {
                for _ in 0..500 {
                    yield_now().await;
                    // Another worker wakes this task, if there is one.
                    tourbillon::spawn(yield_now()).await.unwrap();
                    assert_eq!(start.elapsed(), Duration::ZERO);
                }
            };
            let all: Vec<_> = (0..workers)
                .map(|worker| spawn_pinned_by_idx(create, worker).unwrap())
                .collect();
            let later = tourbillon::spawn(sleep(HOUR));
            for task in all {
                task.await.unwrap();
            }
            assert_eq!(start.elapsed(), Duration::ZERO);
            later.await.unwrap();
            assert_eq!(start.elapsed(), HOUR);
        });
    }
}

/// A push from another thread is the last event before all threads are idle.
#[test]
fn a_remote_wake_runs_before_the_clock_advances() {
    let _alarm = alarm();
    let runtime = paused(2);
    let rounds = Arc::new(AtomicUsize::new(0));
    for round in 1..=300 {
        let (event, count) = (Event::default(), rounds.clone());
        let waits = event.clone();
        runtime.block_on(async {
            let start = Instant::now();
            let create = move || async move {
                waits.wait().await;
                count.fetch_add(1, SeqCst);
                start.elapsed()
            };
            let waiting = spawn_pinned_by_idx(create, 0).unwrap();
            let create = move || async move {
                sleep(HOUR).await;
                event.set();
            };
            let wakes = spawn_pinned_by_idx(create, 1).unwrap();
            assert_eq!(waiting.await.unwrap(), HOUR);
            wakes.await.unwrap();
            assert_eq!(start.elapsed(), HOUR);
        });
        assert_eq!(rounds.load(SeqCst), round);
    }
}

#[test]
fn ready_tasks_of_a_local_set_keep_the_clock_still() {
    let _alarm = alarm();
    let runtime = paused(2);
    let set = LocalSet::new();
    set.block_on(&runtime, async {
        let start = Instant::now();
        let busy = spawn_local(async move {
            for _ in 0..1_000 {
                yield_now().await;
            }
            start.elapsed()
        });
        let sleeper = spawn_local(async move {
            sleep(HOUR).await;
            start.elapsed()
        });
        assert_eq!(busy.await.unwrap(), Duration::ZERO);
        assert_eq!(sleeper.await.unwrap(), HOUR);
    });
}
