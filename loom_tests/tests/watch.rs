//! The watchdog: while an owner is awake, its alarm is set, and not too far off. Threads arm
//! timers, record heartbeats, take the alarm and set it again at the same time.
//!
//! In these models all threads end, and the owner is awake at the end: it is stuck. A rescue that
//! is lost shows as an alarm that is not set, is set too late, or is not what the word says.
#![cfg(loom)]

use loom::thread;
use loom_tests::{
    AHEAD, EventLoop, HORIZON, Home, SOON, answer, assert_called, close, expire, model, watched,
    watched_when_called,
};
use tourbillon_shards::{NEVER, Reset, Timer};

/// Returns a shard whose owner, the calling thread, has recorded one heartbeat.
fn begin() -> (Home, EventLoop) {
    let home = watched();
    let owner = EventLoop::new(&home);
    home.beat(0);
    assert_eq!(home.alarm(), AHEAD | 1);
    (home, owner)
}

fn arm(home: &Home, deadline: u64) {
    drop(Timer::once(home, deadline, 5, || {}));
}

/// A remote thread arms a timer while the owner sets its alarm to a later time.
#[test]
fn a_remote_thread_arms_while_the_owner_beats() {
    model!(None, || {
        let (home, _owner) = begin();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, 50)
        });
        home.beat(40);
        remote_thread.join().unwrap();
        assert_called(&home, 40);
        assert_eq!(home.alarm(), (40 + AHEAD) | 1, "it stands");
        close(&home);
    });
}

