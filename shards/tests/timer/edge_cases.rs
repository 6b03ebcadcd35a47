//! Edge cases: deadlines at both ends of time, equal deadlines, timers that end in the middle of an
//! operation, and closed shards.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Poll, Waker},
};

use crate::common::{
    Drops, Scripted, expire, turn,
    units::{HOUR, MS, YEAR},
};
use tourbillon_shards::{
    Cancel, Flow, Kind, NEVER, Options, Outcome, Ran, Reset, Shard, Sleep, Started, Status, Timer,
    store::StoreKind,
};

type Counter = Arc<AtomicUsize>;

/// Arms a callback that counts its runs. Its wait is the whole time since zero.
fn counting(shard: &Arc<Shard<Scripted>>, deadline: u64) -> (Timer<Scripted>, Counter) {
    let count = Counter::default();
    let counter = count.clone();
    let timer = Timer::once(shard, deadline, deadline, move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    (timer, count)
}

fn ran(count: &Counter) -> usize {
    count.load(Ordering::Relaxed)
}

/// Runs the test with each store, on the owner's path and on the path through the inbox.
fn both_ways(test: impl Fn(Arc<Shard<Scripted>>)) {
    for (local, store) in [true, false]
        .into_iter()
        .flat_map(|local| StoreKind::ALL.map(|store| (local, store)))
    {
        let shard = Scripted::shard_with(local, store);
        test(shard.clone());
        drop(shard.close());
        assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
    }
}

#[test]
fn a_deadline_of_never_does_not_fire() {
    both_ways(|shard| {
        for deadline in [NEVER, NEVER + 1, u64::MAX - 1, u64::MAX] {
            let (timer, count) = counting(&shard, deadline);
            assert_eq!(timer.deadline(), Some(NEVER));
            for now in [0, YEAR, NEVER - 1, NEVER, NEVER + 1, u64::MAX] {
                assert_eq!(turn(&shard, now), 0, "at {now}");
            }
            assert_eq!(shard.next_deadline(), NEVER);
            assert_eq!(timer.status(), Status::Pending);
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            assert_eq!(ran(&count), 0);
        }
    });
}

#[test]
fn a_deadline_just_before_never_fires() {
    both_ways(|shard| {
        let (_timer, count) = counting(&shard, NEVER - 1);
        assert_eq!(turn(&shard, NEVER - 2), 0);
        assert_eq!(turn(&shard, u64::MAX), 1, "a clock beyond the end of time");
        assert_eq!(ran(&count), 1);
    });
}

#[test]
fn a_deadline_of_zero_is_due_at_zero() {
    both_ways(|shard| {
        let (timer, count) = counting(&shard, 0);
        let sleep = Sleep::new(&shard, 0);
        assert_eq!(shard.next_deadline(), 0);
        assert_eq!(turn(&shard, 0), 2);
        assert_eq!(ran(&count), 1);
        assert_eq!(timer.status(), Status::Over(Outcome::Fired));
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    });
}

/// Deadlines at which timers of other projects hang or panic are exact: after days of uptime, and
/// at 2^36 ms.
#[test]
fn far_deadlines_fire_to_the_nanosecond() {
    both_ways(|shard| {
        let mut deadlines: Vec<u64> = (0..61).map(|bit| 1 << bit).collect();
        deadlines.extend([(1 << 36) * MS, (1 << 36) * MS - 1, (1 << 36) * MS + 1]);
        deadlines.extend([49 * 24 * HOUR, 793 * 24 * HOUR, YEAR, 10 * YEAR, 72 * YEAR]);
        deadlines.sort_unstable();
        deadlines.dedup();
        let timers: Vec<_> = deadlines.iter().map(|&at| counting(&shard, at)).collect();
        for ((_, count), &at) in timers.iter().zip(&deadlines) {
            turn(&shard, at - 1);
            assert_eq!(ran(count), 0, "the timer at {at} ran early");
            assert_eq!(shard.next_deadline(), at);
            assert_eq!(turn(&shard, at), 1);
            assert_eq!(ran(count), 1);
        }
    });
}

#[test]
fn timers_armed_after_years_of_uptime_fire_in_time() {
    both_ways(|shard| {
        for now in [YEAR, 30 * YEAR, 73 * YEAR, NEVER - HOUR] {
            let (_timer, count) = counting(&shard, now + 10);
            assert_eq!(turn(&shard, now + 9), 0);
            assert_eq!(turn(&shard, now + 10), 1);
            assert_eq!(ran(&count), 1);
        }
    });
}

#[test]
fn equal_deadlines_all_come_due_at_once() {
    both_ways(|shard| {
        let count = if cfg!(miri) { 50 } else { 1_000 };
        let timers: Vec<_> = (0..count).map(|_| counting(&shard, 5)).collect();
        let mut sum = 0;
        while sum < count {
            let due = expire(&shard, 5, 7);
            assert!(!due.is_empty(), "{sum} of them came due");
            sum += due.len();
            for timer in due {
                timer.run(|| 5);
            }
        }
        assert!(timers.iter().all(|(_, count)| ran(count) == 1));
        assert_eq!(turn(&shard, u64::MAX), 0);
    });
}

#[test]
fn waits_beyond_never_saturate() {
    both_ways(|shard| {
        let (timer, count) = counting(&shard, 5);
        assert_eq!(timer.reset_after(10, u64::MAX), Reset::Pending);
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(timer.refresh(u64::MAX), Reset::Pending);
        assert_eq!(timer.reset_at(u64::MAX), Reset::Pending);
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(turn(&shard, u64::MAX), 0);
        assert_eq!(timer.reset_after(u64::MAX - 3, 7), Reset::Pending);
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(timer.reset_after(10, 7), Reset::Pending);
        assert_eq!(turn(&shard, 16), 0);
        assert_eq!(turn(&shard, 17), 1);
        assert_eq!(ran(&count), 1);
    });
}

/// A wait without end gets a limit that is measured from its start. That start must not count as
/// long past.
#[test]
fn a_limit_from_the_start_of_an_endless_wait_is_not_early() {
    both_ways(|shard| {
        let began = 100 * HOUR;
        let (timer, _) = counting(&shard, began + HOUR);
        assert_eq!(timer.reset_after(began, u64::MAX), Reset::Pending);
        assert_eq!(timer.reset_from_start(5 * HOUR), Reset::Pending);
        assert_eq!(turn(&shard, began), 0, "ran at once: {timer:?}");
        assert_eq!(turn(&shard, began + 5 * HOUR), 1);
    });
}

#[test]
fn a_recurring_timer_near_never_stops_there() {
    both_ways(|shard| {
        let count = Counter::default();
        let counter = count.clone();
        let timer = Timer::recurring(&shard, NEVER - 10, 4, move || {
            counter.fetch_add(1, Ordering::Relaxed);
        });
        for now in [NEVER - 10, NEVER - 6, NEVER - 2] {
            assert_eq!(turn(&shard, now), 1);
        }
        assert_eq!(timer.deadline(), Some(NEVER));
        assert_eq!(turn(&shard, u64::MAX), 0);
        assert_eq!(ran(&count), 3);
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    });
}

#[test]
fn a_recurring_timer_outlives_a_clock_that_ran_to_its_end() {
    both_ways(|shard| {
        for period in [0, 1, 2, YEAR, NEVER, u64::MAX] {
            let timer = Timer::recurring(&shard, 0, period, || ());
            assert_eq!(turn(&shard, u64::MAX), 1, "period {period}");
            assert_eq!(timer.deadline(), Some(NEVER));
            assert_eq!(timer.cancel(), Cancel::Cancelled);
        }
    });
}

/// The owner is late by a different amount each time, sometimes by several periods. Skipped runs
/// stay skipped, and all runs are on the grid.
#[test]
#[cfg_attr(miri, ignore = "needs a million runs")]
fn recurring_timers_do_not_drift() {
    both_ways(|shard| {
        let period = 10 * MS;
        let start = 3;
        let deadlines = Arc::new(Mutex::new(Vec::new()));
        let seen = deadlines.clone();
        let clock = Arc::new(AtomicU64::new(0));
        let read = clock.clone();
        let _timer = Timer::recurring(&shard, start, period, move || {
            seen.lock().unwrap().push(read.load(Ordering::Relaxed));
        });
        let (mut now, mut skipped) = (0, 0);
        let mut late = 0;
        while now < 4 * HOUR {
            let deadline = shard.next_deadline();
            assert_eq!((deadline - start) % period, 0, "off its grid by then");
            // Usually up to 7 ms late, and sometimes several periods.
            late = (late * 31 + 1_234_567) % (7 * MS);
            if late % 1_000 == 0 {
                late += 3 * period;
                skipped += 3;
            }
            now = deadline + late;
            clock.store(now, Ordering::Relaxed);
            assert_eq!(turn(&shard, now), 1);
        }
        let runs = deadlines.lock().unwrap().len() as u64;
        let periods = (now - start) / period + 1;
        assert_eq!(runs + skipped, periods);
        assert!(skipped > 0, "the test skips nothing");
    });
}

/// Ending a timer that has fired does not affect the timer that has its slot by then. In dstore, a
/// timer that has fired leaves its index behind, and unregistering it removes the timer that has
/// the index now.
#[test]
fn ending_a_timer_that_fired_removes_no_other() {
    both_ways(|shard| {
        let (old, old_count) = counting(&shard, 1);
        let mut asleep = Sleep::new(&shard, 1);
        assert_eq!(turn(&shard, 1), 2);
        let (new, new_count) = counting(&shard, 2);
        let other = Sleep::new(&shard, 2);
        assert_eq!(old.cancel(), Cancel::Over);
        assert_eq!(old.reset_at(0), Reset::TooLate);
        assert_eq!(old.refresh(0), Reset::TooLate);
        assert_eq!(old.reset_from_start(0), Reset::TooLate);
        asleep.reset(9);
        drop((old, asleep));
        assert_eq!(turn(&shard, 2), 2);
        assert_eq!((ran(&old_count), ran(&new_count)), (1, 1));
        assert_eq!(new.status(), Status::Over(Outcome::Fired));
        assert_eq!(other.outcome(), Some(Outcome::Fired));
        assert_eq!(turn(&shard, u64::MAX), 0);
    });
}

/// An update of a timer that a deque holds does not affect the timer that has its slot by then.
#[test]
fn a_late_update_of_a_due_timer_affects_no_other() {
    let shard = Scripted::shard(true);
    let (old, old_count) = counting(&shard, 10);
    let mut due = expire(&shard, 10, 1);
    let (_new, new_count) = counting(&shard, 20);
    shard.owner().set_local(false);
    assert_eq!(old.reset_at(100), Reset::Pending);
    assert_eq!(old.reset_at(15), Reset::Pending);
    assert_eq!(turn(&shard, 11), 0);
    assert_eq!(shard.stored(), 1, "the update was applied to another timer");
    assert!(matches!(due.remove(0).run(|| 11), Ran::PutBack));
    assert_eq!(turn(&shard, 15), 1);
    assert_eq!(turn(&shard, 20), 1);
    assert_eq!((ran(&old_count), ran(&new_count)), (1, 1));
    drop(shard.close());
}

#[test]
fn a_timer_may_cancel_another_of_the_same_batch() {
    both_ways(|shard| {
        let drops = Drops::default();
        let probe = drops.probe();
        let victim = Arc::new(Timer::once(&shard, 2, 2, move || {
            drop(probe);
            panic!("it was cancelled");
        }));
        let target = victim.clone();
        let answer = Arc::new(Mutex::new(None));
        let asked = answer.clone();
        let _first = Timer::once(&shard, 1, 1, move || {
            *asked.lock().unwrap() = Some(target.cancel());
        });
        let mut due = expire(&shard, 5, usize::MAX).into_iter();
        let mut next = || due.next().expect("both are due").run(|| 5);
        assert!(matches!(next(), Ran::Fired));
        assert_eq!(*answer.lock().unwrap(), Some(Cancel::Cancelled));
        assert_eq!(drops.get(), 1, "the payload goes at once");
        assert!(matches!(next(), Ran::Over));
        assert_eq!(victim.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Cancelled), 1);
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Fired), 1);
    });
}

