//! The alarm of a watched shard: what it is set to, and when.

use std::sync::Arc;

use crate::{
    common::{turn, units::MS},
    watched::{BEAT, GRACE, LOOK, SOON, Watched, arm, moment},
};
use tourbillon_shards::{Cancel, Coming, NEVER, Reset, Shard, Timer};

/// A time longer than [`GRACE`] and all other waits.
const LONG_GRACE: u64 = 100 * MS;
/// The next two are the values in `src/park/watchdog.rs`.
const MARGIN: u64 = MS;
/// The slack of an alarm that another thread than the owner has set.
const SLACK: u64 = 150_000;

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
            assert!(!shard.is_late(now) || now >= NEVER);
        }
        assert_eq!(moment(shard.alarm()), NEVER);
    }
    assert_eq!(shard.owner().settings(), []);
    drop(shard.close());
}

#[test]
fn an_owner_that_is_watched_when_called_has_no_alarm_before() {
    let shard = Arc::new(Shard::watched_when_called(Watched::new(), GRACE));
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
    assert!(shard.watch_on(MS, 0));
    assert_eq!(shard.owner().settings(), [MS + SOON]);
    shard.beat(MS);
    assert_eq!(shard.owner().settings(), [MS + BEAT]);
    drop(shard.close());
}

#[test]
fn a_heartbeat_sets_the_alarm_and_the_next_ones_keep_it() {
    let shard = Watched::shard();
    assert_eq!(moment(shard.alarm()), NEVER);
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [BEAT]);
    for now in (0..=BEAT - MARGIN).step_by(1_000) {
        shard.beat(now);
    }
    assert_eq!(shard.owner().settings(), []);
    let now = BEAT - MARGIN + 2;
    shard.beat(now);
    assert_eq!(shard.owner().settings(), [now + BEAT]);
    assert_eq!(moment(shard.alarm()), now + BEAT);
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
    let most = (steps * step / (BEAT - MARGIN)) as usize + 1;
    assert!((1..=most).contains(&settings), "{settings} settings");
    drop(shard.close());
}

#[test]
fn an_awake_owner_does_not_set_the_alarm_to_its_deadlines() {
    for local in [true, false] {
        let shard = Watched::shard();
        shard.owner().set_local(local);
        let _far = arm(&shard, 100 * MS);
        assert_eq!(shard.owner().settings(), [100 * MS + GRACE]);
        shard.beat(0);
        assert_eq!(shard.owner().settings(), [BEAT], "not that far off");
        let _near = arm(&shard, MS / 2);
        assert_eq!(shard.owner().settings(), [], "nor that near");
        shard.beat(MS / 4);
        assert_eq!(shard.owner().settings(), []);
        drop(shard.close());
    }
}

#[test]
fn arming_a_timer_lowers_an_alarm_that_is_much_later() {
    for local in [true, false] {
        let shard = Watched::shard();
        shard.owner().set_local(local);
        let far = arm(&shard, 100 * MS);
        let near = arm(&shard, 10 * MS);
        let settings = shard.owner().settings();
        assert_eq!(settings, [100 * MS, 10 * MS].map(|at| at + GRACE));
        let nearer = arm(&shard, 10 * MS - SLACK);
        let settings = shard.owner().settings();
        assert_eq!(settings, [], "it is late by no more than that");
        let at = 10 * MS - SLACK - 2;
        assert_eq!(nearer.reset_at(at), Reset::Waiting);
        assert_eq!(shard.owner().settings(), [at + GRACE], "moved earlier");
        assert_eq!(near.cancel(), Cancel::Cancelled);
        drop((far, near, nearer));
        drop(shard.close());
    }
}

#[test]
fn remote_threads_lower_the_alarm_of_an_awake_owner_only() {
    let shard = Watched::shard();
    shard.owner().set_local(false);
    let first = arm(&shard, 20 * MS);
    assert_eq!(shard.owner().settings(), [20 * MS + GRACE]);
    assert_eq!(first.reset_at(10 * MS), Reset::Waiting);
    assert_eq!(shard.owner().settings(), [10 * MS + GRACE]);
    turn(&shard, 0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, 10 * MS);
    shard.rest(until);
    assert_eq!(shard.owner().settings(), [until + BEAT]);
    let _second = arm(&shard, MS);
    assert_eq!(shard.owner().settings(), [], "the owner is woken for it");
    shard.resume();
    shard.beat(0);
    assert_eq!(shard.owner().settings(), [BEAT]);
    drop(shard.close());
}

#[test]
fn a_sleeping_owner_gets_some_time_after_its_deadline() {
    for (grace, late) in [(GRACE, BEAT), (2 * BEAT, 2 * BEAT)] {
        let shard = Watched::with_grace(grace);
        shard.beat(0);
        shard.owner().settings();
        shard.rest(50 * MS);
        assert_eq!(shard.owner().settings(), [50 * MS + late]);
        shard.rest(50 * MS);
        assert_eq!(shard.owner().settings(), []);
        shard.rest(NEVER);
        assert_eq!(shard.owner().settings(), [NEVER], "it is not set");
        assert_eq!(moment(shard.alarm()), NEVER);
        shard.beat(60 * MS);
        assert_eq!(shard.owner().settings(), [60 * MS + BEAT]);
    }
}

