//! A timer that was built does not wait until it is started. A timer that is never started ends
//! without a call.

use std::sync::Arc;

use crate::common::{Calls, Scripted, all_kinds, both_ways, times, turn};
use tourbillon_shards::{
    Cancel, Flow, Kind, NEVER, Options, Outcome, Reset, Shard, Started, Status, Timer,
};

fn options(recurring: bool, outcome: bool) -> Options<Scripted> {
    Options {
        recurring,
        outcome,
        ..Options::default()
    }
}

/// Builds a timer that waits 10 ns from its start.
fn built(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    outcome: bool,
    calls: &Calls,
) -> Timer<Scripted> {
    let options = options(recurring, outcome);
    Timer::build(shard, 10, options, calls.callback())
}

#[test]
fn a_built_timer_does_not_wait() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let timer = built(shard, recurring, outcome, &calls);
        assert_eq!(timer.status(), Status::NotStarted);
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.wait(), 10);
        assert_eq!((shard.stored(), shard.has_updates()), (0, false));
        assert_eq!(shard.next_deadline(), NEVER);
        assert_eq!(turn(shard, 1_000), 0);
        assert_eq!(
            shard.owner().owes(),
            0,
            "no outcome is owed before the start"
        );
        assert!(calls.get().is_empty());
    });
}

#[test]
fn the_wait_begins_at_the_start() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let timer = built(shard, recurring, outcome, &calls);
        assert_eq!(timer.start(500), Started::Pending);
        assert_eq!(shard.owner().owes(), usize::from(outcome));
        assert_eq!(timer.deadline(), Some(510));
        assert_eq!(shard.next_deadline(), 510);
        assert_eq!(turn(shard, 509), 0);
        assert_eq!(turn(shard, 510), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn a_given_deadline_is_kept_whenever_it_is_started() {
    for (deadline, kept) in [
        (700, 700),
        // This deadline has passed, and so has a deadline of 1. (Zero has another meaning.)
        (0, 1),
        (NEVER, NEVER),
        (u64::MAX, NEVER),
    ] {
        both_ways(|shard| {
            let calls = Calls::default();
            let options = Options {
                deadline: Some(deadline),
                ..options(false, false)
            };
            let timer = Timer::build(shard, 33, options, calls.callback());
            assert_eq!(timer.start(500), Started::Pending);
            assert_eq!(timer.deadline(), Some(kept));
            // A refresh uses the wait that the timer had.
            assert_eq!(timer.wait(), kept.saturating_sub(500));
            assert_eq!(turn(shard, u64::MAX), usize::from(kept != NEVER));
        });
    }
}

#[test]
fn a_recurring_timer_with_a_deadline_keeps_its_period() {
    both_ways(|shard| {
        let calls = Calls::default();
        let options = Options {
            deadline: Some(503),
            ..options(true, false)
        };
        let timer = Timer::build(shard, 10, options, calls.callback());
        assert_eq!(timer.start(500), Started::Pending);
        assert_eq!(timer.wait(), 10);
        assert_eq!(turn(shard, 503), 1);
        assert_eq!(timer.deadline(), Some(513));
    });
}

#[test]
fn a_wait_beyond_the_end_of_time_is_never() {
    for (now, wait) in [(0, u64::MAX), (u64::MAX, 1), (NEVER - 1, 1), (1, NEVER)] {
        all_kinds(|shard, recurring, outcome| {
            let options = options(recurring, outcome);
            let timer = Timer::build(shard, wait, options, Flow::Break);
            assert_eq!(timer.start(now), Started::Pending);
            assert_eq!(timer.deadline(), Some(NEVER));
            assert_eq!(turn(shard, u64::MAX), 0);
        });
    }
}

#[test]
fn the_second_start_is_too_late() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let timer = built(shard, recurring, outcome, &calls);
        assert_eq!(timer.start(0), Started::Pending);
        assert_eq!(timer.start(5), Started::AlreadyStarted);
        assert_eq!(timer.deadline(), Some(10));
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(timer.start(15), Started::AlreadyStarted);
        assert_eq!(shard.owner().owes(), usize::from(outcome && recurring));
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

#[test]
fn a_start_after_a_cancel_returns_cancelled() {
    for recurring in [false, true] {
        both_ways(|shard| {
            shard.owner().keep_notices();
            let options = options(recurring, true);
            let timer = Timer::build(shard, 10, options, Flow::Break);
            assert_eq!(timer.start(0), Started::Pending);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(timer.start(0), Started::Cancelled);
            for notice in shard.owner().notices() {
                assert!(notice.run().is_none());
            }
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
            assert_eq!(timer.start(0), Started::Cancelled);
            assert_eq!(shard.owner().owes(), 0);
        });
    }
}

#[test]
fn a_period_beyond_the_end_of_time_begins_at_the_start() {
    both_ways(|shard| {
        let calls = Calls::default();
        let options = options(true, false);
        let timer = Timer::build(shard, u64::MAX, options, calls.callback());
        assert_eq!(timer.start(1_000), Started::Pending);
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(timer.reset_from_start(10), Reset::Pending);
        assert_eq!(timer.deadline(), Some(1_010));
    });
}

/// If several threads start a timer, one of the starts counts.
#[test]
fn one_of_several_concurrent_starts_succeeds() {
    for round in 0..times(200) as u64 {
        let shard = Scripted::shard(false);
        let calls = Calls::default();
        let timer = Timer::build(&shard, 10, options(false, true), calls.callback());
        let started: usize = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| timer.start(round) == Started::Pending))
                .collect();
            let started = starts.into_iter().map(|start| start.join().unwrap());
            started.map(usize::from).sum()
        });
        assert_eq!(started, 1);
        assert_eq!(shard.owner().owes(), 1);
        assert_eq!(turn(&shard, round + 10), 1);
        assert_eq!(shard.owner().owes(), 0);
        assert_eq!(calls.get(), [Outcome::Fired]);
    }
}