#[test]
fn a_timer_refreshed_in_the_deque_runs_at_its_new_deadline() {
    both_ways(|shard| {
        let (timer, count) = counting(&shard, 10);
        let mut due = expire(&shard, 10, usize::MAX);
        assert_eq!(timer.refresh(12), Reset::Pending);
        assert!(matches!(due.remove(0).run(|| 12), Ran::PutBack));
        assert!(shard.next_deadline() <= 22);
        assert_eq!(turn(&shard, 21), 0);
        assert_eq!(turn(&shard, 22), 1);
        assert_eq!(ran(&count), 1);
    });
}

/// A thread drains the inbox, but reads one batch only. The rest must not be forgotten.
#[test]
fn arrivals_beyond_a_batch_keep_their_deadlines() {
    let shard = Scripted::shard(false);
    // The newest is read first: the earliest deadline comes last.
    let timers: Vec<_> = (0..600).map(|at| counting(&shard, 1_000 + at)).collect();
    let mut due = Vec::new();
    let expired = shard.expire(0, usize::MAX, &mut due);
    assert_eq!(expired.count, 0);
    assert!(expired.more, "a part of the inbox was left");
    assert!(shard.has_updates());
    assert_eq!(shard.next_deadline(), 1_000);
    let mut turns = 0;
    while timers.iter().any(|(_, count)| ran(count) == 0) {
        turn(&shard, 2_000);
        turns += 1;
        assert!(turns < 100, "timers were lost");
    }
    assert!(!shard.has_updates());
    assert_eq!(shard.next_deadline(), NEVER);
    drop(shard.close());
}

