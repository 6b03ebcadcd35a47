//! The callbacks and tasks of one worker run in the order of their deadlines.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::common::alarm;
use tourbillon::{
    runtime::Builder,
    task::yield_now,
    time::{Instant, sleep_until},
};

/// The time from arming the first timer to its deadline. It usually suffices to arm all timers.
const AHEAD: Duration = Duration::from_millis(50);
/// At most as many timers as a worker takes at once.
const COUNT: u32 = 50;

/// Returns whether job `i` is a task that sleeps. The other jobs are callbacks. One, two or three
/// tasks follow each other.
fn is_sleep(i: u32) -> bool {
    matches!(i % 11, 1 | 3 | 4 | 7..=9)
}

/// Returns the order of the runs, or `None` if the first was due before the last was armed.
async fn attempt() -> Option<Vec<u32>> {
    let order = Arc::new(Mutex::new(Vec::new()));
    let start = Instant::now();
    let at = move |i| start + AHEAD + Duration::from_micros(10) * i;
    for i in (0..COUNT).rev() {
        let order = order.clone();
        if is_sleep(i) {
            tourbillon::spawn(async move {
                sleep_until(at(i)).await;
                order.lock().unwrap().push(i);
            });
        } else {
            drop(tourbillon::at(at(i), move || order.lock().unwrap().push(i)));
        }
    }
    // Lets the tasks run, so that they arm their sleeps.
    yield_now().await;
    let in_time = Instant::now() < start + AHEAD;
    // All of the timers come due while this task keeps the worker from its loop.
    thread::sleep(2 * AHEAD);
    while order.lock().unwrap().len() < COUNT as usize {
        yield_now().await;
    }
    let order = order.lock().unwrap().clone();
    in_time.then_some(order)
}

#[test]
fn callbacks_and_tasks_due_together_run_in_deadline_order() {
    let _alarm = alarm();
    let runtime = Builder::new()
        .worker_threads(1)
        .rescue_latency(Duration::MAX)
        .build()
        .unwrap();
    let order = runtime.block_on(runtime.spawn(async {
        loop {
            if let Some(order) = attempt().await {
                return order;
            }
        }
    }));
    assert_eq!(order.unwrap(), (0..COUNT).collect::<Vec<_>>());
}
