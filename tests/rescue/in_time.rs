//! The timers of a blocked worker fire while it is blocked, each at its own time, whatever the
//! latency is.

use std::time::{Duration, Instant};

use crate::common::{
    alarm,
    blocked::{AllBlocked, Blocked, Says, all_come_elsewhere},
};
use tourbillon::{Runtime, runtime::Builder};

/// The number of timers on each blocked worker.
const TIMERS: usize = 40;

fn runtime(latency: Duration, helpers: usize) -> Runtime {
    Builder::new()
        .worker_threads(2 - helpers.min(1))
        .helpers(0..=helpers)
        .rescue_latency(latency)
        .build()
        .unwrap()
}

/// Blocks a worker until all of its timers have fired, none of them early, and all elsewhere. In a
/// runtime of one worker, helpers fire them. The first timers are due before any peer is called.
fn fire_elsewhere(runtime: &Runtime, apart: Duration) {
    let (says, fired) = Says::new();
    let arm = move || {
        let begin = Instant::now();
        for (n, index) in (1..).zip(0..TIMERS) {
            let due = begin + n * apart;
            drop(tourbillon::at(due, says.comes(index, due)));
        }
    };
    if runtime.metrics().num_workers() == 1 {
        let blocked = AllBlocked::after(runtime, move |_| arm());
        blocked.all_come_elsewhere(&fired, TIMERS);
    } else {
        let (blocked, ()) = Blocked::after(runtime.handle(), arm);
        all_come_elsewhere(&blocked, &fired, TIMERS);
    }
}

#[test]
fn rescued_timers_are_never_early_and_never_lost() {
    let _alarm = alarm();
    for latency in [200, 1_000, 5_000].map(Duration::from_micros) {
        for helpers in [0, 2] {
            let runtime = runtime(latency, helpers);
            for apart in [20, 300, 3_000].map(Duration::from_micros) {
                fire_elsewhere(&runtime, apart);
            }
        }
    }
}