/// A remote thread resets a timer to an earlier time while the owner sets its alarm to a later
/// time.
#[test]
fn a_remote_thread_moves_a_timer_earlier_while_the_owner_beats() {
    model!(None, || {
        let (home, _owner) = begin();
        let timer = Timer::once(&home, HORIZON, 5, || {});
        let remote_thread = thread::spawn(move || assert_eq!(timer.reset_at(50), Reset::Pending));
        home.beat(40);
        remote_thread.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

/// A remote thread arms a timer and finds the owner asleep, or about to sleep. The owner checks
/// its alarm when it wakes. With `lets_be` the alarm stays set while the owner sleeps.
fn a_remote_thread_arms_while_the_owner_wakes(lets_be: bool) {
    model!(Some(4), move || {
        let (home, mut owner) = begin();
        owner.lets_be = lets_be;
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || {
                home.wake();
                arm(&home, 20);
            }
        });
        owner.park();
        remote_thread.join().unwrap();
        assert_called(&home, owner.now);
        close(&home);
    });
}

#[test]
fn a_remote_thread_arms_while_the_owner_wakes_and_its_alarm_stands() {
    a_remote_thread_arms_while_the_owner_wakes(true);
}

#[test]
fn a_remote_thread_arms_while_the_owner_wakes_and_its_alarm_does_not_stand() {
    a_remote_thread_arms_while_the_owner_wakes(false);
}

/// A remote thread arms a timer, near or far, while another takes the alarm.
fn a_remote_thread_arms_while_the_alarm_is_taken(deadline: u64) {
    model!(Some(4), move || {
        let (home, _owner) = begin();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, deadline)
        });
        let taker = thread::spawn({
            let home = home.clone();
            move || assert!(answer(&home, 41))
        });
        remote_thread.join().unwrap();
        taker.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

#[test]
fn a_remote_thread_arms_a_near_timer_while_the_alarm_is_taken() {
    a_remote_thread_arms_while_the_alarm_is_taken(60);
}

#[test]
fn a_remote_thread_arms_a_far_timer_while_the_alarm_is_taken() {
    a_remote_thread_arms_while_the_alarm_is_taken(HORIZON);
}

/// The owner arms a timer, near or far, while a peer takes its alarm.
fn the_owner_arms_while_the_alarm_is_taken(deadline: u64) {
    model!(Some(4), move || {
        let (home, _owner) = begin();
        let taker = thread::spawn({
            let home = home.clone();
            move || assert!(answer(&home, 41))
        });
        arm(&home, deadline);
        taker.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

#[test]
fn the_owner_arms_a_near_timer_while_the_alarm_is_taken() {
    the_owner_arms_while_the_alarm_is_taken(60);
}

#[test]
fn the_owner_arms_a_far_timer_while_the_alarm_is_taken() {
    the_owner_arms_while_the_alarm_is_taken(HORIZON);
}

#[test]
fn the_owner_moves_a_timer_earlier_while_the_alarm_is_taken() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        let timer = Timer::once(&home, HORIZON, 5, || {});
        let taker = thread::spawn({
            let home = home.clone();
            move || assert!(answer(&home, 41))
        });
        assert_eq!(timer.reset_at(60), Reset::Pending);
        taker.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

/// A third thread holds the shard's lock, which denies it to the owner, to the taker, or to both.
#[test]
fn the_owner_arms_while_the_alarm_is_taken_and_another_has_the_lock() {
    model!(Some(2), || {
        let (home, _owner) = begin();
        let taker = thread::spawn({
            let home = home.clone();
            move || assert!(answer(&home, 41))
        });
        let holder = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        arm(&home, 60);
        taker.join().unwrap();
        holder.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

/// Either the taker of the alarm sees that the owner is awake, or the owner sees, when it wakes,
/// that the alarm was taken. The owner sleeps for long, and a remote thread wakes it. An alarm for
/// the end of that sleep is too late then.
fn the_alarm_is_taken_while_the_owner_wakes(lets_be: bool) {
    model!(Some(3), move || {
        let (home, mut owner) = begin();
        owner.lets_be = lets_be;
        arm(&home, 10 * HORIZON);
        let taker = thread::spawn({
            let home = home.clone();
            move || _ = answer(&home, 41)
        });
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, 60)
        });
        owner.park();
        taker.join().unwrap();
        remote_thread.join().unwrap();
        assert_called(&home, owner.now.max(41));
        close(&home);
    });
}

#[test]
fn the_alarm_is_taken_while_the_owner_wakes_and_lets_it_be() {
    the_alarm_is_taken_while_the_owner_wakes(true);
}

#[test]
fn the_alarm_is_taken_while_the_owner_wakes_and_has_moved_it() {
    the_alarm_is_taken_while_the_owner_wakes(false);
}

#[test]
fn the_alarm_is_taken_while_the_owner_beats() {
    model!(None, || {
        let (home, _owner) = begin();
        let taker = thread::spawn({
            let home = home.clone();
            move || _ = answer(&home, 41)
        });
        home.beat(40);
        taker.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

/// One alarm calls one thread.
#[test]
fn two_take_one_alarm() {
    model!(None, || {
        let (home, _owner) = begin();
        let taker = thread::spawn({
            let home = home.clone();
            move || home.take_alarm(41)
        });
        let here = home.take_alarm(41);
        let there = taker.join().unwrap();
        assert!(here != there, "one of them has it");
        assert_eq!(home.alarm(), NEVER);
        close(&home);
    });
}

/// The alarm goes off again while the thread that took it the first time sets it again.
#[test]
fn two_take_two_alarms() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        arm(&home, 85);
        let takers = [41, 90].map(|now| {
            let home = home.clone();
            thread::spawn(move || answer(&home, now))
        });
        let taken = takers.map(|it| it.join().unwrap());
        assert_ne!(taken, [false, false]);
        assert_called(&home, 90);
        close(&home);
    });
}

/// Returns a shard whose owner, the calling thread, is stuck. A peer has set its alarm again at 41.
fn begin_stuck() -> (Home, EventLoop) {
    let (home, owner) = begin();
    assert!(answer(&home, 41));
    assert_eq!(home.alarm() & 1, 0, "it follows the deadlines");
    (home, owner)
}

/// Lowers the alarm of a stuck owner from two threads: one arms a timer for 60, the other for
/// `other`. Asserts that `is_right` accepts the time to which the alarm is set after that.
fn two_arm_at_a_stuck_owner(other: u64, is_right: impl Fn(u64) -> bool + Sync + Send + 'static) {
    model!(None, move || {
        let (home, _owner) = begin_stuck();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, other)
        });
        arm(&home, 60);
        remote_thread.join().unwrap();
        let at = home.alarm();
        assert!(is_right(at), "set to {at}");
        assert_called(&home, 41);
        close(&home);
    });
}

/// The alarm is set to the earlier deadline.
#[test]
fn two_arm_at_a_stuck_owner_and_the_earlier_counts() {
    two_arm_at_a_stuck_owner(60 + SOON + 2, |at| at == 60);
}

/// The deadlines are so near that the alarm may stay at the later one.
#[test]
fn two_arm_at_a_stuck_owner_for_about_the_same_time() {
    two_arm_at_a_stuck_owner(60 + SOON, |at| (60..=60 + SOON).contains(&at));
}

/// The owner comes back while a remote thread lowers its alarm: the alarm stands, or is earlier.
#[test]
fn a_remote_thread_arms_at_a_stuck_owner_that_comes_back() {
    model!(None, || {
        let (home, _owner) = begin_stuck();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, 60)
        });
        home.beat(50);
        remote_thread.join().unwrap();
        assert_called(&home, 50);
        assert!(home.alarm() >= 60);
        home.beat(58);
        assert_eq!(home.alarm() & 1, 1, "it stands again");
        close(&home);
    });
}

