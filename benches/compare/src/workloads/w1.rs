//! W1, cancel and arm: 100,000 timers of 1 to 59 s are pending; the one armed first is cancelled and
//! another armed, two million times. One worker, one task, which gives way after every thousand pairs.
//!
//! *callback*: ours by `after` and `cancel`; `DelayQueue` by `insert` and `remove`, which is the nearest
//! that tokio has: a timer without a waker. *sleep*: a boxed future of each system, polled once and
//! dropped to cancel. Each reads the clock when it is made.
//!
//! *recycled*: as many were armed and cancelled before, in no order: what the allocator has kept of them is scattered,
//! and each pair meets memory in no order, which the core's own caches have no more. Each figure is of a process of its own.

use std::time::{Duration, Instant};

use crate::{
    measure::parts,
    system::System,
    timers::{Callbacks, Draw, Queue, Sleeps, Timers, in_steps, on},
    workload::{Figure, Workload, refuse},
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
const CALLBACK_RECYCLED: &str = "callback, recycled: ns per pair";
const SLEEP: &str = "sleep: ns per pair";
const SLEEP_RECYCLED: &str = "sleep, recycled: ns per pair";

fn run(system: System, quick: bool) -> Vec<Figure> {
    let names: &[_] = match system {
        System::Tourbillon => &[CALLBACK, CALLBACK_RECYCLED, SLEEP, SLEEP_RECYCLED],
        System::DelayQueue => &[CALLBACK, CALLBACK_RECYCLED],
        System::Tokio | System::TokioAlt | System::Smol => &[SLEEP, SLEEP_RECYCLED],
        System::Compio | System::Monoio | System::Glommio => refuse("not in this workload"),
    };
    parts::each_figure(names, |name| {
        let recycled = [CALLBACK_RECYCLED, SLEEP_RECYCLED].contains(&name);
        let of = match system {
            System::Tourbillon if [CALLBACK, CALLBACK_RECYCLED].contains(&name) => {
                pairs::<Callbacks>
            }
            System::Tourbillon => pairs::<Sleeps<tourbillon::time::Sleep>>,
            System::DelayQueue => pairs::<Queue>,
            System::Smol => pairs::<Sleeps<smol::Timer>>,
            _ => pairs::<Sleeps<tokio::time::Sleep>>,
        };
        of(system, recycled, quick)
    })
}

const HOUR: Duration = Duration::from_secs(3_600);

/// ns per pair.
fn pairs<T: Timers>(system: System, recycled: bool, quick: bool) -> f64 {
    let (pending, count) = if quick {
        (1_000, 10_000)
    } else {
        (100_000, 2_000_000)
    };
    on(system, async move {
        let mut draw = Draw::new();
        let mut timers = T::default();
        if recycled {
            // None of them is due before it is cancelled, however busy the machine.
            in_steps(pending, |cx, _| timers.arm(cx, HOUR + draw.delay())).await;
            timers.shuffle(&mut draw);
            in_steps(pending, |_, _| timers.cancel_oldest()).await;
        }
        in_steps(pending, |cx, _| timers.arm(cx, draw.delay())).await;
        let start = Instant::now();
        in_steps(count, |cx, _| {
            timers.cancel_oldest();
            timers.arm(cx, draw.delay());
        })
        .await;
        start.elapsed().as_nanos() as f64 / count as f64
    })
}