#[test]
fn a_closed_shard_ends_each_new_timer() {
    both_ways(|shard| {
        drop(shard.close());
        let (timer, count) = counting(&shard, 5);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(timer.cancel(), Cancel::Over);
        assert_eq!(timer.reset_at(1), Reset::TooLate);
        assert_eq!(ran(&count), 0);
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Shutdown), 1);
        assert_eq!(shard.next_deadline(), NEVER);
        assert_eq!(turn(&shard, u64::MAX), 0);
        assert!(shard.close().is_empty());
    });
}

/// A start on a closed shard says that the timer was shut down, and so does each later start.
#[test]
fn a_start_on_a_closed_shard_answers_that_it_is_shut_down() {
    for (recurring, outcome) in [(false, false), (false, true), (true, false), (true, true)] {
        both_ways(|shard| {
            let built = || {
                let options = Options {
                    recurring,
                    outcome,
                    ..Options::default()
                };
                Timer::build(&shard, 10, options, Flow::Break)
            };
            let [waits, idle, cancelled] = [0; 3].map(|_| built());
            assert_eq!(waits.start(0), Started::Pending);
            assert_eq!(cancelled.cancel(), Cancel::Cancelled);
            drop(shard.close());
            assert_eq!(waits.start(0), Started::Shutdown);
            assert_eq!(idle.status(), Status::NotStarted);
            for _ in 0..2 {
                assert_eq!(idle.start(0), Started::Shutdown);
                assert_eq!(idle.status(), Status::Over(Outcome::Shutdown));
                assert_eq!(cancelled.start(0), Started::Cancelled);
            }
            assert_eq!(idle.reset_at(5), Reset::TooLate);
            assert_eq!(shard.owner().owes(), 0);
        });
    }
}

