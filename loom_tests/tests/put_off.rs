//! Alarms that no thread answers when they go off: put off, set again without regard to deadlines,
//! and dismissed.
//!
//! As in `watch.rs`, all threads end, and the owner is awake at the end. The alarm of a watched
//! owner is set, however far its deadlines are. The alarm of an owner that has dismissed it is
//! not set.
#![cfg(loom)]

use loom::thread;
use loom_tests::{
    AHEAD, EventLoop, HORIZON, Home, SOON, answer, answer_rarely, answer_without_rescue,
    assert_dismissed, assert_set, close, model, watched, watched_when_called,
};
use tourbillon_shards::{NEVER, Timer};

/// Returns a shard whose owner, the calling thread, has recorded one heartbeat.
fn begin() -> (Home, EventLoop) {
    let home = watched();
    let owner = EventLoop::new(&home);
    home.beat(0);
    (home, owner)
}

fn arm(home: &Home, deadline: u64) {
    drop(Timer::once(home, deadline, 5, || {}));
}

/// Runs `f` on another thread.
fn beside<R: 'static>(home: &Home, f: impl FnOnce(&Home) -> R + 'static) -> thread::JoinHandle<R> {
    let home = home.clone();
    thread::spawn(move || f(&home))
}

/// An alarm that is put off goes off again, even if a remote thread arms a timer at the same
/// time.
#[test]
fn a_remote_thread_arms_while_the_alarm_is_put_off() {
    for deadline in [60, HORIZON] {
        model!(None, move || {
            let (home, _owner) = begin();
            let remote_thread = beside(&home, move |home| arm(home, deadline));
            assert!(home.put_off(41, 1));
            remote_thread.join().unwrap();
            assert_set(&home, 41 + AHEAD);
            close(&home);
        });
    }
}

/// If a thread puts off the alarm of a stuck owner with `looks` of zero, the alarm goes off again
/// as soon as possible. This holds even if the owner lowers the alarm at the same time.
#[test]
fn the_owner_arms_while_the_alarm_is_put_off_for_no_look() {
    model!(None, || {
        let (home, _owner) = begin();
        assert!(answer(&home, 41));
        let putter = beside(&home, |home| _ = home.put_off(81, 0));
        arm(&home, 60);
        putter.join().unwrap();
        assert_set(&home, 81 + SOON);
        close(&home);
    });
}

/// The owner comes back while another thread puts its alarm off: one of the two threads sees the
/// other's setting.
#[test]
fn the_owner_beats_while_the_alarm_is_put_off() {
    model!(None, || {
        let (home, _owner) = begin();
        let putter = beside(&home, |home| _ = home.put_off(41, 10));
        home.beat(40);
        putter.join().unwrap();
        assert_set(&home, 40 + AHEAD);
        close(&home);
    });
}

/// The owner wakes, and finds its alarm farther off than it has to be.
#[test]
fn the_owner_wakes_while_the_alarm_is_put_off() {
    model!(Some(4), || {
        let (home, mut owner) = begin();
        owner.lets_be = true;
        // The owner's heartbeat finds the alarm near.
        arm(&home, 40);
        let putter = beside(&home, |home| _ = home.put_off(41, 1));
        owner.park();
        putter.join().unwrap();
        assert_set(&home, owner.now.max(41) + AHEAD);
        close(&home);
    });
}

/// One thread takes the alarm while another puts it off: exactly one of them has it.
#[test]
fn one_takes_the_alarm_while_another_puts_it_off() {
    model!(None, || {
        let (home, _owner) = begin();
        let taker = beside(&home, |home| answer(home, 41));
        let is_put_off = home.put_off(41, 1);
        let is_taken = taker.join().unwrap();
        assert!(is_put_off != is_taken, "one of them has it");
        assert_set(&home, 41 + AHEAD);
        close(&home);
    });
}

/// A remote thread arms a timer while another thread has taken the alarm, so that no alarm is
/// set: the alarm is then set in time.
#[test]
fn a_remote_thread_arms_while_the_alarm_is_set_again_rarely() {
    for deadline in [60, HORIZON] {
        model!(Some(4), move || {
            let (home, _owner) = begin();
            let remote_thread = beside(&home, move |home| arm(home, deadline));
            let taker = beside(&home, |home| assert!(answer_rarely(home, 41)));
            remote_thread.join().unwrap();
            taker.join().unwrap();
            assert_set(&home, 41 + AHEAD);
            close(&home);
        });
    }
}

/// Either the thread that sets the alarm again sees that the owner is awake, or the owner sees,
/// when it wakes, that the alarm was taken.
fn the_alarm_is_set_again_while_the_owner_wakes(answer: fn(&Home, u64) -> bool) {
    model!(Some(4), move || {
        let (home, mut owner) = begin();
        owner.lets_be = true;
        arm(&home, 38);
        // This timer wakes the owner if the taker was quicker.
        arm(&home, 45);
        let taker = beside(&home, move |home| _ = answer(home, 41));
        owner.park();
        taker.join().unwrap();
        assert_set(&home, owner.now.max(41) + AHEAD);
        close(&home);
    });
}

#[test]
fn the_alarm_is_set_again_rarely_while_the_owner_wakes() {
    the_alarm_is_set_again_while_the_owner_wakes(answer_rarely);
}

#[test]
fn the_alarm_is_set_again_without_a_rescue_while_the_owner_wakes() {
    the_alarm_is_set_again_while_the_owner_wakes(answer_without_rescue);
}

/// The owner ends the watch while another thread uses the alarm: the alarm is not set after that.
fn dismisses_while(other: impl Fn(&Home) + Clone + Sync + Send + 'static) {
    model!(Some(4), move || {
        let (home, _owner) = begin();
        let other = other.clone();
        let other = beside(&home, move |home| other(home));
        home.dismiss();
        other.join().unwrap();
        assert_dismissed(&home);
        close(&home);
    });
}

#[test]
fn the_owner_dismisses_its_alarm_while_it_is_taken() {
    dismisses_while(|home| _ = answer(home, 41));
}

#[test]
fn the_owner_dismisses_its_alarm_while_it_is_set_again_rarely() {
    dismisses_while(|home| _ = answer_rarely(home, 41));
}

#[test]
fn the_owner_dismisses_its_alarm_while_it_is_put_off() {
    dismisses_while(|home| _ = home.put_off(41, 1));
}

#[test]
fn the_owner_dismisses_its_alarm_while_a_remote_thread_arms() {
    dismisses_while(|home| arm(home, 12));
}

/// An owner blocks in place twice: the end of the first call does not end the second.
#[test]
fn the_owner_calls_again_while_the_alarm_of_its_last_call_is_taken() {
    model!(Some(4), || {
        let home = watched_when_called();
        let _owner = EventLoop::new(&home);
        home.call();
        let taker = beside(&home, |home| answer(home, 30));
        home.dismiss();
        home.call();
        let is_taken = taker.join().unwrap();
        let at = home.owner().alarm.is_set_to();
        assert_eq!(at, home.alarm(), "the alarm is what the word says");
        // The second call's alarm stands, unless the taker took that one.
        assert!(at < 30 || (is_taken && at != NEVER), "set to {at}");
        close(&home);
    });
}
