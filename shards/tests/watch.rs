//! The alarm of a shard whose owner is watched: what it is set to, and when.
#![cfg(not(loom))]

mod common;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use common::turn;
use tourbillon_shards::{Cancel, NEVER, Owner, Reset, Shard, Timer};

const MS: u64 = 1_000_000;
const GRACE: u64 = 100_000;
/// As in `src/watch.rs`.
const BEAT: u64 = MS;
const FLOOR: u64 = 200_000;
const SLACK: u64 = 150_000;

/// Writes down what its alarm is set to.
struct Watched {
    local: AtomicBool,
    settings: Mutex<Vec<u64>>,
}

impl Watched {
    fn new() -> Self {
        Self {
            local: AtomicBool::new(true),
            settings: Mutex::default(),
        }
    }

    fn shard() -> Arc<Shard<Self>> {
        Arc::new(Shard::watched(Self::new(), GRACE))
    }

    /// What the alarm was set to since this was last asked.
    fn settings(&self) -> Vec<u64> {
        std::mem::take(&mut *self.settings.lock().unwrap())
    }

    fn set_local(&self, local: bool) {
        self.local.store(local, Ordering::Relaxed);
    }
}

impl Owner for Watched {
    fn wake(&self) {}

    fn is_current(&self) -> bool {
        self.local.load(Ordering::Relaxed)
    }

    fn alarm(&self, at: u64) {
        self.settings.lock().unwrap().push(at);
    }
}

fn arm(shard: &Arc<Shard<Watched>>, deadline: u64) -> Timer<Watched> {
    Timer::once(shard, deadline, 0, || ())
}

#[test]
fn who_is_not_watched_has_no_alarm() {
    let shard = Arc::new(Shard::new(Watched::new()));
    for local in [true, false] {
        shard.owner().set_local(local);
        let timer = arm(&shard, 10 * MS);
        timer.reset_at(MS);
        shard.beat(0);
        shard.beat(u64::MAX);
        shard.rest(MS);
        shard.call();
        for now in [0, MS, NEVER, u64::MAX] {
            assert!(!shard.take_alarm(now));
            assert!(!shard.is_late(now) || now >= NEVER);
        }
        assert_eq!(shard.alarm(), NEVER);
    }
    assert_eq!(shard.owner().settings(), []);
    drop(shard.close());
}

#[test]
fn a_beat_sets_it_and_those_that_follow_soon_let_it_be() {
    let shard = Watched::shard();
    assert_eq!(shard.alarm(), NEVER);
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [BEAT]);
    for now in (0..BEAT - FLOOR).step_by(1_000) {
        shard.beat(now);
    }
    assert_eq!(shard.owner().settings(), []);
    shard.beat(BEAT - 1);
    assert_eq!(shard.owner().settings(), [2 * BEAT - 1]);
    assert_eq!(shard.alarm(), 2 * BEAT - 1);
}

#[test]
fn dense_deadlines_do_not_each_cost_a_setting() {
    let shard = Watched::shard();
    shard.beat(0);
    shard.owner().settings();
    let step = 10_000;
    let steps = 1_000;
    for now in (0..steps * step).step_by(step as usize) {
        let _timer = arm(&shard, now + step);
        turn(&shard, now);
        shard.beat(now);
    }
    let settings = shard.owner().settings().len();
    let most = (steps * step / (FLOOR - 50_000)) as usize + 2;
    assert!((1..=2 * most).contains(&settings), "{settings} settings");
    drop(shard.close());
}

#[test]
fn it_is_set_to_soon_after_the_next_deadline() {
    let shard = Watched::shard();
    let far = arm(&shard, 100 * MS);
    assert_eq!(shard.owner().settings(), [100 * MS + GRACE]);
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [BEAT], "not that far off");
    let near = arm(&shard, BEAT / 2);
    assert_eq!(shard.owner().settings(), [BEAT / 2 + GRACE]);
    let nearer = arm(&shard, BEAT / 2 - SLACK);
    assert_eq!(
        shard.owner().settings(),
        [],
        "it is late by no more than that"
    );
    assert_eq!(nearer.reset_at(BEAT / 2 - SLACK - 1), Reset::Waiting);
    let at = BEAT / 2 - SLACK - 1 + GRACE;
    assert_eq!(shard.owner().settings(), [at], "moved earlier");
    assert_eq!(near.cancel(), Cancel::Cancelled);
    drop((far, near, nearer));
    drop(shard.close());
}

#[test]
fn others_lower_it_while_the_owner_is_awake_and_not_while_it_sleeps() {
    let shard = Watched::shard();
    shard.owner().set_local(false);
    let first = arm(&shard, 2 * MS);
    assert_eq!(shard.owner().settings(), [2 * MS + GRACE]);
    assert_eq!(first.reset_at(MS), Reset::Waiting);
    assert_eq!(shard.owner().settings(), [MS + GRACE]);
    turn(&shard, 0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, MS);
    shard.rest(until);
    assert_eq!(shard.owner().settings(), [], "it is set to then");
    let _second = arm(&shard, MS / 4);
    assert_eq!(shard.owner().settings(), [], "the owner is woken for it");
    shard.resume();
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [MS / 4 + GRACE]);
    drop(shard.close());
}

