//! Pausing and resuming a runtime at work loses no timer and fires none early.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant as StdInstant},
};

use crate::common::{HOUR, Random, alarm, eventually};
use tourbillon::{
    runtime::Builder,
    time::{self, Instant, advance, sleep},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_resumed_clock_keeps_real_time() {
    let _alarm = alarm();
    for workers in [1, 3] {
        let mut builder = Builder::new();
        builder.worker_threads(workers);
        let runtime = builder.build().unwrap();
        for delay in [3 * MS, 25 * MS] {
            let deadline = runtime.block_on(async { Instant::now() }) + 2 * HOUR;
            let left = || runtime.block_on(async { deadline - Instant::now() });
            // The workers wait for this deadline. Twice, a jump brings the deadline nearer, and
            // they wait anew.
            let timer = runtime.handle().at(deadline, || ());
            thread::sleep(MS);
            runtime.pause_clock();
            runtime.block_on(advance(HOUR));
            runtime.resume_clock();
            thread::sleep(MS);
            runtime.pause_clock();
            runtime.block_on(advance(left() - delay));
            assert_eq!(left(), delay);
            assert!(timer.is_pending());
            let real = StdInstant::now();
            runtime.resume_clock();
            eventually("it fires by the real clock", || !timer.is_pending());
            assert!(real.elapsed() >= delay, "not before");
        }
    }
}

#[test]
fn time_during_a_pause_does_not_count() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(2);
    runtime.block_on(async {
        time::pause();
        time::pause();
        let start = Instant::now();
        thread::sleep(20 * MS);
        assert_eq!(start.elapsed(), Duration::ZERO);
        let real = StdInstant::now();
        time::resume();
        time::resume();
        sleep(5 * MS).await;
        assert!(real.elapsed() >= 5 * MS, "no part of it had passed");
        assert!(start.elapsed() >= 5 * MS);
        assert!(start.elapsed() <= real.elapsed());
    });
}

#[test]
fn resume_ends_a_waiting_advance() {
    let _alarm = alarm();
    let runtime = crate::common::runtime(2);
    runtime.pause_clock();
    let (began, gate) = (crate::common::Gate::new(), crate::common::Gate::new());
    let blocks = {
        let (began, gate) = (began.clone(), gate.clone());
        runtime.handle().after(Duration::ZERO, move || {
            began.open();
            gate.wait();
        })
    };
    began.wait();
    let start = runtime.block_on(async { Instant::now() });
    // The runtime is not quiet, so the jump has to wait.
    let asked = crate::common::Gate::new();
    let waits = {
        let asked = asked.clone();
        runtime.spawn(async move {
            let mut advance = pin!(advance(HOUR));
            poll_fn(|cx| {
                let poll = advance.as_mut().poll(cx);
                asked.open();
                poll
            })
            .await;
        })
    };
    asked.wait();
    assert!(!waits.is_finished());
    runtime.resume_clock();
    runtime.block_on(waits).unwrap();
    gate.open();
    assert!(runtime.block_on(async { start.elapsed() }) >= HOUR);
    drop(blocks);
}

/// Callbacks and sleeps of many lengths run while a thread pauses, advances and resumes the
/// runtime at random.
#[test]
fn pause_and_resume_lose_no_timer_and_fire_none_early() {
    let _alarm = alarm();
    for workers in [1, 2, 4] {
        let runtime = Arc::new(crate::common::runtime(workers));
        let stop = Arc::new(AtomicBool::new(false));
        let meddler = {
            let (runtime, stop) = (runtime.clone(), stop.clone());
            thread::spawn(move || {
                let mut random = Random::new(workers as u64);
                while !stop.load(Ordering::SeqCst) {
                    runtime.pause_clock();
                    if random.below(2) == 0 {
                        let jump = Duration::from_micros(random.below(300));
                        runtime.block_on(advance(jump));
                    }
                    if random.below(2) == 0 {
                        thread::sleep(Duration::from_micros(random.below(300)));
                    }
                    runtime.resume_clock();
                    thread::sleep(Duration::from_micros(random.below(300)));
                }
            })
        };
        let early = Arc::new(AtomicUsize::new(0));
        let ended = Arc::new(AtomicUsize::new(0));
        let mut random = Random::new(77);
        for i in 0..2_000 {
            let delay = Duration::from_nanos(random.below(30_000_000));
            let (early, ended) = (early.clone(), ended.clone());
            let end = move |due: Instant| {
                early.fetch_add(usize::from(Instant::now() < due), Ordering::SeqCst);
                ended.fetch_add(1, Ordering::SeqCst);
            };
            if i % 2 == 0 {
                let _entered = runtime.enter();
                let due = Instant::now() + delay;
                runtime.handle().at(due, move || end(due));
            } else {
                runtime.spawn(async move {
                    let due = Instant::now() + delay;
                    sleep(delay).await;
                    end(due);
                });
            }
            if i % 50 == 0 {
                thread::sleep(MS);
            }
        }
        eventually("all have fired", || ended.load(Ordering::SeqCst) == 2_000);
        stop.store(true, Ordering::SeqCst);
        meddler.join().unwrap();
        assert_eq!(early.load(Ordering::SeqCst), 0);
    }
}

#[test]
fn the_clock_never_goes_backwards() {
    let _alarm = alarm();
    let runtime = Arc::new(crate::common::runtime(2));
    let stop = Arc::new(AtomicBool::new(false));
    let latest = Arc::new(Mutex::new(runtime.block_on(async { Instant::now() })));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (runtime, stop, latest) = (runtime.clone(), stop.clone(), latest.clone());
            thread::spawn(move || {
                let _entered = runtime.enter();
                while !stop.load(Ordering::SeqCst) {
                    let mut latest = latest.lock().unwrap();
                    let now = Instant::now();
                    assert!(now >= *latest);
                    *latest = now;
                }
            })
        })
        .collect();
    let mut random = Random::new(5);
    for _ in 0..500 {
        runtime.pause_clock();
        if random.below(3) == 0 {
            runtime.block_on(advance(MS));
        }
        thread::sleep(Duration::from_micros(random.below(50)));
        runtime.resume_clock();
        thread::sleep(Duration::from_micros(random.below(50)));
    }
    stop.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.join().unwrap();
    }
}
