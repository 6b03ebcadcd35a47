//! W1, cancel and arm: 100,000 timers of 1 to 59 s are pending; the one armed first is cancelled and
//! another armed, two million times. One worker, one task, which gives way after every thousand pairs.
//!
//! *callback*: ours by `after` and `cancel`; `DelayQueue` by `insert` and `remove`, which is the nearest
//! that tokio has: a timer without a waker. *sleep*: a boxed future of each system, polled once and
//! dropped to cancel. Each reads the clock when it is made.

use std::time::Instant;

use super::{Figure, Workload};
use crate::{
    system::System,
    timers::{Callbacks, Draw, Queue, Sleeps, Timers, in_steps, on},
};

pub const WORKLOAD: Workload = Workload {
    name: "w1",
    systems: &[
        System::Tourbillon,
        System::Tokio,
        System::TokioAlt,
        System::DelayQueue,
        System::Smol,
    ],
    run,
};

const CALLBACK: &str = "callback: ns per pair";
const SLEEP: &str = "sleep: ns per pair";

fn run(system: System, quick: bool) -> Vec<Figure> {
    match system {
        System::Tourbillon => vec![
            pairs::<Callbacks>(system, CALLBACK, quick),
            pairs::<Sleeps<tourbillon::time::Sleep>>(system, SLEEP, quick),
        ],
        System::Tokio | System::TokioAlt => {
            vec![pairs::<Sleeps<tokio::time::Sleep>>(system, SLEEP, quick)]
        }
        System::DelayQueue => vec![pairs::<Queue>(system, CALLBACK, quick)],
        System::Smol => vec![pairs::<Sleeps<smol::Timer>>(system, SLEEP, quick)],
        System::Compio | System::Monoio | System::Glommio => super::refuse("not in this workload"),
    }
}

fn pairs<T: Timers>(system: System, name: &'static str, quick: bool) -> Figure {
    let (pending, count) = if quick {
        (1_000, 10_000)
    } else {
        (100_000, 2_000_000)
    };
    let value = on(system, async move {
        let mut draw = Draw::new();
        let mut timers = T::default();
        in_steps(pending, |cx, _| timers.arm(cx, draw.delay())).await;
        let start = Instant::now();
        in_steps(count, |cx, _| {
            timers.cancel_oldest();
            timers.arm(cx, draw.delay());
        })
        .await;
        start.elapsed().as_nanos() as f64 / count as f64
    });
    Figure { name, value }
}
