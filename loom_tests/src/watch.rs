//! A shard whose worker is watched, and who is called for it.

use loom::sync::Arc;
use tourbillon_shards::{Coming, NEVER, Shard, Timer};

use crate::{Home, Worker, run};

/// How late a timer of a [watched](watched) shard may be before others take it.
pub const GRACE: u64 = 10;

/// How far off an alarm is at most, as in `shards/src/park/watchdog.rs`: the same for an owner that
/// is well and for one that is looked after.
pub const BEAT: u64 = 40;
/// How near it is set at most.
pub const SOON: u64 = 4;

/// A shard whose owner is watched, and that nobody owns yet.
pub fn watched() -> Home {
    Arc::new(Shard::watched(Worker::default(), GRACE))
}

/// The same, but nobody watches until somebody is called.
pub fn watched_when_called() -> Home {
    Arc::new(Shard::watched_when_called(Worker::default(), GRACE))
}

/// The alarm of `home` went off, and the calling thread, which is not the owner, got to know at
/// `now`: it takes what is due, if it is the one to do so, and sets the alarm again before it runs
/// that.
pub fn answer(home: &Home, now: u64) -> bool {
    look_after(home, now, home.take_alarm(now), Shard::watch_on)
}

/// As [`answer`], by a thread that keeps its looks rare: it sets the alarm again without regard to
/// deadlines.
pub fn answer_rarely(home: &Home, now: u64) -> bool {
    look_after(home, now, home.take_alarm(now), Shard::watch_on_rarely)
}

/// The same for who has set the alarm of `home` to `word`, and has waited for what is due then.
pub fn answer_awaited(home: &Home, now: u64, word: u64) -> bool {
    look_after(home, now, home.take_alarm_at(word), Shard::watch_on)
}

/// Who looked after the stuck owner of `home` at 41, whose beat was at 0, waits for its deadline of
/// 50; what it set the alarm to.
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

/// Nobody does anything any more, and the owner of `home` is awake, at `now`: somebody has to be
/// called for it, soon enough for the next deadline, and within a beat.
#[track_caller]
pub fn assert_called(home: &Home, now: u64) {
    let late = home.next_deadline().saturating_add(GRACE);
    let latest = late.clamp(now + SOON, now + BEAT);
    assert_set(home, latest);
}

/// The alarm of `home` is set, to no later than `latest`, though no thread does anything any more.
#[track_caller]
pub fn assert_set(home: &Home, latest: u64) {
    let at = home.owner().alarm.is_set_to();
    assert_eq!(at, home.alarm(), "the alarm is what the word says");
    // The lowest bit says who set it.
    assert!(at <= latest | 1, "set to {at}, which is after {latest}");
}

/// The alarm of `home` is not set, nor does a deadline set it.
#[track_caller]
pub fn assert_dismissed(home: &Home) {
    assert_eq!(home.owner().alarm.is_set_to(), NEVER);
    assert_eq!(home.alarm(), NEVER);
    home.beat(41);
    drop(Timer::once(home, 12, 5, || {}));
    assert!(!home.take_alarm(NEVER) && !home.put_off(NEVER, 1));
    assert_eq!(home.owner().alarm.is_set_to(), NEVER, "it is dismissed");
}