/// A remote thread lowers the alarm of a stuck owner while a peer takes it. If the time that the
/// thread sets has passed, the alarm calls a peer at once.
#[test]
fn a_remote_thread_arms_at_a_stuck_owner_while_the_alarm_is_taken() {
    for deadline in [60, HORIZON] {
        model!(Some(4), move || {
            let (home, _owner) = begin_stuck();
            let remote_thread = thread::spawn({
                let home = home.clone();
                move || arm(&home, deadline)
            });
            let taker = thread::spawn({
                let home = home.clone();
                move || answer(&home, 81)
            });
            remote_thread.join().unwrap();
            taker.join().unwrap();
            assert_called(&home, 81);
            close(&home);
        });
    }
}

/// A thread calls a peer while the owner records a heartbeat: in either order, the alarm is set.
#[test]
fn a_peer_is_called_while_the_owner_beats() {
    model!(None, || {
        let (home, _owner) = begin();
        let caller = thread::spawn({
            let home = home.clone();
            move || home.call()
        });
        home.beat(40);
        caller.join().unwrap();
        assert_called(&home, 40);
        close(&home);
    });
}

/// A call is not lost to a thread that sets the alarm again.
#[test]
fn a_peer_is_called_while_the_alarm_is_set_again() {
    model!(None, || {
        let (home, _owner) = begin();
        assert!(home.take_alarm(41));
        let caller = thread::spawn({
            let home = home.clone();
            move || home.call()
        });
        assert!(home.watch_on(41));
        caller.join().unwrap();
        assert_called(&home, 40);
        assert!(home.alarm() < 40, "it goes off at once");
        close(&home);
    });
}

/// Returns a shard that no peer watches yet. Its owner, the calling thread, has done all that sets
/// an alarm on a watched shard.
fn begin_unwatched() -> (Home, EventLoop) {
    let home = watched_when_called();
    let mut owner = EventLoop::new(&home);
    home.beat(0);
    arm(&home, 20);
    owner.park();
    expire(&home, owner.now);
    assert!(!home.take_alarm(NEVER));
    assert_eq!(home.alarm(), NEVER);
    assert_eq!(home.owner().alarm.is_set_to(), NEVER, "it costs nothing");
    (home, owner)
}

/// The owner calls a peer for the first time, while a remote thread arms a timer. That thread may
/// have found that no peer watches, and the called peer may come immediately.
#[test]
fn a_remote_thread_arms_while_the_owner_calls_for_the_first_time() {
    model!(Some(3), || {
        let (home, _owner) = begin_unwatched();
        let taker = thread::spawn({
            let home = home.clone();
            move || answer(&home, 30)
        });
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, 50)
        });
        home.call();
        remote_thread.join().unwrap();
        if !taker.join().unwrap() {
            assert!(home.owner().alarm.is_set_to() < 20, "it goes off at once");
            assert!(answer(&home, 30));
        }
        assert_called(&home, 30);
        home.beat(69);
        assert_called(&home, 69);
        close(&home);
    });
}

/// Another thread makes the first call, while the owner sleeps and wakes. From then on the owner
/// keeps its alarm set.
#[test]
fn a_peer_is_called_for_the_first_time_while_the_owner_wakes() {
    model!(Some(3), || {
        let (home, mut owner) = begin_unwatched();
        arm(&home, 10 * HORIZON);
        let caller = thread::spawn({
            let home = home.clone();
            move || {
                home.call();
                _ = answer(&home, 40);
            }
        });
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || arm(&home, 60)
        });
        owner.park();
        caller.join().unwrap();
        remote_thread.join().unwrap();
        assert_called(&home, owner.now.max(40));
        close(&home);
    });
}

/// The alarm goes off by the kernel's clock, but by the clocks of two called peers it is too early.
#[test]
fn two_come_to_an_alarm_that_went_off_early() {
    model!(None, || {
        let (home, _owner) = begin();
        home.owner().alarm.go_off();
        let peer = thread::spawn({
            let home = home.clone();
            move || assert!(!answer(&home, 39))
        });
        assert!(!answer(&home, 40));
        peer.join().unwrap();
        assert_called(&home, 0);
        close(&home);
    });
}