#[test]
fn an_owner_that_sleeps_briefly_keeps_its_alarm() {
    let shard = Watched::shard();
    shard.beat(0);
    shard.rest(0);
    assert_eq!(shard.owner().settings(), [BEAT]);
    shard.rest(2 * MARGIN);
    assert_eq!(shard.owner().settings(), [], "2 ms are left");
    shard.beat(2 * MARGIN);
    assert_eq!(
        shard.owner().settings(),
        [],
        "nor does who is awake push it"
    );
    shard.rest(2 * MARGIN + 1000);
    assert_eq!(shard.owner().settings(), [2 * MARGIN + 1000 + BEAT]);
    // If another thread has set it, it goes off soon after the deadline.
    shard.beat(10 * MS);
    assert!(take(&shard, 10 * MS + BEAT));
    assert!(shard.watch_on(13 * MS, 4));
    shard.owner().settings();
    shard.rest(14 * MS);
    assert_eq!(shard.owner().settings(), [14 * MS + BEAT]);
    assert!(take(&shard, 14 * MS + BEAT));
    shard.rest(14 * MS);
    assert_eq!(shard.owner().settings(), [14 * MS + BEAT], "it was not set");
    // A long grace has the equal effect.
    let shard = Watched::with_grace(LONG_GRACE);
    shard.beat(0);
    shard.owner().settings();
    shard.rest(MS);
    assert_eq!(shard.owner().settings(), [MS + LONG_GRACE]);
}

/// Returns the latency of a peer that comes `after` ns after the alarm.
fn coming(after: u64) -> Coming {
    let waits = 30_000;
    Coming { after, waits }
}

#[test]
fn a_slow_peer_is_called_earlier() {
    let all = GRACE + 30_000;
    for (after, by) in [
        (0, 0),
        (20_000, 40_000),
        (50_000, 80_000),
        (GRACE, all),
        (MS, all),
    ] {
        let shard = Watched::shard();
        shard.beat(0);
        let deadline = BEAT + LOOK / 2;
        let _timer = arm(&shard, deadline);
        assert!(take(&shard, BEAT));
        shard.owner().settings();
        assert!(shard.watch_on_sooner(BEAT, 1, coming(after)));
        let at = deadline + GRACE - by;
        assert_eq!(shard.owner().settings(), [at]);
        assert!(take(&shard, at));
        assert!(shard.watch_on_sooner(at, 1, coming(after)));
        let awaited = shard.awaited(at, coming(after));
        if at < deadline {
            assert_eq!(awaited, Some((deadline, shard.alarm())));
        } else {
            assert_eq!(awaited, None);
            assert!(shard.overdue(at) >= deadline, "it is taken then");
        }
        drop(shard.close());
    }
    let shard = Watched::with_grace(LONG_GRACE);
    shard.beat(0);
    let _timer = arm(&shard, BEAT);
    assert!(take(&shard, 101 * MS));
    shard.owner().settings();
    assert!(shard.watch_on_sooner(101 * MS, u32::MAX, coming(NEVER)));
    let at = BEAT + LONG_GRACE - SOON;
    assert_eq!(shard.owner().settings(), [at - 30_000]);
    assert_eq!(shard.awaited(at - 30_001, coming(NEVER)), None, "too early");
    let awaited = Some((at, shard.alarm()));
    assert_eq!(shard.awaited(at - 30_000, coming(NEVER)), awaited);
    assert_eq!(shard.awaited(at - 1, coming(NEVER)), awaited);
    assert_eq!(shard.awaited(at, coming(NEVER)), None, "it is there");
    assert!(shard.overdue(at) >= BEAT, "it is taken then");
    drop(shard.close());
}

#[test]
fn no_peer_waits_for_an_owner_that_is_back() {
    let shard = Watched::shard();
    shard.beat(0);
    let _timer = arm(&shard, BEAT);
    assert_eq!(shard.awaited(BEAT - 1, coming(MS)), None);
    shard.call();
    assert_eq!(
        shard.awaited(BEAT - 1, coming(MS)),
        None,
        "another peer comes"
    );
    shard.dismiss();
    assert_eq!(shard.awaited(BEAT - 1, coming(MS)), None);
    drop(shard.close());
}

#[test]
fn a_peer_that_waited_takes_the_alarm_if_no_other_has() {
    let shard = Watched::shard();
    shard.beat(0);
    let timer = arm(&shard, BEAT + LOOK / 2);
    let mut now = BEAT;
    let wait = |now| {
        assert!(take(&shard, now));
        assert!(shard.watch_on_sooner(now, 1, coming(MS)));
        shard.alarm()
    };
    let word = wait(now);
    assert!(shard.take_alarm_at(word), "it need not have gone off");
    assert!(!shard.take_alarm_at(word), "but is taken once");
    assert!(shard.watch_on(now, 1));
    now = moment(shard.alarm());

    let word = wait(now);
    assert!(take(&shard, now + LOOK), "another was called");
    assert!(!shard.take_alarm_at(word));
    assert!(shard.watch_on(now, 1));
    now = moment(shard.alarm());

    let word = wait(now);
    shard.beat(now);
    assert!(!shard.take_alarm_at(word), "the owner is back");
    now = moment(shard.alarm());

    let word = wait(now);
    shard.call();
    assert!(!shard.take_alarm_at(word), "another peer is called");
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    drop(shard.close());
}

