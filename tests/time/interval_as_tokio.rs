//! Intervals tick as in tokio: the same program runs on two paused clocks, compared tick by tick.

use std::{
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use crate::common::{HOUR, alarm, eventually, paused::paused, woken::Woken};
use proptest::{collection::vec, prelude::*};

/// An operation on an interval. Times are in ms, the resolution of tokio's clock.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Waits for a tick.
    Tick,
    /// Asks for a tick without waiting.
    Poll,
    /// Does something else for this long.
    Work(u64),
    Reset,
    ResetImmediately,
    ResetAfter(u64),
    /// Resets to a time after the beginning. That time may have passed.
    ResetAt(u64),
    /// Sets `Burst`, `Delay` or `Skip`.
    Behavior(usize),
}

/// An observation: its time, and the time at which the tick was due, if there was one. Both are in
/// ns from the beginning.
type Seen = (u128, Option<u128>);

/// Runs a program with the items of one of the two runtimes. Both use the same names.
macro_rules! run {
    ($time:path, $first:expr, $period:expr, $ops:expr) => {{
        use $time::{Instant, MissedTickBehavior, interval, interval_at, sleep};
        let ms = Duration::from_millis;
        let behaviors = [
            MissedTickBehavior::Burst,
            MissedTickBehavior::Delay,
            MissedTickBehavior::Skip,
        ];
        let start = Instant::now();
        let mut ticks = match $first {
            Some(first) => interval_at(start + ms(first), ms($period)),
            None => interval(ms($period)),
        };
        // The two runtimes have different defaults, which is documented.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut seen: Vec<Seen> = Vec::new();
        for op in $ops {
            let tick = match *op {
                Op::Tick => Some(ticks.tick().await),
                Op::Poll => {
                    poll_fn(|cx| match ticks.poll_tick(cx) {
                        Poll::Ready(due) => Poll::Ready(Some(due)),
                        Poll::Pending => Poll::Ready(None),
                    })
                    .await
                }
                Op::Work(work) => {
                    sleep(ms(work)).await;
                    None
                }
                Op::Reset => {
                    ticks.reset();
                    None
                }
                Op::ResetImmediately => {
                    ticks.reset_immediately();
                    None
                }
                Op::ResetAfter(after) => {
                    ticks.reset_after(ms(after));
                    None
                }
                Op::ResetAt(at) => {
                    ticks.reset_at(start + ms(at));
                    None
                }
                Op::Behavior(which) => {
                    ticks.set_missed_tick_behavior(behaviors[which]);
                    None
                }
            };
            let since = |moment: Instant| moment.duration_since(start).as_nanos();
            seen.push((since(Instant::now()), tick.map(since)));
        }
        seen
    }};
}

fn ours(first: Option<u64>, period: u64, ops: &[Op]) -> Vec<Seen> {
    let runtime = paused(1);
    runtime.block_on(async { run!(tourbillon::time, first, period, ops) })
}

fn tokios(first: Option<u64>, period: u64, ops: &[Op]) -> Vec<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async { run!(tokio::time, first, period, ops) })
}

/// Generates spans. Many are about as long as the grace or as some periods.
fn span() -> impl Strategy<Value = u64> {
    prop_oneof![0..12_u64, 90..110_u64, 0..1_000_u64]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Tick),
        2 => Just(Op::Poll),
        4 => span().prop_map(Op::Work),
        1 => Just(Op::Reset),
        1 => Just(Op::ResetImmediately),
        1 => span().prop_map(Op::ResetAfter),
        1 => (0..3_000_u64).prop_map(Op::ResetAt),
        1 => (0..3_usize).prop_map(Op::Behavior),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_programs_tick_as_in_tokio(
        first in proptest::option::of(span()),
        period in prop_oneof![1..12_u64, 90..110_u64, 1..500_u64],
        behavior in 0..3_usize,
        ops in vec(op(), 1..40),
    ) {
        let _alarm = alarm();
        let ops: Vec<Op> = [Op::Behavior(behavior)].into_iter().chain(ops).collect();
        prop_assert_eq!(ours(first, period, &ops), tokios(first, period, &ops));
    }
}

/// If a tick is late by less than a period, `Delay` puts the next tick one period after this one
/// was taken.
#[test]
fn a_tick_that_is_late_by_half_a_period_delays_the_next() {
    let _alarm = alarm();
    let ops = [
        Op::Behavior(1),
        Op::Tick,
        Op::Tick,
        Op::Work(150),
        Op::Tick,
        Op::Tick,
    ];
    let seen = ours(None, 100, &ops);
    assert_eq!(seen, tokios(None, 100, &ops));
    let due: Vec<_> = seen.iter().filter_map(|tick| tick.1).collect();
    assert_eq!(due, [0, 100, 200, 350].map(|ms| ms * 1_000_000));
}

/// A task waits for a tick while another resets the interval to a moment that has passed.
#[test]
fn a_reset_to_now_wakes_the_task_that_waits_for_the_tick() {
    let _alarm = alarm();
    macro_rules! wakes {
        ($time:path) => {{
            use $time::{Instant, interval, sleep};
            let mut ticks = interval(HOUR);
            ticks.tick().await;
            for reset in 0..3 {
                let (woken, waker) = Woken::new();
                let mut cx = Context::from_waker(&waker);
                assert!(ticks.poll_tick(&mut cx).is_pending());
                match reset {
                    0 => ticks.reset_immediately(),
                    1 => ticks.reset_after(Duration::ZERO),
                    _ => ticks.reset_at(Instant::now()),
                }
                sleep(Duration::from_millis(1)).await;
                eventually("the task is woken", || woken.count() == 1);
                assert!(ticks.poll_tick(&mut cx).is_ready());
            }
        }};
    }
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    tokio.block_on(async { wakes!(tokio::time) });
    let mut ours = tourbillon::runtime::Builder::new();
    ours.worker_threads(1);
    ours.build()
        .unwrap()
        .block_on(async { wakes!(tourbillon::time) });
}
