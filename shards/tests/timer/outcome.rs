//! A callback that takes outcomes is called exactly once with the outcome of its timer, however the
//! timer ends. After that no callback is owed an outcome.

use std::{
    panic::{catch_unwind, resume_unwind},
    sync::{Arc, Mutex},
};

use crate::common::{Calls, Scripted, both_ways, expire, turn};
use tourbillon_shards::{
    Cancel, Flow, Kind, Options, Outcome, Ran, Reset, Shard, Started, Status, Timer,
    is_told_of_shutdown, tell_of_shutdown,
};

/// Starts a timer with an outcome at zero. It is due at 10 (and then every 10 ns).
fn started(
    shard: &Arc<Shard<Scripted>>,
    recurring: bool,
    f: impl FnMut(Outcome) -> Flow + Send + 'static,
) -> Timer<Scripted> {
    let options = Options {
        recurring,
        outcome: true,
        ..Options::default()
    };
    let timer = Timer::build(shard, 10, options, f);
    let answer = timer.start(0);
    // A closed shard has no timer that waits.
    let expected = match timer.status() {
        Status::Pending => Started::Pending,
        _ => Started::Shutdown,
    };
    assert_eq!(answer, expected);
    timer
}

/// Checks that the callback was called with `told` and dropped, and that the timer ended once.
fn settled(shard: &Arc<Shard<Scripted>>, timer: &Timer<Scripted>, calls: &Calls, told: &[Outcome]) {
    assert_eq!(calls.get(), told);
    assert!(calls.is_dropped(), "the callback is left behind");
    let Status::Over(how) = timer.status() else {
        panic!("{:?}", timer.status())
    };
    let over = shard.owner().over.all();
    assert_eq!(over.values().sum::<usize>(), 1, "{over:?}");
    assert_eq!(over.keys().next().unwrap().1, how);
    assert_eq!(shard.owner().owes(), 0);
    assert_eq!(timer.cancel(), Cancel::Over);
    assert_eq!(timer.reset_at(5), Reset::TooLate);
    assert_eq!(turn(shard, 1_000_000), 0);
    drop(shard.close());
    assert_eq!(calls.get(), told, "no other calls");
}

#[test]
fn fired_is_delivered() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = started(shard, false, calls.callback());
        assert_eq!(turn(shard, 10), 1);
        settled(shard, &timer, &calls, &[Outcome::Fired]);
    });
}

#[test]
fn a_refusal_is_delivered() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = Timer::refused_with::<(), _>(shard, calls.callback());
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.start(0), Started::Refused);
        settled(shard, &timer, &calls, &[Outcome::Refused]);
    });
}

#[test]
fn a_refused_timer_without_a_callback_is_over() {
    both_ways(|shard| {
        let timer = Timer::refused(shard);
        assert_eq!(timer.status(), Status::Over(Outcome::Refused));
        assert_eq!(timer.start(0), Started::Refused);
        settled(shard, &timer, &Calls::default(), &[]);
    });
}

#[test]
fn a_cancel_is_delivered() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let timer = started(shard, recurring, calls.callback());
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            settled(shard, &timer, &calls, &[Outcome::Cancelled]);
        });
    }
}

#[test]
fn a_cancel_of_a_due_timer_is_delivered() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let timer = started(shard, recurring, calls.callback());
            let due = expire(shard, 10, 1).pop().unwrap();
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(calls.get(), [Outcome::Cancelled]);
            assert!(matches!(due.run(|| 10), Ran::Over));
            settled(shard, &timer, &calls, &[Outcome::Cancelled]);
        });
    }
}

#[test]
fn a_cancel_of_the_due_itself_is_delivered() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let timer = started(shard, recurring, calls.callback());
            expire(shard, 10, 1).pop().unwrap().cancel();
            settled(shard, &timer, &calls, &[Outcome::Cancelled]);
        });
    }
}

#[test]
fn a_close_is_delivered() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let timer = started(shard, recurring, calls.callback());
            let orphans = shard.close();
            assert!(calls.get().is_empty(), "not under the lock of the shard");
            drop(orphans);
            settled(shard, &timer, &calls, &[Outcome::Shutdown]);
        });
    }
}

