//! The alarm of a watched shard: what it is set to, and when.

use std::sync::Arc;

use crate::{
    common::{turn, units::MS},
    watched::{AHEAD, LATENCY, MARGIN, SOON, Watched, arm, moment},
};
use tourbillon_shards::{Cancel, NEVER, Reset, Shard};

/// Returns whether the alarm could be taken at `now`.
fn take(shard: &Shard<Watched>, now: u64) -> bool {
    shard.take_alarm(now | 1)
}

#[test]
fn an_owner_that_is_not_watched_has_no_alarm() {
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
            assert!(!take(&shard, now));
        }
        assert_eq!(moment(shard.alarm()), NEVER);
    }
    assert_eq!(shard.owner().settings(), []);
    drop(shard.close());
}

#[test]
fn an_owner_that_is_watched_when_called_has_no_alarm_before() {
    let shard = Arc::new(Shard::watched_when_called(Watched::new(), LATENCY));
    let timer = arm(&shard, 10 * MS);
    timer.reset_at(MS);
    shard.beat(0);
    shard.rest(MS);
    assert!(!take(&shard, NEVER));
    assert_eq!(
        (moment(shard.alarm()), shard.owner().settings()),
        (NEVER, vec![])
    );
    shard.call();
    assert!(shard.owner().settings().last().unwrap() < &MS);
    assert!(take(&shard, MS));
    assert!(shard.watch_on(MS));
    assert_eq!(shard.owner().settings(), [MS + SOON], "the timer is due");
    shard.beat(MS);
    assert_eq!(shard.owner().settings(), [MS + AHEAD]);
    drop(shard.close());
}

#[test]
fn a_heartbeat_sets_the_alarm_and_the_next_ones_keep_it() {
    let shard = Watched::shard();
    assert_eq!(moment(shard.alarm()), NEVER);
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [AHEAD]);
    for now in (0..=AHEAD - MARGIN).step_by(1_000) {
        shard.beat(now);
    }
    assert_eq!(shard.owner().settings(), []);
    let now = AHEAD - MARGIN + 2;
    shard.beat(now);
    assert_eq!(shard.owner().settings(), [now + AHEAD]);
    shard.beat(now);
    assert_eq!(shard.owner().settings(), [], "it is set already");
    assert_eq!(moment(shard.alarm()), now + AHEAD);
}

/// A worker that should have woken by now may have no core.
#[test]
fn a_worker_may_be_stuck_from_the_end_of_its_sleep_on() {
    let shard = Watched::shard();
    let until = 10 * MS;
    let _timer = arm(&shard, until);
    assert_eq!(shard.sleep_until(), Some(until));
    shard.rest(until);
    let mut now = moment(shard.alarm());
    assert!(take(&shard, now));
    // The peer may have read an older time.
    assert!(!shard.watch_on(until - 1), "it sleeps still");
    now = moment(shard.alarm());
    assert!(take(&shard, now));
    assert!(shard.watch_on(until), "it should wake now");
    shard.resume();
    drop(shard.close());
}

/// Latencies of 73 years and more, which are as good as none, are accepted. No sum overflows.
#[test]
fn the_latency_may_be_any_number() {
    for latency in [NEVER - 1, NEVER, u64::MAX] {
        for shard in [
            Shard::watched(Watched::new(), latency),
            Shard::watched_when_called(Watched::new(), latency),
        ] {
            shard.call();
            shard.beat(1);
            assert!(moment(shard.alarm()) < NEVER);
            shard.beat(NEVER);
        }
    }
}

/// A peer is called after three quarters of the latency. The last quarter is for the peer to come.
/// The shortest time until the peer looks again does not grow with long latencies.
#[test]
fn all_times_follow_from_the_latency() {
    for (latency, soon) in [(MS / 5, 50_000), (MS, SOON), (8 * MS, SOON)] {
        let shard = Watched::with_latency(latency);
        let ahead = latency / 4 * 3;
        shard.beat(0);
        shard.beat(latency / 2);
        assert_eq!(shard.owner().settings(), [ahead], "it is not near");
        assert!(take(&shard, ahead));
        assert!(shard.watch_on(ahead));
        assert_eq!(shard.owner().settings(), [2 * ahead]);
        assert!(take(&shard, 2 * ahead));
        assert!(shard.watch_on_rarely(2 * ahead, 0));
        assert_eq!(shard.owner().settings(), [2 * ahead + soon]);
    }
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
    let most = (steps * step / (AHEAD - MARGIN)) as usize + 1;
    assert!((1..=most).contains(&settings), "{settings} settings");
    drop(shard.close());
}