#[test]
fn a_timer_that_was_not_started_cannot_be_moved() {
    all_kinds(|shard, recurring, outcome| {
        let options = options(recurring, outcome);
        let timer = Timer::build(shard, 10, options, Flow::Break);
        assert_eq!(timer.refresh(5), Reset::NotStarted);
        assert_eq!(timer.reset_after(5, 20), Reset::NotStarted);
        assert_eq!(timer.reset_at(5), Reset::NotStarted);
        assert_eq!(timer.reset_from_start(5), Reset::NotStarted);
        assert_eq!(timer.wait(), 10, "the attempt changed nothing");
        assert_eq!(timer.start(0), Started::Pending);
        assert_eq!(timer.deadline(), Some(10));
    });
}

#[test]
fn a_cancel_before_the_start_without_outcome_ends_at_once() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let options = options(recurring, false);
            let timer = Timer::build(shard, 10, options, calls.callback());
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert!(calls.is_dropped(), "the callback is dropped by the cancel");
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
            assert_eq!(timer.cancel(), Cancel::Over);
            assert_eq!(timer.reset_at(5), Reset::TooLate);
            assert_eq!(timer.start(0), Started::Cancelled);
            assert_eq!(turn(shard, 100), 0);
            drop(timer);
            assert!(calls.get().is_empty(), "it takes no outcome");
            let over = shard.owner().over.all();
            assert_eq!(over.values().sum::<usize>(), 1, "{over:?}");
        });
    }
}

#[test]
fn a_cancel_before_the_start_is_delivered_at_the_start() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let options = options(recurring, true);
            let timer = Timer::build(shard, 10, options, calls.callback());
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
            assert_eq!(timer.cancel(), Cancel::Over);
            assert_eq!(timer.reset_at(5), Reset::TooLate);
            assert!(calls.get().is_empty(), "not before the start");
            assert_eq!(shard.owner().owes(), 0);
            assert_eq!(timer.start(0), Started::Cancelled);
            assert_eq!(calls.get(), [Outcome::Cancelled]);
            assert!(calls.is_dropped());
            assert_eq!(timer.start(0), Started::Cancelled);
            assert_eq!(turn(shard, 100), 0);
            drop(timer);
            assert_eq!(calls.get(), [Outcome::Cancelled], "called once");
            let over = shard.owner().over.all();
            assert_eq!(over.values().sum::<usize>(), 1, "{over:?}");
        });
    }
}