#[test]
fn a_dropped_due_is_delivered_as_shutdown() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            let timer = started(shard, recurring, calls.callback());
            drop(expire(shard, 10, 1));
            settled(shard, &timer, &calls, &[Outcome::Shutdown]);
        });
    }
}

#[test]
fn a_start_on_a_closed_shard_is_delivered_as_shutdown() {
    for recurring in [false, true] {
        both_ways(|shard| {
            let calls = Calls::default();
            drop(shard.close());
            let timer = started(shard, recurring, calls.callback());
            settled(shard, &timer, &calls, &[Outcome::Shutdown]);
        });
    }
}

#[test]
fn a_return_to_a_closed_shard_is_delivered_as_shutdown() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timer = started(shard, false, calls.callback());
        let due = expire(shard, 10, 1).pop().unwrap();
        assert_eq!(timer.reset_at(20), Reset::Pending);
        drop(shard.close());
        assert!(calls.get().is_empty(), "its carrier has it");
        assert!(matches!(due.run(|| 10), Ran::PutBack));
        settled(shard, &timer, &calls, &[Outcome::Shutdown]);
    });
}

#[test]
fn a_timer_with_a_kept_delivery_counts_as_running() {
    for dropped in [false, true] {
        both_ways(|shard| {
            shard.owner().keep_notices();
            let calls = Calls::default();
            let timer = started(shard, false, calls.callback());
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            let notice = shard.owner().notices().pop().unwrap();
            assert_eq!(notice.outcome(), Outcome::Cancelled);
            assert_eq!(notice.kind(), Kind::Once);
            assert_eq!(timer.status(), Status::Running { last: true });
            assert_eq!(timer.deadline(), None);
            assert_eq!(timer.cancel(), Cancel::Over);
            assert_eq!(timer.refresh(5), Reset::TooLate);
            assert_eq!(timer.start(5), Started::Cancelled);
            assert_eq!(shard.owner().owes(), 1, "the delivery has not run yet");
            assert!(shard.owner().over.all().is_empty());
            assert!(calls.get().is_empty());
            if dropped {
                drop(notice);
            } else {
                assert!(notice.run().is_none());
            }
            settled(shard, &timer, &calls, &[Outcome::Cancelled]);
        });
    }
}

#[test]
fn a_timer_refused_by_a_closed_shard_gets_its_outcome() {
    both_ways(|shard| {
        shard.owner().keep_notices();
        drop(shard.close());
        let calls = Calls::default();
        let timer = started(shard, false, calls.callback());
        assert!(
            calls.get().is_empty(),
            "not called on the stack of the start"
        );
        let notice = shard.owner().notices().pop().unwrap();
        assert_eq!(notice.outcome(), Outcome::Shutdown);
        assert!(notice.run().is_none());
        settled(shard, &timer, &calls, &[Outcome::Shutdown]);
    });
}

#[test]
fn a_cancel_before_the_start_is_delivered_at_the_start() {
    both_ways(|shard| {
        shard.owner().keep_notices();
        let calls = Calls::default();
        let options = Options {
            outcome: true,
            ..Options::default()
        };
        let timer = Timer::build(shard, 10, options, calls.callback());
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert!(shard.owner().notices().is_empty());
        assert_eq!(timer.start(0), Started::Cancelled);
        assert_eq!(shard.owner().notices().len(), 1, "run as it is dropped");
        settled(shard, &timer, &calls, &[Outcome::Cancelled]);
    });
}

