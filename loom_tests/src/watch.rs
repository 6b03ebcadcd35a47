//! A shard whose worker is watched, and the threads that answer its alarm.

use loom::sync::Arc;
use tourbillon_shards::{NEVER, Shard, Timer};

use crate::{Home, Worker, run};

/// The longest time to an alarm that a healthy owner sets, or a peer that watches a stuck owner.
pub const AHEAD: u64 = 40;
/// The shortest time to an alarm that a watching peer sets, as in `crates/sched/src/alarm.rs`.
pub const SOON: u64 = 4;

/// Returns a shard whose owner is watched, and that has no owner yet.
pub fn watched() -> Home {
    Arc::new(Shard::watched(Worker::default(), AHEAD))
}

/// Like [`watched`], but the watch begins with the first call.
pub fn watched_when_called() -> Home {
    Arc::new(Shard::watched_when_called(Worker::default(), AHEAD))
}

/// Answers the alarm of `home`, which went off, at `now`. The calling thread is not the owner. If
/// this thread takes the alarm, it takes the due timers, sets the alarm again, runs the timers,
/// and returns `true`.
pub fn answer(home: &Home, now: u64) -> bool {
    look_after(home, now, Shard::watch_on)
}

/// Like [`answer`], but as a thread that seldom checks: it sets the alarm again without regard to
/// deadlines.
pub fn answer_rarely(home: &Home, now: u64) -> bool {
    look_after(home, now, |home, now| home.watch_on_rarely(now, 1))
}

/// Like [`answer_rarely`], but as a thread that leaves the timers to the owner, because the owner
/// may be well.
pub fn answer_without_rescue(home: &Home, now: u64) -> bool {
    let taken = home.take_alarm(now);
    if taken {
        home.watch_on_rarely(now, 1);
    }
    taken
}

fn look_after(home: &Home, now: u64, set_again: fn(&Shard<Worker>, u64) -> bool) -> bool {
    if !home.take_alarm(now) {
        return false;
    }
    let mut due = Vec::new();
    if home.parker().is_awake() || home.is_late(now) {
        home.expire(now, usize::MAX, &mut due);
    }
    set_again(home, now);
    due.into_iter().for_each(|due| drop(run(due, now)));
    true
}

/// Asserts that the alarm of `home` is set, to no later than [`AHEAD`] after `now`. At `now` or
/// before, the owner recorded its last heartbeat, or a peer last checked the owner. All other
/// threads are done.
#[track_caller]
pub fn assert_called(home: &Home, now: u64) {
    assert_set(home, now + AHEAD);
}

/// Asserts that the alarm of `home` is set, to no later than `latest`. All other threads are done.
#[track_caller]
pub fn assert_set(home: &Home, latest: u64) {
    let at = home.owner().alarm.is_set_to();
    assert_eq!(at, home.alarm(), "the alarm is what the word says");
    // The lowest bit says whether the alarm stands.
    assert!(at <= latest | 1, "set to {at}, which is after {latest}");
}

/// Asserts that the alarm of `home` is not set, and that a new deadline does not set it.
#[track_caller]
pub fn assert_dismissed(home: &Home) {
    assert_eq!(home.owner().alarm.is_set_to(), NEVER);
    assert_eq!(home.alarm(), NEVER);
    home.beat(41);
    drop(Timer::once(home, 12, 5, || {}));
    assert!(!home.take_alarm(NEVER) && !home.put_off(NEVER, 1));
    assert_eq!(home.owner().alarm.is_set_to(), NEVER, "it is dismissed");
}
