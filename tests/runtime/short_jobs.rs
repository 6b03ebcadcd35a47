//! A few short jobs wake no other worker. If one of them blocks after all, the others run
//! elsewhere.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use crate::common::{PATIENCE, alarm};
use tourbillon::{Runtime, Timer, runtime::Builder, time::Instant};

/// Runs many short jobs on the first worker, a few at a time.
fn short_ones(runtime: &Runtime) {
    for _ in 0..200 {
        let (sender, receiver) = mpsc::channel();
        let at = Instant::now();
        for _ in 0..3 {
            let sender = sender.clone();
            let timer = Timer::at(at).on_worker(0).on(runtime.handle());
            timer.start(move || sender.send(()).unwrap());
        }
        for _ in 0..3 {
            receiver.recv_timeout(PATIENCE).unwrap();
        }
    }
}

/// Spawns a few jobs, one of which waits for the others.
fn one_blocks(runtime: &Runtime) {
    const OTHERS: usize = 3;
    let (sender, receiver) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let left = Arc::new(AtomicUsize::new(OTHERS));
    let at = Instant::now() + Duration::from_millis(5);
    let on_first = |at| Timer::at(at).on_worker(0).on(runtime.handle());
    on_first(at).start(move || {
        let waited = waits.recv_timeout(PATIENCE);
        sender.send(waited).unwrap();
    });
    for _ in 0..OTHERS {
        let (left, go_on) = (left.clone(), go_on.clone());
        on_first(at + Duration::from_nanos(1)).start(move || {
            if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                go_on.send(()).unwrap();
            }
        });
    }
    drop(go_on);
    let waited = receiver.recv_timeout(2 * PATIENCE).unwrap();
    assert_eq!(waited, Ok(()), "the others did not run elsewhere");
}

fn run(builder: &mut Builder) {
    let _alarm = alarm();
    let runtime = builder.worker_threads(2).build().unwrap();
    for _ in 0..20 {
        short_ones(&runtime);
        one_blocks(&runtime);
    }
}

#[test]
fn a_blocking_job_does_not_delay_the_short_ones() {
    run(&mut Builder::new());
}

/// With rescue turned off.
#[test]
fn a_blocking_job_does_not_delay_the_short_ones_without_rescue() {
    run(Builder::new().rescue_latency(Duration::MAX));
}
