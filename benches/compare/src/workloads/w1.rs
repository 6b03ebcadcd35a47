//! W1: cancelling and arming timers.
//!
//! 100,000 timers with delays of 1 to 59 s are pending. The task cancels the timer that was armed
//! first and arms another one, two million times. The runtime has one worker, and the task yields
//! after every thousand pairs.
//!
//! - *callback*: Tourbillon uses `after` and `cancel`, and `DelayQueue` uses `insert` and
//!   `remove`. `DelayQueue` is the nearest equivalent in tokio, because its timers have no waker.
//! - *sleep*: a boxed future of each system. The task polls the future once to arm it, and drops
//!   the future to cancel it.
//! - *callback, at* and *sleep, until*: the same as libraries do it. They read the clock, add the
//!   delay, and give the instant to `at` or `sleep_until`. For a callback it is an instant of the
//!   standard library.
//! - *recycled*: before the measurement, the task arms 100,000 other timers and cancels them in
//!   random order. This scatters the memory that the allocator keeps. Each pair then gets memory
//!   in random order, and the core's private caches no longer hold that memory.
//!
//! Every timer reads the clock when it is created. Each figure has a process of its own.

use std::time::{Duration, Instant};

use crate::{
    measure::parts,
    system::System,
    timers::{
        Callbacks, CallbacksAt, Draw, Queue, Sleeping, Sleeps, SleepsUntil, Timers, in_steps, on,
    },
    workload::{Figure, Workload, refuse},
};

pub const WORKLOAD: Workload = Workload {
    name: "w1",
    systems: &System::TIMERS,
    run,
};

const CALLBACK: &str = "callback: ns per pair";
const CALLBACK_RECYCLED: &str = "callback, recycled: ns per pair";
const SLEEP: &str = "sleep: ns per pair";
const SLEEP_RECYCLED: &str = "sleep, recycled: ns per pair";
const CALLBACK_AT: &str = "callback, at: ns per pair";
const SLEEP_UNTIL: &str = "sleep, until: ns per pair";

fn run(system: System, quick: bool) -> Vec<Figure> {
    let names: &[_] = match system {
        System::Tourbillon => &[
            CALLBACK,
            CALLBACK_RECYCLED,
            SLEEP,
            SLEEP_RECYCLED,
            CALLBACK_AT,
            SLEEP_UNTIL,
        ],
        System::DelayQueue => &[CALLBACK, CALLBACK_RECYCLED],
        System::Tokio | System::TokioAlt | System::Smol => &[SLEEP, SLEEP_RECYCLED, SLEEP_UNTIL],
        _ => refuse("not in this workload"),
    };
    parts::each_figure(names, |name| {
        let recycled = [CALLBACK_RECYCLED, SLEEP_RECYCLED].contains(&name);
        let of = match system {
            System::Tourbillon if [CALLBACK, CALLBACK_RECYCLED].contains(&name) => {
                pairs::<Callbacks>
            }
            System::Tourbillon if name == CALLBACK_AT => pairs::<CallbacksAt>,
            System::Tourbillon => sleeps::<tourbillon::time::Sleep>(name),
            System::DelayQueue => pairs::<Queue>,
            System::Smol => sleeps::<smol::Timer>(name),
            _ => sleeps::<tokio::time::Sleep>(name),
        };
        of(system, recycled, quick)
    })
}

/// Returns the measurement of a figure of sleeps.
fn sleeps<S: Sleeping>(name: &str) -> fn(System, bool, bool) -> f64 {
    match name {
        SLEEP_UNTIL => pairs::<SleepsUntil<S>>,
        _ => pairs::<Sleeps<S>>,
    }
}

/// Extra delay of the timers that prepare a *recycled* figure. No such timer is due before its
/// cancellation, even on a busy machine.
const HOUR: Duration = Duration::from_secs(3_600);

/// Returns the mean time of a pair, in ns.
///
/// If `recycled` is true, other timers are armed and cancelled in random order before the
/// measurement.
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