#[test]
fn the_alarm_of_a_healthy_owner_stands_whatever_is_armed() {
    for local in [true, false] {
        let shard = Watched::shard();
        shard.owner().set_local(local);
        let far = arm(&shard, 100 * MS);
        assert_eq!(shard.owner().settings(), []);
        shard.beat(0);
        assert_eq!(shard.owner().settings(), [AHEAD], "not that far off");
        let _near = arm(&shard, MS / 10);
        assert_eq!(far.reset_at(MS / 20), Reset::Pending);
        assert_eq!(shard.owner().settings(), [], "nor that near");
        shard.beat(MS / 4);
        assert_eq!(shard.owner().settings(), []);
        drop(shard.close());
    }
}

/// Returns a shard whose owner is stuck, and which a peer has taken over at [`AHEAD`].
fn stuck() -> Arc<Shard<Watched>> {
    let shard = Watched::shard();
    shard.beat(0);
    assert!(take(&shard, AHEAD));
    shard.owner().settings();
    assert!(shard.watch_on(AHEAD));
    assert_eq!(shard.owner().settings(), [2 * AHEAD]);
    shard
}

#[test]
fn the_alarm_of_a_stuck_owner_follows_earlier_timers() {
    for local in [true, false] {
        let shard = stuck();
        shard.owner().set_local(local);
        let near = arm(&shard, 2 * AHEAD - SOON);
        let settings = shard.owner().settings();
        assert_eq!(settings, [], "it is late by no more than that");
        let at = 2 * AHEAD - SOON - 2;
        assert_eq!(near.reset_at(at), Reset::Pending);
        assert_eq!(shard.owner().settings(), [at], "moved earlier");
        let _nearer = arm(&shard, AHEAD);
        assert_eq!(shard.owner().settings(), [AHEAD], "armed earlier");
        let _overdue = arm(&shard, 0);
        assert!(shard.alarm() > 0 && take(&shard, AHEAD), "it goes off");
        drop(shard.close());
    }
}

/// An owner that is back pushes its alarm off. From then on, the alarm does not follow timers.
#[test]
fn an_owner_that_is_back_leaves_no_alarm_that_follows_timers() {
    let shard = stuck();
    shard.beat(AHEAD + MS / 10);
    assert_eq!(shard.owner().settings(), [2 * AHEAD + MS / 10]);
    let _near = arm(&shard, AHEAD + MS / 5);
    assert_eq!(shard.owner().settings(), []);
    drop(shard.close());
}

#[test]
fn a_remote_thread_wakes_an_owner_that_sleeps_and_leaves_its_alarm() {
    let shard = Watched::shard();
    let _first = arm(&shard, 10 * MS);
    turn(&shard, 0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, 10 * MS);
    shard.rest(until);
    let [at] = shard.owner().settings()[..] else {
        panic!("it is set once");
    };
    assert!((until + MARGIN..=until + AHEAD).contains(&at));
    shard.owner().set_local(false);
    let _second = arm(&shard, MS);
    assert_eq!(shard.owner().settings(), [], "the owner is woken for it");
    shard.resume();
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [AHEAD]);
    drop(shard.close());
}

/// The alarm leaves a sleeping owner some time, because the system may run other threads first.
#[test]
fn a_sleeping_owner_gets_some_time_after_its_deadline() {
    let shard = Watched::shard();
    shard.beat(0);
    shard.owner().settings();
    shard.rest(50 * MS);
    let at = 50 * MS + AHEAD - MARGIN / 2;
    assert_eq!(shard.owner().settings(), [at]);
    shard.rest(50 * MS);
    assert_eq!(shard.owner().settings(), []);
    // If it wakes in time, or a little earlier or later, the alarm is neither near nor too late.
    for wakes in [50 * MS - MARGIN / 2, 50 * MS, 50 * MS + MARGIN / 2] {
        shard.beat(wakes);
        assert_eq!(shard.owner().settings(), []);
    }
    shard.rest(NEVER);
    assert_eq!(shard.owner().settings(), [NEVER], "it is not set");
    assert_eq!(moment(shard.alarm()), NEVER);
    shard.beat(60 * MS);
    assert_eq!(shard.owner().settings(), [60 * MS + AHEAD]);
}

