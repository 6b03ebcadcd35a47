//! The alarm when it is put off, set again at a lower rate, or dismissed.

use std::sync::Arc;

use crate::{
    common::{turn, units::MS},
    watched::{AHEAD, SOON, Watched, arm},
};
use tourbillon_shards::{NEVER, Shard};

/// Returns a shard whose owner had its last heartbeat at 0, and whose alarm has gone off since.
fn gone_off() -> Arc<Shard<Watched>> {
    let shard = Watched::shard();
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [AHEAD]);
    shard
}

#[test]
fn an_alarm_that_is_put_off_goes_off_later_whatever_is_due() {
    let now = 5 * MS;
    for (looks, after) in [(0, SOON), (1, AHEAD), (19, 19 * AHEAD)] {
        let shard = gone_off();
        arm(&shard, now);
        assert!(shard.put_off(now, looks));
        assert_eq!(shard.owner().settings(), [now + after]);
        // The new alarm has not gone off yet.
        assert!(!shard.take_alarm(now) && !shard.put_off(now, looks));
        let at = now + after + 1;
        shard.owner().settings();
        // Put the alarm off once more. After that a peer takes it.
        assert!(shard.put_off(at, looks));
        assert!(shard.take_alarm(at + after + 1));
        assert!(shard.watch_on(at + after));
        turn(&shard, at);
        drop(shard.close());
    }
}

#[test]
fn an_alarm_that_is_taken_or_not_set_is_not_put_off() {
    let shard = gone_off();
    assert!(shard.take_alarm(5 * MS));
    assert!(!shard.put_off(5 * MS, 1));
    assert_eq!(shard.owner().settings(), [], "its taker sets it");
    let shard = Shard::new(Watched::new());
    assert!(!shard.put_off(5 * MS, 1));
    assert_eq!(shard.owner().settings(), []);
}

#[test]
fn an_owner_that_is_back_sets_an_alarm_that_is_too_late() {
    let shard = gone_off();
    assert!(shard.put_off(5 * MS, 19));
    shard.owner().settings();
    shard.beat(6 * MS);
    assert_eq!(shard.owner().settings(), [6 * MS + AHEAD]);
    // An owner that sleeps sets its own alarm, too.
    assert!(shard.put_off(11 * MS, 2));
    shard.owner().settings();
    shard.rest(50 * MS);
    assert!(shard.owner().settings()[0] > 50 * MS);
}

#[test]
fn a_taken_alarm_is_set_again_rarely_whatever_is_due() {
    let shard = gone_off();
    assert!(shard.take_alarm(5 * MS));
    arm(&shard, 6 * MS);
    assert!(shard.watch_on_rarely(5 * MS, 20));
    assert_eq!(shard.owner().settings(), [5 * MS + 20 * AHEAD]);
    // The alarm stands, even if any thread arms a timer for a much earlier time.
    for local in [true, false] {
        shard.owner().set_local(local);
        arm(&shard, 9 * MS);
    }
    assert_eq!(shard.owner().settings(), []);
    turn(&shard, 24 * MS);
    drop(shard.close());
}

#[test]
fn an_alarm_that_is_dismissed_is_not_set_until_the_next_call() {
    let shard = gone_off();
    shard.dismiss();
    assert_eq!(shard.owner().settings(), [NEVER]);
    arm(&shard, MS);
    shard.beat(5 * MS);
    shard.rest(6 * MS);
    for now in [0, 5 * MS, NEVER] {
        assert!(!shard.take_alarm(now) && !shard.put_off(now, 1));
    }
    // A thread that took the alarm before it was dismissed does not set it again.
    shard.watch_on(5 * MS);
    shard.watch_on_rarely(5 * MS, 1);
    shard.dismiss();
    assert_eq!((shard.alarm(), shard.owner().settings()), (NEVER, vec![]));
    shard.call();
    assert_eq!(shard.owner().settings(), [0], "at once");
    assert!(shard.take_alarm(5 * MS));
    turn(&shard, 5 * MS);
    drop(shard.close());
}
