//! `task::coop`: random operations on the budget have the same outcomes as tokio's.

use std::{
    future::{Future, pending, poll_fn, ready},
    pin::pin,
    task::{Context, Poll},
    thread,
};

use crate::common::{Random, alarm, runtime};

/// A function that does random operations on the budget in one poll of a task, and returns their
/// outcomes.
macro_rules! outcomes {
    ($name:ident, $($coop:ident)::+) => {
        fn $name(seed: u64, cx: &mut Context<'_>) -> Vec<(u64, bool)> {
            use $($coop)::+ as coop;

            let mut random = Random::new(seed);
            let mut units = Vec::new();
            let mut outcomes = Vec::new();
            for _ in 0..600 {
                let operation = random.below(9);
                let outcome = match operation {
                    0 => coop::has_budget_remaining(),
                    1 => pin!(coop::consume_budget()).poll(cx).is_ready(),
                    2 => pin!(coop::cooperative(ready(()))).poll(cx).is_ready(),
                    3 => pin!(coop::cooperative(pending::<()>())).poll(cx).is_ready(),
                    4 => pin!(coop::unconstrained(coop::consume_budget()))
                        .poll(cx)
                        .is_ready(),
                    // Takes a unit. A later step either uses it up or drops it, which returns it
                    // to the budget.
                    5 | 6 => match coop::poll_proceed(cx) {
                        Poll::Ready(unit) => {
                            units.push(unit);
                            true
                        }
                        Poll::Pending => false,
                    },
                    7 => units.pop().is_some_and(|unit| {
                        unit.made_progress();
                        coop::has_budget_remaining()
                    }),
                    _ if random.below(4) == 0 => {
                        drop(units.pop());
                        coop::has_budget_remaining()
                    }
                    _ => false,
                };
                outcomes.push((operation, outcome));
            }
            outcomes
        }
    };
}

outcomes!(ours, tourbillon::task::coop);
outcomes!(tokios, tokio::task::coop);

#[test]
fn random_operations_have_the_outcomes_of_tokio() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let theirs = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let mut refused = 0;
    for seed in 1..=200 {
        let ours = runtime.block_on(poll_fn(|cx| Poll::Ready(ours(seed, cx))));
        let theirs = theirs.block_on(poll_fn(|cx| Poll::Ready(tokios(seed, cx))));
        assert_eq!(ours, theirs, "seed {seed}");
        refused += ours
            .iter()
            .filter(|outcome| **outcome == (1, false))
            .count();
    }
    assert!(refused > 1_000, "{refused}");
}

#[test]
fn a_unit_that_outlives_its_poll_changes_nothing() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let mut kept = None;
    runtime.block_on(poll_fn(|cx| {
        kept = Some(tourbillon::task::coop::poll_proceed(cx));
        Poll::Ready(())
    }));
    drop(kept);
    // Outside of a task, no operation is counted.
    let mut cx = Context::from_waker(std::task::Waker::noop());
    assert!((0..1_000).all(|_| {
        let unit = tourbillon::task::coop::poll_proceed(&mut cx);
        unit.map(|unit| unit.made_progress()).is_ready()
    }));
}

#[test]
fn a_loop_of_foreign_futures_yields() {
    let _alarm = alarm();
    let polls = thread::spawn(|| {
        runtime(1).block_on(async {
            let mut polls = 0;
            let mut greedy = pin!(async {
                for _ in 0..1_000 {
                    tourbillon::task::coop::cooperative(ready(())).await;
                }
            });
            poll_fn(|cx| {
                polls += 1;
                greedy.as_mut().poll(cx)
            })
            .await;
            polls
        })
    });
    // Each poll has 128 operations.
    assert_eq!(polls.join().unwrap(), 8);
}