/// The time until a peer is called is the same for an owner that was woken out of its sleep.
#[test]
fn an_owner_that_wakes_early_has_an_alarm_no_further_than_any_other() {
    for until in [MS / 10, MS, 2 * MS, NEVER] {
        let shard = Watched::shard();
        shard.beat(0);
        shard.rest(until);
        shard.beat(1_000);
        assert!(moment(shard.alarm()) <= 1_000 + AHEAD);
    }
}

#[test]
fn an_owner_that_sleeps_briefly_keeps_its_alarm() {
    let shard = Watched::shard();
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [AHEAD]);
    for until in [0, MARGIN, AHEAD - MARGIN] {
        shard.rest(until);
        assert_eq!(shard.owner().settings(), [], "enough is left after {until}");
    }
    shard.rest(AHEAD - MARGIN + 2);
    assert_eq!(shard.owner().settings().len(), 1);
    // An alarm that a peer has set could go off soon after the deadline, so the owner sets it
    // again.
    let shard = stuck();
    shard.rest(AHEAD + MARGIN);
    assert_eq!(shard.owner().settings().len(), 1);
    // An owner whose alarm was taken sets it, too.
    shard.beat(10 * MS);
    assert!(take(&shard, 10 * MS + AHEAD));
    shard.owner().settings();
    shard.rest(12 * MS);
    assert_eq!(shard.owner().settings().len(), 1);
}

#[test]
fn an_alarm_is_taken_once_and_not_before_its_time() {
    let shard = Watched::shard();
    assert!(!take(&shard, NEVER), "it is not set");
    shard.beat(0);
    shard.owner().settings();
    assert!(!take(&shard, AHEAD - 1));
    assert_eq!(
        shard.owner().settings(),
        [AHEAD],
        "it may have gone off early"
    );
    assert!(take(&shard, AHEAD));
    assert!(!take(&shard, AHEAD));
    assert_eq!(moment(shard.alarm()), NEVER);
    assert!(shard.watch_on(AHEAD));
    assert_eq!(shard.owner().settings(), [2 * AHEAD]);
    drop(shard.close());
}

#[test]
fn a_rescuer_sets_the_alarm_to_the_next_deadline() {
    let shard = Watched::shard();
    shard.beat(0);
    let mut now = AHEAD;
    let look = |now| {
        assert!(take(&shard, now));
        shard.owner().settings();
        assert!(shard.watch_on(now));
        let settings = shard.owner().settings();
        assert_eq!(settings.len(), 1);
        settings[0]
    };
    let at = look(now);
    assert_eq!(at, now + AHEAD, "there is no deadline");
    now = at;
    let timer = arm(&shard, now + AHEAD / 2);
    assert_eq!(look(now), now + AHEAD / 2);
    now += AHEAD / 2;
    assert_eq!(look(now), now + SOON, "it has passed");
    now += SOON;
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    let _timer = arm(&shard, now + 2 * AHEAD);
    assert_eq!(look(now), now + AHEAD, "not that far off");
    drop(shard.close());
}

/// A thread that arms a timer while a rescuer has the alarm leaves the alarm to the rescuer.
#[test]
fn a_rescuer_limits_the_alarm_whatever_is_armed_while_it_has_it() {
    for local in [true, false] {
        for (deadline, at) in [(100 * MS, 2 * AHEAD), (AHEAD + MS / 2, AHEAD + MS / 2)] {
            let shard = Watched::shard();
            shard.beat(0);
            assert!(take(&shard, AHEAD));
            shard.owner().set_local(local);
            let _timer = arm(&shard, deadline);
            assert_eq!(moment(shard.alarm()), NEVER);
            assert!(shard.watch_on(AHEAD));
            assert_eq!(moment(shard.alarm()), at);
            assert_eq!(shard.owner().settings().last(), Some(&at));
            drop(shard.close());
        }
    }
}

