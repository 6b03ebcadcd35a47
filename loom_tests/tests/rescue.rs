//! The rescue: an owner comes back while another thread runs its timers. Each timer runs once. For
//! a timer that has not run, and for one that is armed or recurs meanwhile, the alarm is set.
#![cfg(loom)]

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};
use loom_tests::{
    AHEAD, EventLoop, HORIZON, Home, Probe, answer, assert_called, close, expire, model, park,
    resets, run, watched,
};
use tourbillon_sched::Searchers;
use tourbillon_shards::{Cancel, Outcome, Reset, Timer};

/// Returns a shard whose owner, the calling thread, has recorded one heartbeat.
fn begin() -> (Home, EventLoop) {
    let home = watched();
    let owner = EventLoop::new(&home);
    home.beat(0);
    (home, owner)
}

/// Starts a thread that answers the alarm at `now`.
fn answers(home: &Home, now: u64) -> thread::JoinHandle<bool> {
    let home = home.clone();
    thread::spawn(move || answer(&home, now))
}

/// Acts as an owner that comes back: records a heartbeat before anything else, and then runs the
/// due timers.
fn come_back(home: &Home, now: u64) {
    home.beat(now);
    expire(home, now);
}

/// A timer is late, and both the owner and a rescuer try to take it.
#[test]
fn the_owner_comes_back() {
    model!(None, || {
        let (home, _owner) = begin();
        let probe = Probe::new();
        drop(Timer::once(&home, 20, 5, probe.once()));
        let rescuer = answers(&home, 41);
        come_back(&home, 41);
        rescuer.join().unwrap();
        // A rescuer that held the lock runs the timer; otherwise the owner, which was denied, comes
        // again.
        expire(&home, 41);
        assert_eq!((probe.runs(), probe.drops()), (1, 1));
        assert_called(&home, 41);
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 1);
    });
}

/// The owner comes back to a late recurring timer: the owner or the rescuer runs it and re-arms it.
#[test]
fn the_owner_comes_back_to_a_recurring_timer() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        let probe = Probe::new();
        let timer = Timer::recurring(&home, 20, 50, probe.recurring());
        let rescuer = answers(&home, 41);
        come_back(&home, 41);
        rescuer.join().unwrap();
        expire(&home, 41);
        assert_eq!((probe.runs(), probe.drops()), (1, 0));
        assert_eq!(timer.deadline(), Some(70));
        assert!(home.next_deadline() <= 70);
        assert_called(&home, 41);
        close(&home);
    });
}

/// A late timer is cancelled while the owner and a rescuer try to take it.
#[test]
fn a_late_timer_is_cancelled_while_the_owner_comes_back() {
    model!(Some(2), || {
        let (home, _owner) = begin();
        let probe = Probe::new();
        let timer = Timer::once(&home, 20, 5, probe.once());
        let canceller = thread::spawn(move || timer.cancel());
        let rescuer = answers(&home, 41);
        come_back(&home, 41);
        rescuer.join().unwrap();
        let cancelled = canceller.join().unwrap() == Cancel::Cancelled;
        expire(&home, 41);
        assert_eq!(probe.runs(), usize::from(!cancelled));
        assert_eq!(probe.drops(), 1);
        assert_called(&home, 41);
        close(&home);
        assert_eq!(home.owner().overs(), 1);
    });
}

/// A late timer is reset while the owner and a rescuer try to take it.
#[test]
fn a_late_timer_is_moved_while_the_owner_comes_back() {
    model!(Some(2), || {
        let (home, _owner) = begin();
        let probe = Probe::new();
        let timer = Arc::new(Timer::once(&home, 20, 5, probe.once()));
        let mover = resets(&timer, 50);
        let rescuer = answers(&home, 41);
        come_back(&home, 41);
        rescuer.join().unwrap();
        let moved = mover.join().unwrap() == Reset::Pending;
        expire(&home, 41);
        assert_eq!(probe.runs(), usize::from(!moved));
        if moved {
            assert!(home.next_deadline() <= 50);
        }
        assert_called(&home, 41);
        expire(&home, 50);
        assert_eq!((probe.runs(), probe.drops()), (1, 1));
        close(&home);
    });
}

