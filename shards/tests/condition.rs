//! A timer whose condition is gone does not run any more, and ends as cancelled where that is seen.
#![cfg(not(loom))]

mod common;

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use common::{Calls, Scripted, both_ways, expire, turn};
use tourbillon_shards::{Cancel, Options, Outcome, Ran, Reset, Shard, Status, Timer};

struct Alive(Arc<AtomicBool>);

impl Alive {
    fn kill(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn started(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    outcome: bool,
    calls: &Calls,
) -> (Timer<Scripted>, Alive) {
    let alive = Arc::new(AtomicBool::new(true));
    let mine = alive.clone();
    let options = Options {
        recurring,
        outcome,
        condition: Some(Box::new(move || mine.load(Ordering::Relaxed))),
        ..Options::default()
    };
    let timer = Timer::build(shard, 10, None, options, calls.callback());
    timer.start(0);
    (timer, Alive(alive))
}

fn all_sorts(test: impl Fn(&Arc<Shard<Scripted>>, bool, bool)) {
    for recurring in [false, true] {
        for outcome in [false, true] {
            both_ways(|shard| test(shard, recurring, outcome));
        }
    }
}

/// It ended as cancelled; whether that was told depends on whether it takes outcomes.
fn ended(
    shard: &Arc<Shard<Scripted>>,
    timer: &Timer<Scripted>,
    calls: &Calls,
    runs: usize,
    outcome: bool,
) {
    assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    assert_eq!(timer.cancel(), Cancel::Over);
    let mut expected = vec![Outcome::Fired; runs];
    expected.extend(outcome.then_some(Outcome::Cancelled));
    assert_eq!(calls.get(), expected);
    assert!(calls.is_dropped());
    assert_eq!(shard.owner().owes(), 0);
    assert_eq!(shard.owner().over.all().values().sum::<usize>(), 1);
    assert_eq!(turn(shard, 1_000_000), 0);
    assert_eq!(shard.stored(), 0);
}

#[test]
fn the_living_run() {
    all_sorts(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (_timer, _alive) = started(shard, recurring, outcome, &calls);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn the_dead_end_where_they_would_run() {
    all_sorts(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, recurring, outcome, &calls);
        alive.kill();
        let due = expire(shard, 10, 1).pop().unwrap();
        assert!(matches!(due.run(|| 10), Ran::Over));
        ended(shard, &timer, &calls, 0, outcome);
    });
}

#[test]
fn those_that_die_between_runs_end_at_the_next() {
    both_ways(|shard| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, true, true, &calls);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(turn(shard, 20), 1);
        alive.kill();
        let due = expire(shard, 30, 1).pop().unwrap();
        assert!(matches!(due.run(|| 30), Ran::Over));
        ended(shard, &timer, &calls, 2, true);
    });
}

/// Moved far away, and dead: it ends when its old deadline comes up, not years later.
#[test]
fn the_dead_end_early_where_they_would_be_put_back() {
    all_sorts(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, recurring, outcome, &calls);
        // The store has heard of it before it is moved.
        assert_eq!(turn(shard, 5), 0);
        assert_eq!(timer.reset_at(1 << 60), Reset::Waiting);
        alive.kill();
        let due = expire(shard, 10, 1).pop().expect("it comes up");
        assert!(matches!(due.run(|| 10), Ran::Over));
        ended(shard, &timer, &calls, 0, outcome);
    });
}

#[test]
fn the_living_are_put_back() {
    all_sorts(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, _alive) = started(shard, recurring, outcome, &calls);
        assert_eq!(turn(shard, 5), 0);
        assert_eq!(timer.reset_at(100), Reset::Waiting);
        assert_eq!(turn(shard, 99), 0);
        assert_eq!(turn(shard, 100), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn the_dead_can_still_be_cancelled() {
    both_ways(|shard| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, true, true, &calls);
        alive.kill();
        assert_eq!(timer.status(), Status::Pending, "nobody has looked");
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        ended(shard, &timer, &calls, 0, true);
    });
}

/// Of a run that panicked it is asked whether it was the last; that its condition is gone is found out
/// by the next.
#[test]
fn a_run_that_panics_ends_the_timer_as_fired_only_if_it_was_the_last() {
    for (spent, outcome) in [(false, false), (false, true), (true, false), (true, true)] {
        both_ways(|shard| {
            let calls = Calls::default();
            let alive = Alive(Arc::new(AtomicBool::new(true)));
            let (mine, killed) = (alive.0.clone(), alive.0.clone());
            let options = Options {
                recurring: true,
                outcome,
                condition: Some(Box::new(move || mine.load(Ordering::Relaxed))),
                spent: Some(Box::new(move || spent.then_some(Outcome::Fired))),
                ..Options::default()
            };
            let mut note = calls.callback();
            let run = move |how| {
                let flow = note(how);
                if how == Outcome::Fired {
                    killed.store(false, Ordering::Relaxed);
                    resume_unwind(Box::new("as planned"));
                }
                flow
            };
            let timer = Timer::build(shard, 10, None, options, run);
            timer.start(0);
            let due = expire(shard, 10, 1).pop().expect("it is due");
            assert!(matches!(due.run(|| 10), Ran::Panicked(_)));
            if spent {
                assert_eq!(timer.status(), Status::Over(Outcome::Fired));
                assert_eq!(calls.get(), [Outcome::Fired]);
            } else {
                assert_eq!(timer.status(), Status::Pending);
                let due = expire(shard, 20, 1).pop().expect("it is due");
                assert!(matches!(due.run(|| 20), Ran::Over));
                ended(shard, &timer, &calls, 1, outcome);
            }
        });
    }
}
