//! A cancelled timer frees its callback at once, and its node within a bound, even if its worker is
//! blocked.

use std::{sync::mpsc, time::Duration};

use crate::common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, runtime};
use tourbillon::{Runtime, Timer, runtime::Builder, timer::Cancel};

/// The number of timers that one cancel past the bound sweeps.
const BATCH: usize = 256;

/// Returns the upper bound that the metrics document: a quarter of the live timers or 64, one
/// batch, and what a sweep has removed but still counts.
fn bound(live: usize) -> usize {
    let part = (live / 4).max(64);
    part + part / 128 + BATCH
}

/// Keeps a worker blocked, until it is dropped.
struct Blocked(Gate);

impl Drop for Blocked {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// Runs `arm` in a callback on the only worker, and then blocks the worker there.
fn block_with(
    runtime: &Runtime,
    arm: impl FnOnce() -> Vec<Timer> + Send + 'static,
) -> (Vec<Timer>, Blocked) {
    let (sender, receiver) = mpsc::channel();
    let blocked = Blocked(Gate::new());
    let release = blocked.0.clone();
    runtime.handle().after(Duration::ZERO, move || {
        sender.send(arm()).unwrap();
        // Blocks until the test ends or its alarm goes off.
        while !release.wait_for(PATIENCE) {}
    });
    (receiver.recv_timeout(PATIENCE).unwrap(), blocked)
}

fn arm_on_worker(count: usize, drops: &Drops) -> Vec<Timer> {
    (0..count)
        .map(|i| {
            let token = drops.token();
            let delay = HOUR + Duration::from_micros(i as u64);
            tourbillon::after(delay, move || drop(token))
        })
        .collect()
}

/// Cancels all timers from this thread. Checks the dropped callbacks and the garbage in between.
fn cancel_all(runtime: &Runtime, timers: Vec<Timer>, drops: &Drops) {
    let count = timers.len();
    let before = drops.count();
    for (i, timer) in timers.into_iter().enumerate() {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(drops.count() - before, i + 1, "the callback is still there");
        // Reading the metrics costs more than a cancellation. An excess beyond a batch lasts for
        // many cancellations, so a check after every 16th suffices.
        if i % 16 != 0 {
            continue;
        }
        let live = count - i - 1;
        let metrics = runtime.metrics();
        let garbage = metrics.workers()[0].garbage();
        assert!(garbage <= bound(live), "{garbage} for {live} live ones");
    }
}

#[test]
fn a_million_cancelled_timers_of_a_blocked_worker_leave_bounded_garbage() {
    let _alarm = alarm();
    const COUNT: usize = 1_000_000;
    let runtime = runtime(1);
    let drops = Drops::new();
    let (timers, blocked) = {
        let drops = drops.clone();
        block_with(&runtime, move || arm_on_worker(COUNT, &drops))
    };
    assert_eq!(runtime.metrics().workers()[0].stored(), COUNT);
    cancel_all(&runtime, timers, &drops);
    assert_eq!(drops.count(), COUNT);
    let metrics = runtime.metrics();
    let worker = &metrics.workers()[0];
    assert!(worker.stored() <= bound(0), "{worker:?}");
    assert_eq!(worker.counts().callbacks(), 0, "the worker was not blocked");
    drop(blocked);
    // The worker frees the rest as soon as it looks at its shard.
    eventually("nothing is left", || {
        drop(runtime.handle().after(Duration::ZERO, || ()));
        let metrics = runtime.metrics();
        metrics.workers()[0].garbage() == 0 && metrics.workers()[0].stored() <= 1
    });
}

/// The next deadline is that of a cancelled timer until the worker has read the cancellation.
#[test]
fn a_cancelled_timer_counts_for_the_next_deadline_until_it_is_removed() {
    let _alarm = alarm();
    // No other thread may read the cancellation.
    let mut runtime = Builder::new();
    runtime.worker_threads(1).helpers(0..=0);
    let runtime = runtime.build().unwrap();
    let (timers, blocked) = block_with(&runtime, || vec![tourbillon::after(HOUR, || ())]);
    assert_eq!(timers[0].cancel(), Cancel::Cancelled);
    let counts = runtime.timers();
    assert_eq!((counts.pending(), counts.garbage()), (0, 1));
    assert!(counts.next_deadline().is_some());
    drop(blocked);
    // The worker reads it when it next wakes.
    runtime.handle().after(Duration::ZERO, || ());
    eventually("the cancelled timer is removed", || {
        runtime.timers().next_deadline().is_none()
    });
}