/// A sleep that was refused once must not wait when it is armed again.
#[test]
fn a_sleep_armed_again_on_a_closed_shard_is_over_each_time() {
    both_ways(|shard| {
        drop(shard.close());
        let mut sleep = Sleep::new(&shard, 5);
        for deadline in [9, 3, NEVER] {
            assert_eq!(sleep.poll(Waker::noop()), Poll::Ready(Outcome::Shutdown));
            sleep.reset(deadline);
        }
        assert_eq!(sleep.outcome(), Some(Outcome::Shutdown));
    });
}

/// The shard is closed while a deque holds the timer, and the timer is moved there. Its holder
/// brings it back to the closed shard, and there it must end.
#[test]
fn a_timer_moved_in_the_deque_of_a_closed_shard_ends() {
    both_ways(|shard| {
        let drops = Drops::default();
        let probe = drops.probe();
        let timer = Timer::once(&shard, 5, 5, move || drop(probe));
        let mut due = expire(&shard, 5, 1);
        drop(shard.close());
        assert_eq!(timer.reset_at(100), Reset::Pending);
        let _ = timer.reset_at(50);
        due.remove(0).run(|| 6);
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(drops.get(), 1);
        assert_eq!(shard.owner().over.get(Kind::Once, Outcome::Shutdown), 1);
        assert_eq!(shard.next_deadline(), NEVER);
    });
}