#[test]
fn an_owner_that_sleeps_sets_its_alarm_itself() {
    let shard = Watched::shard();
    shard.beat(0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, NEVER);
    assert!(take(&shard, AHEAD), "it was let be");
    assert!(!shard.is_late(AHEAD));
    assert!(!shard.watch_on(AHEAD));
    assert_eq!(moment(shard.alarm()), NEVER);
    shard.resume();
    shard.beat(2 * AHEAD);
    assert_eq!(moment(shard.alarm()), 3 * AHEAD);
}

/// A peer that finds the owner asleep sets the alarm behind its sleep: the owner may get no core
/// when its sleep ends.
#[test]
fn the_alarm_of_an_owner_that_sleeps_is_set_behind_its_sleep() {
    for rarely in [false, true] {
        let shard = Watched::shard();
        shard.beat(0);
        let _timer = arm(&shard, 20 * MS);
        assert_eq!(shard.sleep_until(), Some(20 * MS));
        assert!(take(&shard, AHEAD), "it was let be");
        shard.owner().settings();
        let may_be_stuck = if rarely {
            shard.watch_on_rarely(AHEAD, 19)
        } else {
            shard.watch_on(AHEAD)
        };
        assert!(!may_be_stuck);
        let behind = 20 * MS + AHEAD - MARGIN / 2;
        assert_eq!(shard.owner().settings(), [behind]);
        drop(shard.close());
    }
}

/// An owner may wait for a core after its sleep, or after another thread has woken it. It is then
/// watched like an owner that is stuck.
#[test]
fn an_owner_that_has_no_core_is_watched_as_one_that_is_stuck() {
    for woken in [false, true] {
        let shard = Watched::shard();
        shard.beat(0);
        let _first = arm(&shard, MS);
        assert_eq!(shard.sleep_until(), Some(MS));
        if woken {
            shard.owner().set_local(false);
            let _second = arm(&shard, MS / 2);
        }
        let now = 2 * MS;
        assert!(take(&shard, now));
        turn(&shard, now);
        shard.owner().set_local(false);
        let _next = arm(&shard, now + SOON + 2);
        shard.owner().settings();
        assert!(shard.watch_on(now));
        assert_eq!(shard.owner().settings(), [now + SOON + 2]);
        let _near = arm(&shard, now + 10);
        let settings = shard.owner().settings();
        assert_eq!(settings, [], "it is late by no more than that");
        let _due = arm(&shard, now);
        assert_eq!(
            shard.owner().settings(),
            [now],
            "it would be later than that"
        );
        shard.resume();
        shard.beat(now);
        assert_eq!(shard.owner().settings(), [now + AHEAD]);
        drop(shard.close());
    }
}

#[test]
fn a_timer_is_late_from_its_deadline_on() {
    let shard = Watched::shard();
    assert!(!shard.is_late(NEVER - 1));
    let _timer = arm(&shard, MS);
    assert!(!shard.is_late(MS - 1));
    assert!(shard.is_late(MS));
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
    let _timer = arm(&shard, 0);
    assert!(shard.alarm() < MS, "nothing is before it");
    assert!(take(&shard, 5 * MS));
    assert!(!take(&shard, 5 * MS));
    shard.call();
    shard.beat(5 * MS);
    assert_eq!(moment(shard.alarm()), 5 * MS + AHEAD, "the owner is back");
    drop(shard.close());
}

/// No sum overflows, and the alarm is never set to more than `NEVER`.
#[test]
fn times_near_never_do_not_overflow() {
    for latency in [MS / 5, LATENCY, NEVER - 1, NEVER, u64::MAX] {
        let shard = Watched::with_latency(latency);
        let _timers = [NEVER - 1, NEVER - LATENCY].map(|at| arm(&shard, at));
        for now in [0, NEVER - AHEAD, NEVER - 1, NEVER, u64::MAX - 1, u64::MAX] {
            shard.beat(now);
            shard.rest(now.min(NEVER));
            shard.call();
            assert!(!shard.take_alarm(0));
            assert!(shard.take_alarm(now.max(1)));
            assert!(shard.watch_on(now));
            assert!(shard.watch_on_rarely(now, u32::MAX));
            shard.is_late(now);
        }
        let settings = shard.owner().settings();
        assert!(settings.iter().all(|&at| at <= NEVER), "{settings:?}");
        drop(shard.close());
    }
}