#[test]
fn a_callback_that_panics_at_its_outcome_is_not_called_again() {
    for recurring in [false, true] {
        both_ways(|shard| {
            shard.owner().keep_notices();
            let calls = Calls::default();
            let panics = || calls.answering(|_| resume_unwind(Box::new("told")));
            let timer = started(shard, recurring, panics());
            let later = Calls::default();
            let _later = started(shard, false, later.callback());
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            let notice = shard.owner().notices().pop().unwrap();
            let panic = notice.run().expect("the callback panics");
            assert_eq!(panic.downcast_ref::<&str>(), Some(&"told"));
            assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
            assert_eq!(calls.get(), [Outcome::Cancelled]);
            assert!(calls.is_dropped());
            assert_eq!(shard.owner().owes(), 1, "the later one");
            assert_eq!(turn(shard, 10), 1);
            assert_eq!(later.get(), [Outcome::Fired]);
            assert_eq!(shard.owner().owes(), 0);
            let over = shard.owner().over.all();
            assert_eq!(over.values().sum::<usize>(), 2, "{over:?}");
        });
    }
}

#[test]
fn a_panic_of_a_callback_leaves_the_drop_that_called_it() {
    let caught = |f: &mut dyn FnMut()| {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        let panic = caught.expect_err("the callback panics");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"told"));
    };
    both_ways(|shard| {
        shard.owner().keep_notices();
        let calls = Calls::default();
        let panics = || calls.answering(|_| resume_unwind(Box::new("told")));
        let (first, _second) = (
            started(shard, false, panics()),
            started(shard, false, panics()),
        );
        assert_eq!(first.cancel(), Cancel::Cancelled);
        let mut notices = shard.owner().notices();
        caught(&mut || drop(notices.pop()));
        let mut due = expire(shard, 10, 1);
        caught(&mut || drop(due.pop()));
        assert_eq!(calls.get(), [Outcome::Cancelled, Outcome::Shutdown]);
        assert!(calls.is_dropped());
        assert_eq!(shard.owner().owes(), 0);
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Shutdown), 1);
    });
}

/// A close drains timers whose callbacks take outcomes. One that panics must not stop the others.
#[test]
fn a_close_delivers_outcomes_after_a_panic() {
    both_ways(|shard| {
        let calls = Calls::default();
        let timers: Vec<_> = (0..10)
            .map(|at| {
                started(
                    shard,
                    at % 2 == 0,
                    calls.answering(move |_| match at % 3 {
                        0 => resume_unwind(Box::new("told")),
                        _ => Flow::Continue(()),
                    }),
                )
            })
            .collect();
        let orphans = shard.close();
        let dropped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(orphans)));
        assert!(dropped.is_err());
        assert_eq!(calls.get(), [Outcome::Shutdown; 10]);
        assert_eq!(shard.owner().owes(), 0);
        for timer in timers {
            assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        }
    });
}

/// `is_told_of_shutdown` is `true` only while a callback takes the outcome *shutdown*. A runtime
/// uses it to refuse timers that such a callback starts on a closed shard.
#[test]
fn a_callback_knows_whether_it_is_told_of_a_shutdown() {
    both_ways(|shard| {
        let told = Arc::new(Mutex::new(Vec::new()));
        let start = || {
            let told = told.clone();
            started(shard, false, move |how| {
                told.lock().unwrap().push((how, is_told_of_shutdown()));
                Flow::Continue(())
            })
        };
        let fired = start();
        assert_eq!(turn(shard, 10), 1);
        start().cancel();
        let rest = start();
        drop(shard.close());
        let expected = [
            (Outcome::Fired, false),
            (Outcome::Cancelled, false),
            (Outcome::Shutdown, true),
        ];
        assert_eq!(*told.lock().unwrap(), expected);
        assert!(!is_told_of_shutdown(), "it has returned");
        drop((fired, rest));
    });
}

/// A runtime calls `tell_of_shutdown` for the callback of a timer that it refuses. Such a callback
/// may build another timer, which is dropped without a call.
#[test]
fn a_callback_that_is_told_of_the_shutdown_starts_no_other() {
    let mut told = None;
    tell_of_shutdown(|how| {
        told = Some((how, is_told_of_shutdown()));
        tell_of_shutdown(|_| unreachable!("it is dropped"));
    });
    assert_eq!(told, Some((Outcome::Shutdown, true)));
    let panicked = catch_unwind(|| tell_of_shutdown(|_| panic!("this callback panics")));
    assert!(panicked.is_err());
    assert!(!is_told_of_shutdown(), "it has returned");
}