/// A worker that stops drops the timers of other workers that it holds. Their shards are still
/// open.
#[test]
fn a_sleep_shut_down_in_a_deque_can_be_armed_again() {
    both_ways(|shard| {
        let mut sleep = Sleep::new(&shard, 5);
        let mut due = expire(&shard, 5, 1);
        due.remove(0).shutdown();
        assert_eq!(sleep.outcome(), Some(Outcome::Shutdown));
        sleep.reset(9);
        assert_eq!(shard.next_deadline(), 9);
        assert_eq!(turn(&shard, 9), 1);
        assert_eq!(sleep.outcome(), Some(Outcome::Fired));
    });
}

#[test]
fn a_closed_shard_counts_no_garbage() {
    let shard = Scripted::shard(true);
    let timers: Vec<_> = (0..200).map(|_| counting(&shard, 5)).collect();
    let due = expire(&shard, 5, usize::MAX);
    drop(shard.close());
    shard.owner().set_local(false);
    for (timer, _) in &timers {
        assert_eq!(timer.cancel(), Cancel::Cancelled);
    }
    assert_eq!(shard.garbage(), 0, "no thread will read them");
    drop((due, timers));
    assert_eq!(Arc::strong_count(&shard), 1);
}

/// The owner reads a part of a long inbox, and then looks for due timers.
#[test]
#[cfg_attr(miri, ignore = "needs thousands of timers")]
fn a_due_timer_does_not_wait_for_a_long_inbox_to_be_read() {
    let shard = Scripted::shard(true);
    let (_due, count) = counting(&shard, 10);
    shard.owner().set_local(false);
    let far: Vec<_> = (0..100_000).map(|_| counting(&shard, HOUR)).collect();
    shard.owner().set_local(true);
    let mut due = Vec::new();
    let expired = shard.expire(10, usize::MAX, &mut due);
    assert_eq!((expired.count, expired.more), (1, true));
    assert!(shard.stored() < 10_000, "it read it all");
    assert!(shard.has_updates(), "what is left keeps the owner awake");
    due.pop().unwrap().run(|| 10);
    assert_eq!(ran(&count), 1);
    while shard.expire(10, usize::MAX, &mut due).more {}
    assert_eq!(shard.stored(), far.len());
    assert!(due.is_empty() && !shard.has_updates());
    shard.close();
}

/// Very many timers were moved to a later deadline, and their old one comes up. One call puts back
/// a part of them, so that it does not hold the lock for long, and says that there may be more. The
/// timer behind them runs, and no moved timer is early.
#[test]
fn one_call_puts_back_a_part_of_very_many_moved_timers() {
    const COUNT: usize = 3_000;
    both_ways(|shard| {
        let timers: Vec<_> = (0..COUNT)
            .map(|_| Timer::once(&shard, 10, 10, || ()))
            .collect();
        let behind = Timer::once(&shard, 11, 11, || ());
        // The store has read the timers before they are moved.
        while shard.expire(5, usize::MAX, &mut Vec::new()).more {}
        for timer in &timers {
            assert_eq!(timer.reset_at(100), Reset::Pending);
        }
        let (mut due, mut calls, mut moved) = (Vec::new(), 0, false);
        loop {
            assert!(shard.next_deadline() <= 20, "the owner would sleep");
            calls += 1;
            let expired = shard.expire(20, usize::MAX, &mut due);
            // An inbox that was read in part is another reason.
            assert!(expired.more || !expired.moved);
            moved |= expired.moved;
            if !expired.more {
                break;
            }
            assert!(calls < COUNT, "it goes on for ever");
        }
        assert!(calls >= COUNT / 1_024, "one call put back too many");
        assert!(moved);
        assert_eq!(due.len(), 1);
        due.pop().unwrap().run(|| 20);
        assert_eq!(behind.status(), Status::Over(Outcome::Fired));
        assert_eq!(turn(&shard, 99), 0);
        assert!(timers.iter().all(|it| it.status() == Status::Pending));
    });
}