#[test]
fn who_rests_is_given_until_its_deadline() {
    let shard = Watched::shard();
    shard.beat(0);
    shard.owner().settings();
    shard.rest(50 * MS);
    assert_eq!(shard.owner().settings(), [50 * MS + GRACE]);
    shard.rest(50 * MS);
    assert_eq!(shard.owner().settings(), []);
    shard.rest(NEVER);
    assert_eq!(shard.owner().settings(), [NEVER], "it is not set");
    assert_eq!(shard.alarm(), NEVER);
    shard.beat(60 * MS);
    assert_eq!(shard.owner().settings(), [60 * MS + BEAT]);
}

#[test]
fn it_is_taken_once_when_its_moment_has_come() {
    let shard = Watched::shard();
    assert!(!shard.take_alarm(NEVER), "it is not set");
    shard.beat(0);
    shard.owner().settings();
    assert!(!shard.take_alarm(BEAT - 1));
    assert_eq!(
        shard.owner().settings(),
        [BEAT],
        "it may have gone off early"
    );
    assert!(shard.take_alarm(BEAT));
    assert!(!shard.take_alarm(BEAT));
    assert_eq!(shard.alarm(), NEVER);
    assert!(shard.watch_on(BEAT, 1));
    assert_eq!(shard.owner().settings(), [2 * BEAT]);
    assert!(shard.take_alarm(2 * BEAT));
    assert!(shard.watch_on(2 * BEAT, 4));
    assert_eq!(shard.owner().settings(), [6 * BEAT], "farther off");
    let _timer = arm(&shard, 3 * BEAT);
    assert!(shard.take_alarm(3 * BEAT + GRACE));
    shard.owner().settings();
    assert!(shard.watch_on(3 * BEAT + GRACE, 4));
    assert_eq!(shard.owner().settings(), [3 * BEAT + GRACE + FLOOR]);
    drop(shard.close());
}

#[test]
fn who_took_it_does_not_rely_on_a_timer_that_is_far_off() {
    for local in [true, false] {
        let shard = Watched::shard();
        shard.beat(0);
        assert!(shard.take_alarm(BEAT));
        shard.owner().set_local(local);
        let _timer = arm(&shard, 100 * BEAT);
        assert_eq!(shard.alarm(), 100 * BEAT + GRACE);
        assert!(shard.watch_on(BEAT, 1));
        assert_eq!(shard.alarm(), 2 * BEAT);
        assert_eq!(shard.owner().settings().last(), Some(&(2 * BEAT)));
        drop(shard.close());
    }
}

#[test]
fn who_sleeps_sets_it_itself() {
    let shard = Watched::shard();
    shard.beat(0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, NEVER);
    assert!(shard.take_alarm(BEAT), "it was let be");
    assert!(!shard.is_late(BEAT));
    assert!(!shard.watch_on(BEAT, 1));
    assert_eq!(shard.alarm(), NEVER);
    shard.resume();
    shard.beat(2 * BEAT);
    assert_eq!(shard.alarm(), 3 * BEAT);
}

#[test]
fn a_timer_is_late_when_the_grace_has_passed() {
    let shard = Watched::shard();
    assert!(!shard.is_late(NEVER - 1));
    let _timer = arm(&shard, MS);
    assert!(!shard.is_late(MS + GRACE - 1));
    assert!(shard.is_late(MS + GRACE));
    drop(shard.close());
}

#[test]
fn a_call_goes_off_at_once() {
    let shard = Watched::shard();
    shard.beat(5 * MS);
    shard.call();
    assert!(
        shard.owner().settings().last().unwrap() < &MS,
        "it has passed"
    );
    let _timer = arm(&shard, 6 * MS);
    assert!(shard.alarm() < MS, "nothing is before it");
    assert!(shard.take_alarm(5 * MS));
    assert!(!shard.take_alarm(5 * MS));
    shard.call();
    shard.beat(5 * MS);
    assert_eq!(shard.alarm(), 6 * MS, "the owner is back");
    drop(shard.close());
}

/// No sum overflows, and what is set is never more than `NEVER`.
#[test]
fn the_end_of_time_is_no_end_of_the_watch() {
    for grace in [0, GRACE, NEVER - 1, NEVER, u64::MAX] {
        let shard = Arc::new(Shard::watched(Watched::new(), grace));
        let _timers = [NEVER - 1, NEVER - GRACE].map(|at| arm(&shard, at));
        for now in [0, NEVER - BEAT, NEVER - 1, NEVER, u64::MAX - 1, u64::MAX] {
            shard.beat(now);
            shard.rest(now.min(NEVER));
            shard.call();
            assert!(!shard.take_alarm(0));
            assert!(shard.take_alarm(now.max(1)));
            assert!(shard.watch_on(now, u32::MAX));
            assert!(shard.watch_on(now, 0));
            shard.is_late(now);
        }
        let settings = shard.owner().settings();
        assert!(settings.iter().all(|&at| at <= NEVER), "{settings:?}");
        drop(shard.close());
    }
}
