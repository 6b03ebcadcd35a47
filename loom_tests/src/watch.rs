//! A shard whose worker is watched, and the threads that answer its alarm.

use loom::sync::Arc;
use tourbillon_shards::{Coming, NEVER, Shard, Timer};

use crate::{Home, Worker, run};

/// How late a timer of a [watched](watched) shard may be before other threads take it.
pub const GRACE: u64 = 10;

/// The longest time to an alarm, as in `shards/src/park/watchdog.rs`. It is the same for a healthy
/// owner and for a stuck one.
pub const BEAT: u64 = 40;
/// The shortest time to an alarm that a watching peer sets.
pub const SOON: u64 = 4;

/// Returns a shard whose owner is watched, and that has no owner yet.
pub fn watched() -> Home {
    Arc::new(Shard::watched(Worker::default(), GRACE))
}

/// Like [`watched`], but the watch begins with the first call.
pub fn watched_when_called() -> Home {
    Arc::new(Shard::watched_when_called(Worker::default(), GRACE))
}

/// Answers the alarm of `home`, which went off, at `now`. The calling thread is not the owner. If
/// it is the one that takes the alarm, it takes the due timers, sets the alarm again, and then runs
/// the timers.
pub fn answer(home: &Home, now: u64) -> bool {
    look_after(home, now, home.take_alarm(now), Shard::watch_on)
}

/// Like [`answer`], but as a thread that seldom checks: it sets the alarm again without regard to
/// deadlines.
pub fn answer_rarely(home: &Home, now: u64) -> bool {
    look_after(home, now, home.take_alarm(now), Shard::watch_on_rarely)
}

/// Like [`answer`], but for a thread that set the alarm of `home` to `word` and has waited until
/// then.
pub fn answer_awaited(home: &Home, now: u64, word: u64) -> bool {
    look_after(home, now, home.take_alarm_at(word), Shard::watch_on)
}

/// Lets the calling thread rescue the stuck owner of `home` at 41, and then wait for the deadline
/// of 50. The owner's last heartbeat was at 0. Returns the alarm's word.
pub fn waits_for_50(home: &Home) -> u64 {
    assert!(home.take_alarm(41));
    let comes = Coming {
        after: 15,
        waits: 15,
    };
    assert!(home.watch_on_sooner(41, 1, comes));
    let (at, word) = home.awaited(45, comes).unwrap();
    assert!(
        (50..60).contains(&at) && word == home.alarm(),
        "{at}, {word}"
    );
    word
}

fn look_after(
    home: &Home,
    now: u64,
    taken: bool,
    set_again: fn(&Shard<Worker>, u64, u32) -> bool,
) -> bool {
    if taken && (home.parker().is_awake() || home.is_late(now)) {
        let mut due = Vec::new();
        home.expire(now, usize::MAX, &mut due);
        set_again(home, now, 1);
        due.into_iter().for_each(|due| drop(run(due, now)));
    }
    taken
}

/// Asserts that the alarm of `home` is set soon enough for the next deadline, and within a
/// heartbeat. The owner is awake at `now`, and all other threads are done.
#[track_caller]
pub fn assert_called(home: &Home, now: u64) {
    let late = home.next_deadline().saturating_add(GRACE);
    let latest = late.clamp(now + SOON, now + BEAT);
    assert_set(home, latest);
}

/// Asserts that the alarm of `home` is set, to no later than `latest`. All other threads are done.
#[track_caller]
pub fn assert_set(home: &Home, latest: u64) {
    let at = home.owner().alarm.is_set_to();
    assert_eq!(at, home.alarm(), "the alarm is what the word says");
    // The lowest bit says whether the owner set it.
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
