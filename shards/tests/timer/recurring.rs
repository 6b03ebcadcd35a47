//! A recurring timer calls its callback with *fired* for each run, and in the end with one outcome.
//! If the callback ends the timer itself, it gets no outcome.

use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex},
};

use crate::common::{Calls, Scripted, both_ways, expire, turn};
use tourbillon_shards::{
    Cancel, Flow, Kind, Options, Outcome, Ran, Reset, Shard, Started, Status, Timer,
};

const FIRED: Outcome = Outcome::Fired;

fn started(
    shard: &Arc<Shard<Scripted>>,
    outcome: bool,
    f: impl FnMut(Outcome) -> Flow + Send + 'static,
) -> Timer<Scripted> {
    let options = Options {
        recurring: true,
        outcome,
        ..Options::default()
    };
    let timer = Timer::build(shard, 10, options, f);
    assert_eq!(timer.start(0), Started::Pending);
    timer
}

/// A cell with a callback's own timer, for use inside of its runs.
type Own = Arc<Mutex<Option<Timer<Scripted>>>>;

fn own(own: &Own, f: impl FnOnce(&Timer<Scripted>)) {
    f(own.lock().unwrap().as_ref().expect("it was put there"));
}

#[test]
fn the_callback_gets_each_run_and_then_the_outcome() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = started(shard, true, calls.callback());
        for run in 1..=3 {
            assert_eq!(turn(shard, run * 10), 1);
            assert_eq!(shard.owner().owes(), 1, "until the end");
        }
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(calls.get(), [FIRED, FIRED, FIRED, Outcome::Cancelled]);
        assert_eq!(shard.owner().owes(), 0);
        assert!(calls.is_dropped());
        assert_eq!(
            shard.owner().over.get(Kind::Recurring, Outcome::Cancelled),
            1
        );
    });
}

#[test]
fn without_an_outcome_the_callback_gets_only_its_runs() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = started(shard, false, calls.callback());
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(turn(shard, 20), 1);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(calls.get(), [FIRED, FIRED]);
        assert!(calls.is_dropped());
    });
}

#[test]
fn a_callback_that_ends_its_timer_gets_no_outcome() {
    for outcome in [false, true] {
        for how in [FIRED, Outcome::Cancelled, Outcome::Shutdown] {
            both_ways(|shard| {
                let calls = Calls::default();
                let timer = started(
                    shard,
                    outcome,
                    calls.answering(move |count| match count {
                        3 => Flow::Break(how),
                        _ => Flow::Continue(()),
                    }),
                );
                for run in 1..=3 {
                    assert_eq!(turn(shard, run * 10), 1);
                }
                assert_eq!(timer.status(), Status::Over(how));
                assert_eq!(shard.owner().over.get(Kind::Recurring, how), 1);
                assert_eq!(shard.owner().over.all().len(), 1);
                assert_eq!(turn(shard, 1_000), 0);
                assert_eq!(timer.cancel(), Cancel::Over);
                assert_eq!(calls.get(), [FIRED; 3]);
                assert!(calls.is_dropped());
                assert_eq!(shard.owner().owes(), 0);
            });
        }
    }
}

/// A timer that runs once may also return an outcome. It has no more runs, whatever it returns.
#[test]
fn a_timer_that_runs_once_has_one_run() {
    for (answer, how) in [
        (Flow::Continue(()), FIRED),
        (Flow::Break(FIRED), FIRED),
        (Flow::Break(Outcome::Cancelled), Outcome::Cancelled),
    ] {
        both_ways(|shard| {
            let calls = Calls::default();
            let options = Options {
                outcome: true,
                ..Options::default()
            };
            let timer = Timer::build(shard, 10, options, calls.answering(move |_| answer));
            timer.start(0);
            assert_eq!(turn(shard, 10), 1);
            assert_eq!(timer.status(), Status::Over(how));
            assert_eq!(calls.get(), [FIRED]);
            assert_eq!(shard.owner().owes(), 0);
        });
    }
}

#[test]
fn a_cancel_from_inside_is_delivered_after_the_run() {
    both_ways(|shard| {
        let calls = Calls::default();
        let cell = Own::default();
        let mine = cell.clone();
        let timer = started(
            shard,
            true,
            calls.answering(move |count| {
                if count == 2 {
                    own(&mine, |timer| {
                        assert_eq!(timer.status(), Status::Running { last: false });
                        assert_eq!(timer.cancel(), Cancel::AfterRun);
                        assert_eq!(timer.status(), Status::Running { last: true });
                        assert_eq!(timer.cancel(), Cancel::Over);
                        assert_eq!(timer.refresh(5), Reset::TooLate);
                    });
                }
                Flow::Continue(())
            }),
        );
        *cell.lock().unwrap() = Some(timer);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(turn(shard, 20), 1);
        assert_eq!(calls.get(), [FIRED, FIRED, Outcome::Cancelled]);
        own(&cell, |timer| {
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        });
        assert!(calls.is_dropped());
        cell.lock().unwrap().take();
    });
}