/// The owner arms a timer that is already late, while it is rescued: the timer runs, or the alarm
/// is set.
#[test]
fn the_owner_arms_a_late_timer_while_it_is_rescued() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        let (probe, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 20, 5, other.once()));
        let rescuer = answers(&home, 41);
        drop(Timer::once(&home, 15, 5, probe.once()));
        assert!(rescuer.join().unwrap());
        if probe.runs() + other.runs() < 2 {
            assert_called(&home, 41);
            assert!(answer(&home, home.alarm().max(41)));
        }
        for probe in [probe, other] {
            assert_eq!((probe.runs(), probe.drops()), (1, 1));
        }
        close(&home);
    });
}

/// A remote thread arms a late timer. The owner comes back, but the rescuer holds the lock.
#[test]
fn a_remote_thread_arms_a_late_timer_while_the_owner_comes_back() {
    model!(Some(2), || {
        let (home, _owner) = begin();
        let (probe, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 20, 5, other.once()));
        let remote_thread = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 25, 5, probe.once()))
        });
        let rescuer = answers(&home, 41);
        come_back(&home, 41);
        remote_thread.join().unwrap();
        rescuer.join().unwrap();
        assert_called(&home, 41);
        expire(&home, 41);
        for probe in [probe, other] {
            assert_eq!((probe.runs(), probe.drops()), (1, 1));
        }
        close(&home);
    });
}

/// The owner goes to sleep while it is rescued: it does not sleep past the timers that are left.
fn the_owner_parks_while_it_is_rescued(lets_be: bool) {
    model!(Some(3), move || {
        let (home, mut owner) = begin();
        owner.lets_be = lets_be;
        let (probe, other) = (Probe::new(), Probe::new());
        drop(Timer::once(&home, 20, 5, probe.once()));
        drop(Timer::once(&home, 50, 5, other.once()));
        let rescuer = answers(&home, 41);
        owner.run_until(|| other.runs() == 1);
        assert_eq!(owner.now, 50);
        rescuer.join().unwrap();
        assert_eq!(probe.runs(), 1);
        assert_called(&home, owner.now);
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 2);
    });
}

#[test]
fn the_owner_parks_while_it_is_rescued_and_lets_the_alarm_be() {
    the_owner_parks_while_it_is_rescued(true);
}

#[test]
fn the_owner_parks_while_it_is_rescued_and_moves_the_alarm() {
    the_owner_parks_while_it_is_rescued(false);
}

/// A rescuer re-arms a recurring timer while the owner parks.
#[test]
fn the_owner_parks_while_a_recurring_timer_is_rescued() {
    model!(Some(2), || {
        let (home, mut owner) = begin();
        let probe = Probe::new();
        drop(Timer::once(&home, 15, 5, || {}));
        drop(Timer::recurring(&home, 20, 40, probe.recurring()));
        let rescuer = answers(&home, 41);
        owner.run_until(|| probe.runs() == 2);
        assert_eq!(owner.now, 60);
        rescuer.join().unwrap();
        assert_called(&home, owner.now);
        close(&home);
    });
}

/// The owner sleeps until its next deadline, and does not wake when that has passed: a peer takes
/// and runs the due timers.
#[test]
fn an_owner_that_oversleeps_is_rescued() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        let probe = Probe::new();
        let mut remote_thread = Some(thread::spawn({
            let home = home.clone();
            move || drop(Timer::once(&home, 50, 5, || {}))
        }));
        drop(Timer::once(&home, 45, 5, probe.once()));
        // The published deadline is still that of this timer.
        assert_eq!(Timer::once(&home, 5, 5, || {}).cancel(), Cancel::Cancelled);
        expire(&home, 0);
        home.beat(0);
        let searchers = Searchers::new(1);
        searchers.sleep(
            &*home,
            false,
            || false,
            |until| {
                home.rest(until);
                remote_thread.take().unwrap().join().unwrap();
                let at = home.owner().alarm.is_set_to();
                assert!(at <= (45 + AHEAD) | 1 && at == home.alarm());
                let mut due = Vec::new();
                assert!(home.take_alarm(at));
                assert!(!home.parker().is_awake() && home.is_late(at));
                while home.expire(at, usize::MAX, &mut due).more {
                    thread::yield_now();
                }
                assert!(home.watch_on(at), "it has no core");
                assert_called(&home, at);
                due.into_iter().for_each(|due| drop(run(due, at)));
                assert_eq!(probe.runs(), 1);
            },
        );
        if let Some(remote_thread) = remote_thread {
            remote_thread.join().unwrap();
        }
        home.beat(HORIZON);
        assert_called(&home, HORIZON);
        close(&home);
    });
}

