//! The task that measures how long tasks wait for a worker.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tourbillon::{
    task::yield_now,
    time::{Instant, sleep},
};

use crate::{
    admission::Shared,
    budget::{Budget, Window},
};

/// How often a wait is tried.
const TRY: Duration = Duration::from_millis(2);
/// How long a window is, at least.
const LEAST: Duration = Duration::from_millis(10);
/// A window with few requests is longer: until so many have ended, or so long.
const ENOUGH: u64 = 8;
const MOST: Duration = Duration::from_millis(100);

/// Measures while requests come, until nobody has a reference to what is shared.
pub(crate) async fn run(weak: Weak<Shared>, target: Duration) {
    let mut budget = Budget::new(target);
    loop {
        let Some(shared) = weak.upgrade() else { return };
        // Without requests there is nothing to measure, and the server sleeps.
        let rings = shared.bell.clone();
        drop(shared);
        rings.notified().await;

        let mut begin = Instant::now();
        let mut before = match weak.upgrade() {
            Some(shared) => shared.totals(),
            None => return,
        };
        let mut delay = Duration::MAX;
        loop {
            sleep(TRY).await;
            let asked = Instant::now();
            // The task is behind all others of its worker now. So this is how long a task waits.
            yield_now().await;
            let now = Instant::now();
            delay = delay.min(now - asked);
            let Some(shared) = weak.upgrade() else { return };
            let totals = shared.totals();
            let length = now - begin;
            let ended = totals.ended - before.ended;
            if length < LEAST || (ended < ENOUGH && length < MOST) {
                continue;
            }
            let arrived = [0, 1, 2].map(|i| totals.arrived[i] - before.arrived[i]);
            let rate = budget.learn(&Window {
                length,
                delay,
                arrived: arrived.iter().sum(),
                ended,
            });
            let a_second = arrived.map(|arrived| arrived as f64 / length.as_secs_f64());
            shared.apply(rate, a_second, delay);
            if rate.is_none() && arrived == [0; 3] {
                shared.rest();
                break;
            }
            (begin, before, delay) = (now, totals, Duration::MAX);
        }
    }
}

/// Starts the task on the runtime of the caller.
pub(crate) fn start(shared: &Arc<Shared>, target: Duration) {
    let task = tourbillon::task::Builder::new().name("admission");
    drop(task.spawn(run(Arc::downgrade(shared), target)));
}