#[test]
fn an_alarm_is_taken_once_and_not_before_its_time() {
    let shard = Watched::shard();
    assert!(!take(&shard, NEVER), "it is not set");
    shard.beat(0);
    shard.owner().settings();
    assert!(!take(&shard, BEAT - 1));
    assert_eq!(
        shard.owner().settings(),
        [BEAT],
        "it may have gone off early"
    );
    assert!(take(&shard, BEAT));
    assert!(!take(&shard, BEAT));
    assert_eq!(moment(shard.alarm()), NEVER);
    assert!(shard.watch_on(BEAT, 1));
    assert_eq!(shard.owner().settings(), [BEAT + LOOK]);
    drop(shard.close());
}

#[test]
fn a_rescuer_sets_the_alarm_to_soon_after_the_next_deadline() {
    let shard = Watched::shard();
    shard.beat(0);
    let mut now = BEAT;
    let look = |now, reach| {
        assert!(take(&shard, now));
        shard.owner().settings();
        assert!(shard.watch_on(now, reach));
        let settings = shard.owner().settings();
        assert_eq!(settings.len(), 1);
        settings[0]
    };
    for (reach, off) in [(1, LOOK), (4, 4 * LOOK), (0, SOON)] {
        let at = look(now, reach);
        assert_eq!(at, now + off, "there is no deadline");
        now = at;
    }
    let timer = arm(&shard, now + LOOK / 2);
    let at = look(now, 1);
    assert_eq!(at, now + LOOK / 2 + GRACE);
    now = at;
    assert_eq!(look(now, 4), now + SOON, "it has passed");
    now += SOON;
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    let _timer = arm(&shard, now + 2 * LOOK);
    assert_eq!(look(now, 1), now + LOOK, "not that far off");
    now += LOOK;
    assert_eq!(look(now, 4), now + LOOK + GRACE);
    now += LOOK + GRACE;
    assert_eq!(look(now, 0), now + SOON);
    drop(shard.close());
}

#[test]
fn a_rescuer_limits_the_alarm_if_the_next_deadline_is_far() {
    for local in [true, false] {
        let shard = Watched::shard();
        shard.beat(0);
        assert!(take(&shard, BEAT));
        shard.owner().set_local(local);
        let _timer = arm(&shard, 100 * BEAT);
        assert_eq!(moment(shard.alarm()), 100 * BEAT + GRACE);
        assert!(shard.watch_on(BEAT, 1));
        assert_eq!(moment(shard.alarm()), BEAT + LOOK);
        assert_eq!(shard.owner().settings().last(), Some(&(BEAT + LOOK)));
        drop(shard.close());
    }
}

#[test]
fn an_owner_that_sleeps_sets_its_alarm_itself() {
    let shard = Watched::shard();
    shard.beat(0);
    let until = shard.sleep_until().unwrap();
    assert_eq!(until, NEVER);
    assert!(take(&shard, BEAT), "it was let be");
    assert!(!shard.is_late(BEAT));
    assert!(!shard.watch_on(BEAT, 1));
    assert_eq!(moment(shard.alarm()), NEVER);
    shard.resume();
    shard.beat(2 * BEAT);
    assert_eq!(moment(shard.alarm()), 3 * BEAT);
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
    assert!(take(&shard, 5 * MS));
    assert!(!take(&shard, 5 * MS));
    shard.call();
    shard.beat(5 * MS);
    assert_eq!(moment(shard.alarm()), 5 * MS + BEAT, "the owner is back");
    drop(shard.close());
}

/// No sum overflows, and the alarm is never set to more than `NEVER`.
#[test]
fn times_near_never_do_not_overflow() {
    for grace in [0, GRACE, NEVER - 1, NEVER, u64::MAX] {
        let shard = Watched::with_grace(grace);
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

/// A rescue takes a timer now if it is overdue by more than a long grace.
#[test]
fn a_rescued_timer_is_taken_at_the_time_of_the_rescue() {
    let shard = Watched::with_grace(LONG_GRACE);
    let deadlines = [MS, 2 * MS, 50 * MS];
    let _timers = deadlines.map(|at| Timer::once(&shard, at, at, || ()));
    let now = 10 * MS + LONG_GRACE;
    let until = shard.overdue(now);
    let mut due = Vec::new();
    assert_eq!(
        shard.expire_until(until, now, usize::MAX, &mut due).count,
        2
    );
    for due in due {
        assert!(due.deadline().is_some_and(|at| at <= until));
        assert_eq!(due.taken().elapsed(now), 0);
        due.run(|| now);
    }
    assert_eq!(
        shard.next_deadline(),
        50 * MS,
        "its owner may still come to it"
    );
    shard.close();
}
