//! An event loop of one thread that sleeps by `sleep_until` and `resume` misses no update of other
//! threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread::{self, Thread, ThreadId},
};

use crate::common::{Scripted, times, turn};
use tourbillon_shards::{Cancel, Flow, NEVER, Options, Owner, Reset, Shard, Timer, Tolerance};

#[test]
fn sleep_until_returns_the_next_deadline() {
    let shard = Scripted::shard(true);
    assert_eq!(shard.sleep_until(), Some(NEVER));
    shard.resume();
    let timer = Timer::once(&shard, 500, 500, || ());
    assert_eq!(shard.sleep_until(), Some(500));
    assert_eq!(shard.parker().parked_until(), Some(500));
    shard.resume();
    assert_eq!(shard.parker().parked_until(), None);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    assert_eq!(shard.sleep_until(), Some(NEVER));
    shard.resume();
}

#[test]
fn a_shard_does_not_sleep_with_pending_updates() {
    let shard = Scripted::shard(false);
    let _timer = Timer::once(&shard, 500, 500, || ());
    assert_eq!(shard.sleep_until(), None);
    assert_eq!(shard.parker().parked_until(), None, "it is awake still");
    assert_eq!(turn(&shard, 0), 0);
    assert_eq!(shard.sleep_until(), Some(500));
    shard.resume();
    drop(shard.close());
}

#[test]
fn an_earlier_timer_wakes_the_owner_once_and_a_later_one_does_not() {
    let shard = Scripted::shard(false);
    let wakes = || shard.owner().wakes.load(Ordering::Relaxed);
    let arm = |deadline| drop(Timer::once(&shard, deadline, deadline, || ()));
    arm(500);
    turn(&shard, 0);
    assert_eq!(shard.sleep_until(), Some(500));
    arm(500);
    arm(600);
    assert_eq!(wakes(), 0, "it wakes in time");
    arm(400);
    arm(300);
    assert_eq!(wakes(), 1, "a burst wakes once");
    shard.resume();
    arm(200);
    assert_eq!(wakes(), 1, "it is awake");
    assert_eq!(shard.sleep_until(), None);
    assert_eq!(turn(&shard, 600), 6);
    assert_eq!(shard.sleep_until(), Some(NEVER));
    assert!(shard.wake());
    assert!(!shard.wake(), "it is being woken");
    assert_eq!(wakes(), 2);
    shard.resume();
}

/// A timer with a tolerance does not wake the owner if it can wait until the owner wakes anyway.
#[test]
fn a_tolerant_timer_that_can_wait_does_not_wake_the_owner() {
    let shard = Scripted::shard(false);
    let tolerant = |deadline, tolerance| {
        let options = Options {
            deadline: Some(deadline),
            tolerance: Tolerance::new(tolerance),
            ..Options::default()
        };
        Timer::build(&shard, 0, options, Flow::Break).start(0);
    };
    let _exact = Timer::once(&shard, 512, 512, || ());
    turn(&shard, 0);
    assert_eq!(shard.sleep_until(), Some(512));
    tolerant(400, 200);
    assert_eq!(shard.owner().wakes.load(Ordering::Relaxed), 0);
    tolerant(400, 50);
    assert_eq!(shard.owner().wakes.load(Ordering::Relaxed), 1);
    shard.resume();
    drop(shard.close());
}

/// An event loop that sleeps by parking its thread.
struct Loop(Thread, ThreadId);

impl Owner for Loop {
    fn wake(&self) {
        self.0.unpark();
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.1
    }
}

/// Other threads arm timers that are due at once, or make timers due, one after the other. In
/// between the loop sleeps without a limit. If a wake-up is lost, this test does not end.
#[test]
fn no_wake_up_is_lost() {
    const ROUNDS: usize = times(10_000);
    const THREADS: usize = 2;
    let me = thread::current();
    let id = me.id();
    let shard = Arc::new(Shard::new(Loop(me, id)));
    let left = AtomicUsize::new(THREADS);
    let ran = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let arms = || {
                    for round in 0..ROUNDS {
                        let done = Arc::new(AtomicBool::new(false));
                        let (mine, waiter) = (done.clone(), thread::current());
                        let f = move |how| {
                            mine.store(true, Ordering::Release);
                            waiter.unpark();
                            Flow::Break(how)
                        };
                        let options = Options {
                            deadline: Some(if round % 2 == 0 { 0 } else { NEVER }),
                            tolerance: Tolerance::new((round % 3) as u64),
                            ..Options::default()
                        };
                        let timer = Timer::build(&shard, 0, options, f);
                        timer.start(0);
                        if round % 2 == 1 {
                            assert_eq!(timer.reset_at(5), Reset::Pending);
                        }
                        while !done.load(Ordering::Acquire) {
                            thread::park();
                        }
                        ran.fetch_add(1, Ordering::Relaxed);
                    }
                };
                let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(arms));
                left.fetch_sub(1, Ordering::Release);
                shard.wake();
                ended.unwrap();
            });
        }
        while left.load(Ordering::Acquire) > 0 {
            turn(&shard, 10);
            let Some(until) = shard.sleep_until() else {
                continue;
            };
            // The other reason to end the loop is checked after the announcement, too.
            if left.load(Ordering::Acquire) > 0 && until > 10 {
                thread::park();
            }
            shard.resume();
        }
    });
    assert_eq!(ran.load(Ordering::Relaxed), ROUNDS * THREADS);
    drop(shard.close());
    assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
}