/// Takes the event of the owner's eventfd, which stands for its timerfd, too, and calls `taken` if
/// there is one. Then wakes the owner if it may sleep.
fn take_wake(home: &Home, taken: impl FnOnce()) {
    let eventfd = &home.owner().eventfd;
    if eventfd.take() {
        taken();
        if home.parker().misses_wake() {
            eventfd.write();
        }
    }
}

/// The owner's timerfd has fired, and a rescuer takes the event while the owner goes to sleep. The
/// owner is woken, or finds that its timerfd is not set.
#[test]
fn a_rescuer_takes_the_event_of_the_timerfd() {
    model!(None, || {
        let (home, _owner) = begin();
        drop(Timer::once(&home, 10 * HORIZON, 5, || {}));
        let is_set = Arc::new(AtomicBool::new(true));
        home.owner().eventfd.write();
        let rescuer = thread::spawn({
            let (home, is_set) = (home.clone(), is_set.clone());
            move || take_wake(&home, || is_set.store(false, Ordering::Relaxed))
        });
        expire(&home, 0);
        let sleep = |_| {
            if is_set.load(Ordering::Relaxed) {
                home.owner().eventfd.sleep();
            }
        };
        Searchers::new(1).sleep(&*home, false, || false, sleep);
        rescuer.join().unwrap();
        close(&home);
    });
}

/// A rescuer takes the wake-up of an owner. That sleep ends by itself, and the owner sleeps again,
/// for ever: it is woken, or finds before that sleep what the wake-up was for.
#[test]
fn a_rescuer_takes_the_wake_up_of_the_owner() {
    model!(Some(3), || {
        let (home, _owner) = begin();
        let (searchers, work) = (Searchers::new(1), Arc::new(AtomicBool::new(false)));
        drop(Timer::once(&home, 20, 5, || {}));
        drop(Timer::once(&home, 10 * HORIZON, 5, || {}));
        let remote_thread = thread::spawn({
            let (home, work) = (home.clone(), work.clone());
            move || {
                work.store(true, Ordering::Relaxed);
                home.wake();
            }
        });
        let rescuer = thread::spawn({
            let home = home.clone();
            move || take_wake(&home, || ())
        });
        let (work, mut now) = (|| work.load(Ordering::Relaxed), 0);
        while !work() {
            expire(&home, now);
            park(&home, &searchers, false, work, &mut now);
        }
        remote_thread.join().unwrap();
        rescuer.join().unwrap();
        close(&home);
    });
}

/// Parks the owner of `home`, which is the calling thread, until `until`. Calls `asleep` while
/// the owner sleeps. The owner does not wake by itself.
fn oversleep(home: &Home, until: u64, asleep: impl FnOnce()) {
    expire(home, 0);
    home.beat(0);
    Searchers::new(1).sleep(
        &**home,
        false,
        || false,
        |announced| {
            assert_eq!(announced, until);
            asleep();
        },
    );
    home.beat(HORIZON);
    assert_called(home, HORIZON);
}

/// The owner should have woken, and has no core. A remote thread arms a timer while a peer rescues
/// the owner: the alarm calls a peer for that timer, too.
#[test]
fn a_remote_thread_arms_at_an_owner_that_has_no_core() {
    for deadline in [60, HORIZON] {
        model!(Some(3), move || {
            let (home, _owner) = begin();
            drop(Timer::once(&home, 45, 5, || {}));
            oversleep(&home, 45, || {
                home.rest(45);
                let at = home.alarm();
                let rescuer = answers(&home, at);
                drop(Timer::once(&home, deadline, 5, || {}));
                assert!(rescuer.join().unwrap());
                assert!(!home.parker().is_awake());
                assert_called(&home, at);
            });
            close(&home);
        });
    }
}

/// A peer is called in vain while the owner goes to sleep, since the owner has left its alarm as it
/// was. The alarm is set for the end of the sleep, when the owner may get no core.
#[test]
fn an_alarm_goes_off_as_the_owner_goes_to_sleep() {
    model!(Some(4), || {
        let (home, _owner) = begin();
        drop(Timer::once(&home, 90, 5, || {}));
        let rescuer = thread::spawn({
            let home = home.clone();
            move || answer(&home, AHEAD | 1)
        });
        let mut rescuer = Some(rescuer);
        oversleep(&home, 90, || {
            rescuer.take().unwrap().join().unwrap();
            assert_called(&home, 90);
        });
        close(&home);
    });
}
