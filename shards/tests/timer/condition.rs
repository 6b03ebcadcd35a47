//! A timer whose condition has become false does not run any more, and ends as cancelled.

use std::{
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::common::{Calls, Scripted, all_kinds, both_ways, expire, turn};
use tourbillon_shards::{Cancel, Options, Outcome, Ran, Reset, Shard, Status, Timer};

struct Alive(Arc<AtomicBool>);

impl Alive {
    fn kill(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A condition that panics counts as gone. It stops no other timer, whether it is asked at the run
/// or where its timer was moved later.
#[test]
fn a_condition_that_panics_counts_as_gone() {
    for moved in [false, true] {
        both_ways(|shard| {
            let (calls, other) = (Calls::default(), Calls::default());
            let options = Options {
                outcome: true,
                condition: Some(Box::new(|| panic!("by the condition"))),
                ..Options::default()
            };
            let timer = Timer::build(shard, 10, options, calls.callback());
            timer.start(0);
            let behind = Timer::build(shard, 20, Options::default(), other.callback());
            behind.start(0);
            if moved {
                assert_eq!(timer.reset_at(100), Reset::Pending);
            }
            turn(shard, 20);
            assert_eq!(behind.status(), Status::Over(Outcome::Fired));
            // A timer that was moved while it was in the inbox is asked at its new deadline only.
            turn(shard, 100);
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        });
    }
}

/// A condition that panics once, or does not hold once, and holds after that, has gone for good. A
/// timer that was moved later comes out at its old deadline for that, and must not run: that would
/// be too early. The same if it is moved once more while it is due.
#[test]
fn a_condition_that_was_gone_once_is_gone_for_good() {
    for (panics, again) in [(false, false), (false, true), (true, false), (true, true)] {
        all_kinds(|shard, recurring, outcome| {
            let calls = Calls::default();
            let asked = AtomicBool::new(false);
            let options = Options {
                recurring,
                outcome,
                jitter: 3,
                condition: Some(Box::new(move || {
                    let holds = asked.swap(true, Ordering::Relaxed);
                    assert!(holds || !panics, "by the condition");
                    holds
                })),
                ..Options::default()
            };
            let timer = Timer::build(shard, 10, options, calls.callback());
            timer.start(0);
            // The store has read the timer before it is moved.
            assert_eq!(turn(shard, 5), 0);
            assert_eq!(timer.reset_after(5, 1_000), Reset::Pending);
            let due = expire(shard, 20, 1).pop().expect("it comes up");
            if again {
                assert_eq!(timer.reset_after(20, 2_000), Reset::Pending);
                assert!(matches!(due.run(|| 20), Ran::PutBack));
                turn(shard, 2_020);
            } else {
                assert!(matches!(due.run(|| 20), Ran::Over));
            }
            ended(shard, &timer, &calls, 0, outcome);
        });
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
    let timer = Timer::build(shard, 10, options, calls.callback());
    timer.start(0);
    (timer, Alive(alive))
}

/// Checks that the timer ended as cancelled, and that its callback was called if it takes outcomes.
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
fn timers_with_a_true_condition_run() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (_timer, _alive) = started(shard, recurring, outcome, &calls);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn a_false_condition_ends_a_timer_that_is_due() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, recurring, outcome, &calls);
        alive.kill();
        let due = expire(shard, 10, 1).pop().unwrap();
        assert!(matches!(due.run(|| 10), Ran::Over));
        ended(shard, &timer, &calls, 0, outcome);
    });
}

#[test]
fn a_condition_that_becomes_false_ends_the_next_run() {
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

/// The timer is moved far into the future and its condition becomes false. It ends at its old
/// deadline.
#[test]
fn a_false_condition_ends_a_moved_timer_at_its_old_deadline() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, recurring, outcome, &calls);
        // The store has read the timer before it is moved.
        assert_eq!(turn(shard, 5), 0);
        assert_eq!(timer.reset_at(1 << 60), Reset::Pending);
        alive.kill();
        let due = expire(shard, 10, 1).pop().expect("it comes up");
        assert!(matches!(due.run(|| 10), Ran::Over));
        ended(shard, &timer, &calls, 0, outcome);
    });
}

#[test]
fn a_true_condition_lets_a_moved_timer_wait() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let (timer, _alive) = started(shard, recurring, outcome, &calls);
        assert_eq!(turn(shard, 5), 0);
        assert_eq!(timer.reset_at(100), Reset::Pending);
        assert_eq!(turn(shard, 99), 0);
        assert_eq!(turn(shard, 100), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn a_timer_with_a_false_condition_can_be_cancelled() {
    both_ways(|shard| {
        let calls = Calls::default();
        let (timer, alive) = started(shard, true, true, &calls);
        alive.kill();
        assert_eq!(
            timer.status(),
            Status::Pending,
            "the condition was not checked"
        );
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        ended(shard, &timer, &calls, 0, true);
    });
}

/// After a run that panicked, the timer is asked whether that run was its last. Its condition is
/// checked before the next run only.
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
            let timer = Timer::build(shard, 10, options, run);
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