#[test]
fn a_timer_dropped_before_its_start_ends_without_a_call() {
    all_kinds(|shard, recurring, outcome| {
        for cancelled in [false, true] {
            let calls = Calls::default();
            let options = options(recurring, outcome);
            let timer = Timer::build(shard, 10, options, calls.callback());
            if cancelled {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
            drop(timer);
            assert!(calls.is_dropped());
            assert!(calls.get().is_empty());
            assert_eq!(Arc::strong_count(shard), 1, "and so does its node");
        }
        let kind = if recurring {
            Kind::Recurring
        } else {
            Kind::Once
        };
        assert_eq!(shard.owner().over.get(kind, Outcome::Cancelled), 2);
        assert_eq!(shard.owner().over.all().len(), 1);
        assert_eq!(shard.owner().owes(), 0);
    });
}

#[test]
fn a_timer_dropped_after_its_start_still_runs() {
    all_kinds(|shard, recurring, outcome| {
        let calls = Calls::default();
        let options = options(recurring, outcome);
        let timer = Timer::build(shard, 10, options, calls.callback());
        assert_eq!(timer.start(0), Started::Pending);
        drop(timer);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(calls.get(), [Outcome::Fired]);
    });
}

/// A move to a moment moves the start of the wait as well: the length stays.
#[test]
fn a_timer_that_was_moved_to_a_moment_starts_its_wait_before_that() {
    both_ways(|shard| {
        let timer = Timer::once(shard, 100, 100, || ());
        assert_eq!(timer.reset_at(500), Reset::Pending);
        assert_eq!(timer.reset_at(600), Reset::Pending);
        assert_eq!(timer.reset_from_start(200), Reset::Pending);
        assert_eq!(timer.deadline(), Some(700));
        // A move from the start has kept it. The next one is before the zero of the clock.
        assert_eq!(timer.reset_at(100), Reset::Pending);
        assert_eq!(timer.reset_from_start(250), Reset::Pending);
        assert_eq!(timer.deadline(), Some(150));
        assert_eq!(timer.reset_from_start(50), Reset::Pending);
        assert_eq!(timer.deadline(), Some(0), "that would be at -50");
        assert_eq!(timer.reset_from_start(200), Reset::Pending);
        assert_eq!(timer.deadline(), Some(100));
        // A refresh begins the wait anew.
        assert_eq!(timer.refresh(50), Reset::Pending);
        assert_eq!(timer.deadline(), Some(250));
        assert_eq!(timer.reset_from_start(300), Reset::Pending);
        assert_eq!(timer.deadline(), Some(350));
    });
}

/// Another thread may have moved the timer since the caller read the clock. So an earlier deadline
/// makes the timer read the clock again.
#[test]
fn a_move_to_an_earlier_deadline_reads_the_clock_again() {
    both_ways(|shard| {
        shard.owner().set_reread(700..=800);
        let timer = Timer::once(shard, 1_000, 100, || ());
        timer.refresh(500);
        assert_eq!(
            timer.deadline(),
            Some(900),
            "the other thread may have read 800"
        );
        timer.refresh(2_000);
        assert_eq!(timer.deadline(), Some(2_100), "that is no earlier");
        timer.reset_after(500, 50);
        assert_eq!(
            timer.deadline(),
            Some(750),
            "a new wait, from the present on"
        );
        timer.reset_after(3_000, 50);
        assert_eq!(timer.deadline(), Some(3_050));
        assert_eq!(timer.reset_from_start(60), Reset::Pending);
        assert_eq!(timer.deadline(), Some(3_060));
    });
}

/// The deadline of an endless wait is cut, so it does not tell when the wait began. A refresh sets
/// the start of the wait anew.
#[test]
fn an_endless_wait_begins_anew_at_a_refresh() {
    both_ways(|shard| {
        let timer = Timer::once(shard, NEVER, NEVER, || ());
        assert_eq!(timer.refresh(1_000), Reset::Pending);
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(timer.reset_from_start(5), Reset::Pending);
        assert_eq!(timer.deadline(), Some(1_005));
    });
}

/// The next wait of a recurring timer starts at the deadline for which it ran.
#[test]
fn a_recurring_timer_that_was_moved_to_a_moment_starts_its_next_wait_there() {
    both_ways(|shard| {
        let timer = Timer::recurring(shard, 100, 100, || ());
        assert_eq!(timer.reset_at(150), Reset::Pending);
        assert_eq!(turn(shard, 150), 1);
        assert_eq!(timer.deadline(), Some(250));
        assert_eq!(timer.reset_from_start(130), Reset::Pending);
        assert_eq!(timer.deadline(), Some(280));
        timer.cancel();
    });
}
