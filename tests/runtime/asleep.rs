//! Workers that sleep keep the promises of timers.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    HOUR, PATIENCE, alarm, eventually,
    net::{echo_all, pair},
    on_worker,
};
use tourbillon::{
    Runtime,
    runtime::Builder,
    time::sleep,
    timer::{Cancel, Reset},
};

fn build(workers: usize) -> Runtime {
    Builder::new().worker_threads(workers).build().unwrap()
}

/// Waits until all workers sleep: none of them has gone to sleep again for 5 ms.
fn asleep(runtime: &Runtime) {
    let parks = || runtime.metrics().total().parks();
    eventually("the workers sleep", || {
        let before = parks();
        thread::sleep(Duration::from_millis(5));
        parks() == before
    });
}

/// Receives the report of a callback, and checks that the callback did not run early.
#[track_caller]
fn not_early(receiver: &mpsc::Receiver<(Instant, Instant)>) {
    let (asked, ran) = receiver
        .recv_timeout(PATIENCE)
        .expect("the worker sleeps past the deadline");
    assert!(ran >= asked, "early by {:?}", asked - ran);
}

#[test]
fn sleeping_workers_fire_no_timer_early() {
    let _alarm = alarm();
    let runtime = build(2);
    let (sender, receiver) = mpsc::channel();
    for nanos in [
        0, 1, 999, 1_000, 60_000, 999_999, 1_000_000, 1_000_001, 2_345_678, 30_000_000,
    ] {
        // One at a time, so that each is what the worker sleeps for.
        for _ in 0..5 {
            let sender = sender.clone();
            let asked = Instant::now() + Duration::from_nanos(nanos);
            runtime
                .handle()
                .at(asked, move || sender.send((asked, Instant::now())).unwrap());
            not_early(&receiver);
        }
        let start = Instant::now();
        runtime.block_on(sleep(Duration::from_nanos(nanos)));
        assert!(start.elapsed() >= Duration::from_nanos(nanos));
    }
}

#[test]
fn timers_run_in_the_order_of_their_deadlines() {
    let _alarm = alarm();
    let runtime = build(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    {
        let order = order.clone();
        on_worker(&runtime, move || {
            let base = Instant::now() + Duration::from_millis(1);
            for i in 0..200_u32 {
                let place = i * 37 % 200;
                let order = order.clone();
                tourbillon::at(base + place * Duration::from_micros(40), move || {
                    order.lock().unwrap().push(place);
                });
            }
        });
    }
    eventually("all of them run", || order.lock().unwrap().len() == 200);
    assert!(order.lock().unwrap().is_sorted());
}

#[test]
fn an_earlier_timer_from_another_thread_wakes_the_worker() {
    let _alarm = alarm();
    let runtime = build(1);
    let (sender, receiver) = mpsc::channel();
    // The worker sleeps without a deadline, then for an hour, and then for a minute.
    let mut sleeps_for = Vec::new();
    for until in [None, Some(HOUR), Some(HOUR / 60)] {
        sleeps_for.extend(until.map(|until| runtime.handle().after(until, || ())));
        for delay in [Duration::ZERO, Duration::from_millis(3)] {
            asleep(&runtime);
            let sender = sender.clone();
            let asked = Instant::now() + delay;
            runtime
                .handle()
                .at(asked, move || sender.send((asked, Instant::now())).unwrap());
            not_early(&receiver);
        }
    }
    assert!(sleeps_for.iter().all(|timer| timer.is_pending()));
}

#[test]
fn a_timer_moved_earlier_wakes_the_worker() {
    let _alarm = alarm();
    let runtime = build(1);
    let (sender, receiver) = mpsc::channel();
    for delay in [Duration::ZERO, Duration::from_millis(3)] {
        let asked = Arc::new(Mutex::new(None));
        let (sender, told) = (sender.clone(), asked.clone());
        let timer = runtime.handle().after(HOUR, move || {
            let now = Instant::now();
            sender.send((told.lock().unwrap().unwrap(), now)).unwrap();
        });
        asleep(&runtime);
        let to = Instant::now() + delay;
        *asked.lock().unwrap() = Some(to);
        assert_eq!(timer.reset_at(to), Reset::Pending);
        not_early(&receiver);
    }
}

#[test]
fn a_timer_moved_later_or_cancelled_leaves_the_next() {
    let _alarm = alarm();
    let runtime = build(1);
    let (sender, receiver) = mpsc::channel();
    let mut undisturbed = 0;
    while undisturbed < 3 {
        let first = runtime.handle().after(Duration::from_millis(10), || ());
        let second = runtime.handle().after(Duration::from_millis(12), || ());
        let asked = Instant::now() + Duration::from_millis(20);
        let sender = sender.clone();
        runtime
            .handle()
            .at(asked, move || sender.send((asked, Instant::now())).unwrap());
        // On a slow machine, these timers may fire before this. Such a round does not count.
        let in_time =
            first.reset_after(HOUR) == Reset::Pending && second.cancel() == Cancel::Cancelled;
        not_early(&receiver);
        if in_time {
            assert!(first.is_pending(), "it was moved by an hour");
            undisturbed += 1;
        }
        first.cancel();
    }
}

#[test]
fn a_worker_that_is_woken_for_sockets_still_keeps_its_deadlines() {
    let _alarm = alarm();
    use futures_lite::{AsyncReadExt, AsyncWriteExt};

    let runtime = build(1);
    let (sender, receiver) = mpsc::channel();
    runtime.block_on(async {
        let (mut stream, peer) = pair().await;
        let echo = tourbillon::spawn(echo_all(peer));
        for i in 0..300_u64 {
            let asked = Instant::now() + Duration::from_micros(i % 7 * 130);
            let sender = sender.clone();
            tourbillon::at(asked, move || sender.send((asked, Instant::now())).unwrap());
            stream.write_all(&[i as u8]).await.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte, [i as u8]);
        }
        drop(stream);
        echo.await.unwrap().unwrap();
    });
    for _ in 0..300 {
        not_early(&receiver);
    }
}
