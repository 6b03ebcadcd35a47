//! The task that measures how long tasks wait for a worker.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use tourbillon::time::{Instant, sleep_until, with_tolerance};

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
/// How much a window counts for how many requests of a priority come.
const SMOOTH: f64 = 0.3;

/// Admits everything when the task ends, whoever ended it: nobody measures any more.
struct Opens(Weak<Shared>);

impl Drop for Opens {
    fn drop(&mut self) {
        if let Some(shared) = self.0.upgrade() {
            shared.apply(None, [0.0; 3], Duration::ZERO);
        }
    }
}

/// Measures while requests come, until nobody has a reference to what is shared.
async fn run(weak: Weak<Shared>, target: Duration) {
    let _opens = Opens(weak.clone());
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
        let mut arrivals = [0.0; 3];
        loop {
            let due = Instant::now() + TRY;
            // The runtime's budget for wake-ups would make it late, too.
            with_tolerance(Duration::ZERO, sleep_until(due)).await;
            // When the sleep is over, this task goes behind all others of a worker. So it is as late
            // as each task that becomes ready now.
            let now = Instant::now();
            delay = delay.min(now - due);
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
            // The mean of some windows: one has few requests of a rare priority.
            for (mean, arrived) in arrivals.iter_mut().zip(arrived) {
                *mean += SMOOTH * (arrived as f64 / length.as_secs_f64() - *mean);
            }
            shared.apply(rate, arrivals, delay);
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
