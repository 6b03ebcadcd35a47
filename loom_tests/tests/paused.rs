//! The watch on a clock that is paused and resumed, while alarms are taken and set. Once the clock
//! runs again, the alarm of a stuck owner is set, and is what the word says.
//!
//! The source is the runtime's file `src/engine/watchdog/alarm.rs`. The clock is a flag under a
//! mutex, as the runtime's is. Its time does not move: a moment that has passed is an alarm that
//! goes off.
#![cfg(loom)]

#[path = "../../src/engine/watchdog/alarm.rs"]
mod alarm;

use std::sync::Arc as Plain;

use loom::{sync::Mutex, thread};
use loom_tests::{AHEAD, EventLoop, Home, assert_called, close, model, watched};
use tourbillon_shards::{NEVER, Timer};

/// A clock that may be paused.
#[derive(Clone)]
struct Clock(Plain<Mutex<bool>>);

impl Clock {
    fn is_paused(&self) -> bool {
        *self.0.lock().unwrap()
    }

    fn pause(&self) {
        *self.0.lock().unwrap() = true;
    }

    /// Resumes the clock, as the runtime does.
    fn resume(&self, home: &Home) {
        alarm::restart(|| *self.0.lock().unwrap() = false, [&**home]);
    }
}

/// Returns a shard whose owner, the calling thread, has recorded one heartbeat, and its clock.
fn begin() -> (Home, Clock) {
    let (home, clock) = (watched(), Clock(Plain::new(Mutex::new(false))));
    let by = clock.clone();
    let sets = home.owner().sets_alarm.set(Box::new(move |timer, at| {
        let kernel = || (!by.is_paused()).then_some(at);
        alarm::set(kernel, |moment| timer.set(moment.unwrap_or(NEVER)));
    }));
    assert!(sets.is_ok());
    let _owner = EventLoop::new(&home);
    home.beat(0);
    assert_eq!(home.alarm(), AHEAD | 1);
    (home, clock)
}

/// A peer takes the alarm of a stuck owner while the clock is paused and resumed.
#[test]
fn an_alarm_is_taken_while_the_clock_is_paused() {
    model!(None, || {
        let (home, clock) = begin();
        let peer = thread::spawn({
            let (home, clock) = (home.clone(), clock.clone());
            move || {
                if alarm::take(&home, 41, || clock.is_paused()) {
                    home.watch_on(41);
                }
            }
        });
        clock.pause();
        clock.resume(&home);
        peer.join().unwrap();
        assert_called(&home, 41);
        close(&home);
    });
}

/// Calls `step` while the clock is paused and resumed. The owner is in its loop at `now`.
fn the_owner_sets_its_alarm(now: u64, step: fn(&Home)) {
    model!(None, move || {
        let (home, clock) = begin();
        let pauses = thread::spawn({
            let (home, clock) = (home.clone(), clock.clone());
            move || {
                clock.pause();
                clock.resume(&home);
            }
        });
        step(&home);
        pauses.join().unwrap();
        assert_called(&home, now);
        close(&home);
    });
}

#[test]
fn an_alarm_is_put_off_while_the_clock_is_paused() {
    the_owner_sets_its_alarm(40, |home| home.beat(40));
}

/// The owner and the thread that resumes the clock both write 1, so the word does not tell one from
/// the other.
#[test]
fn a_peer_is_called_while_the_clock_is_paused() {
    the_owner_sets_its_alarm(40, |home| home.call());
}

/// A peer watches a stuck owner, and a remote thread arms a timer before the alarm, while the clock
/// is resumed.
#[test]
fn an_alarm_is_lowered_while_the_clock_is_resumed() {
    model!(Some(3), || {
        let (home, clock) = begin();
        assert!(home.take_alarm(41));
        home.watch_on(41);
        clock.pause();
        let arms = thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 50, 5, || {}))
        });
        clock.resume(&home);
        arms.join().unwrap();
        assert_called(&home, 41);
        close(&home);
    });
}