#[test]
fn the_callbacks_answer_wins_over_a_cancel_from_inside() {
    both_ways(|shard| {
        let calls = Calls::default();
        let cell = Own::default();
        let mine = cell.clone();
        let timer = started(
            shard,
            true,
            calls.answering(move |_| {
                own(&mine, |timer| {
                    assert_eq!(timer.cancel(), Cancel::AfterRun);
                });
                Flow::Break(FIRED)
            }),
        );
        *cell.lock().unwrap() = Some(timer);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(calls.get(), [FIRED]);
        assert_eq!(shard.owner().over.get(Kind::Recurring, FIRED), 1);
        assert_eq!(shard.owner().owes(), 0);
        cell.lock().unwrap().take();
    });
}

#[test]
fn a_run_that_panics_is_not_the_last() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = started(
            shard,
            true,
            calls.answering(|count| match count {
                1 => resume_unwind(Box::new(())),
                _ => Flow::Continue(()),
            }),
        );
        let due = expire(shard, 10, 1).pop().unwrap();
        assert!(matches!(due.run(|| 10), Ran::Panicked(_)));
        assert_eq!(timer.deadline(), Some(20));
        assert_eq!(turn(shard, 20), 1);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(calls.get(), [FIRED, FIRED, Outcome::Cancelled]);
    });
}

/// The shard is closed during the run, so the timer cannot be inserted again.
#[test]
fn a_close_during_a_run_is_delivered_after_it() {
    both_ways(|shard| {
        let calls = Calls::default();
        let home = Arc::downgrade(shard);
        let timer = started(
            shard,
            true,
            calls.answering(move |count| {
                if count == 1 {
                    drop(home.upgrade().expect("it runs").close());
                }
                Flow::Continue(())
            }),
        );
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(calls.get(), [FIRED, Outcome::Shutdown]);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(shard.owner().owes(), 0);
    });
}

/// The last of several moves in one run counts.
#[test]
fn a_run_may_move_the_timer_more_than_once() {
    both_ways(|shard| {
        let cell = Own::default();
        let mine = cell.clone();
        let timer = started(shard, false, move |_| {
            own(&mine, |timer| {
                for at in [50, 30, 40] {
                    assert_eq!(timer.reset_at(at), Reset::AfterRun);
                    assert_eq!(timer.deadline(), Some(at));
                }
            });
            Flow::Continue(())
        });
        *cell.lock().unwrap() = Some(timer);
        assert_eq!(turn(shard, 10), 1);
        assert_eq!(turn(shard, 39), 0);
        assert_eq!(turn(shard, 40), 1);
        own(&cell, |timer| assert_eq!(timer.cancel(), Cancel::Cancelled));
        drop(cell.lock().unwrap().take());
    });
}

#[test]
fn a_callback_that_panics_at_its_outcome_is_over() {
    both_ways(|shard| {
        let calls = Calls::default();
        let cell = Own::default();
        let mine = cell.clone();
        let timer = started(
            shard,
            true,
            calls.answering(move |count| {
                if count == 2 {
                    resume_unwind(Box::new("told"));
                }
                own(&mine, |timer| {
                    assert_eq!(timer.cancel(), Cancel::AfterRun);
                });
                Flow::Continue(())
            }),
        );
        *cell.lock().unwrap() = Some(timer);
        let later = Calls::default();
        let behind = started(shard, true, later.callback());
        assert_eq!(behind.reset_at(11), Reset::Pending);
        let mut due = expire(shard, 11, usize::MAX);
        let rest = due.split_off(1);
        let run = || due.pop().unwrap().run(|| 10);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
        // The panic leaves `run`, as the documentation of `Due::run` says.
        assert_eq!(ran.unwrap_err().downcast_ref::<&str>(), Some(&"told"));
        for due in rest {
            assert!(matches!(due.run(|| 10), Ran::Fired));
        }
        assert_eq!(calls.get(), [FIRED, Outcome::Cancelled]);
        assert!(calls.is_dropped());
        assert_eq!(later.get(), [FIRED]);
        assert_eq!(shard.owner().owes(), 1, "the later one");
        cell.lock().unwrap().take();
    });
}
