//! What a worker has woken and would run next is not lost to the rest when the worker gets stuck: a peer
//! that looks for work takes it.

mod common;

use std::{
    future::poll_fn,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Poll, Waker},
};

use common::{Gate, alarm, event::Event, eventually, runtime};

#[test]
fn a_task_that_a_stuck_worker_was_to_run_next_is_taken_by_a_peer_that_searches() {
    let _alarm = alarm();
    for workers in [2, 3] {
        let runtime = runtime(workers);
        for _ in 0..50 {
            let (event, stuck, release) = (Event::default(), Gate::new(), Gate::new());
            let (ran, waits) = (Gate::new(), Arc::new(AtomicBool::new(false)));
            let task = {
                let (event, ran, waits) = (event.clone(), ran.clone(), waits.clone());
                runtime.spawn(async move {
                    waits.store(true, SeqCst);
                    event.wait().await;
                    ran.open();
                })
            };
            eventually("it waits", || waits.load(SeqCst));
            let blocking = {
                let (stuck, release) = (stuck.clone(), release.clone());
                runtime.spawn(async move {
                    // Into the slot of this worker, which does nothing more then.
                    event.set();
                    stuck.open();
                    release.wait();
                })
            };
            stuck.wait();
            // Nobody is woken for it; but who is awake finds it.
            eventually("a peer takes it", || {
                runtime.block_on(runtime.spawn(async {})).unwrap();
                ran.is_open()
            });
            release.open();
            runtime.block_on(task).unwrap();
            runtime.block_on(blocking).unwrap();
        }
    }
}

/// Owners and thieves at once: each wake-up is one poll, and none is lost.
#[test]
fn pairs_that_wake_each_other_on_all_workers_lose_nothing() {
    const PAIRS: usize = 6;
    const ROUNDS: usize = 20_000;
    let _alarm = alarm();
    let runtime = runtime(3);
    let mut tasks = Vec::new();
    for _ in 0..PAIRS {
        let turn = Arc::new(AtomicUsize::new(0));
        let wakers: Arc<Mutex<[Option<Waker>; 2]>> = Arc::default();
        for me in 0..2 {
            let (turn, wakers) = (turn.clone(), wakers.clone());
            tasks.push(runtime.spawn(poll_fn(move |cx| {
                // First the waker, then the look: who takes a turn wakes who stands there.
                wakers.lock().unwrap()[me] = Some(cx.waker().clone());
                let now = turn.load(SeqCst);
                if now >= 2 * ROUNDS {
                    return Poll::Ready(());
                }
                if now % 2 != me {
                    return Poll::Pending;
                }
                turn.store(now + 1, SeqCst);
                if let Some(other) = wakers.lock().unwrap()[1 - me].take() {
                    other.wake();
                }
                // Stuck for a moment, now and then, with the other in the slot.
                if now % 64 == 0 {
                    let start = std::time::Instant::now();
                    while start.elapsed() < std::time::Duration::from_micros(20) {
                        std::hint::spin_loop();
                    }
                }
                if now + 1 >= 2 * ROUNDS {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            })));
        }
    }
    // Keeps the workers awake and searching.
    let over = Arc::new(AtomicBool::new(false));
    let stop = over.clone();
    let ticking = runtime.spawn(async move {
        while !stop.load(SeqCst) {
            tourbillon::time::sleep(std::time::Duration::from_micros(50)).await;
        }
    });
    for task in tasks {
        runtime.block_on(task).unwrap();
    }
    over.store(true, SeqCst);
    runtime.block_on(ticking).unwrap();
}
