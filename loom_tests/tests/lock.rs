//! The shard's try-lock, with a third thread. A thread that is denied the lock gives up, and its
//! timer or update is not lost. The owner, which checks inbox and store, does not miss an entry
//! that a remote thread moves between the two.
//!
//! In the loom build a remote thread reads one entry of the inbox at a time, unless a model sets
//! `BATCH`. Two unread cancellations are enough for a canceller to drain the inbox, unless a model
//! sets `GARBAGE_FLOOR`.
#![cfg(loom)]

use std::sync::{Arc as Plain, Mutex as PlainMutex};

use loom::thread::{self, ThreadId};
use loom_tests::{EventLoop, HORIZON, Home, Probe, Worker, close, expire, model, shard};
use tourbillon_shards::{
    Cancel, Flow, NEVER, Options, Outcome, Reset, Timer,
    model::{BATCH, GARBAGE_FLOOR},
};

/// A remote thread takes due timers, which drains the inbox, while a producer arms a timer and the
/// owner parks.
#[test]
fn a_remote_thread_expires_while_a_producer_arms_and_the_owner_parks() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 5, 5, probe.once()))
        });
        owner.run_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        producer.join().unwrap();
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 1);
    });
}

/// A producer's timer is in the inbox already: only the remote thread moves it to the store.
#[test]
fn a_remote_thread_drains_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        drop(Timer::once(&home, 5, 5, probe.once()));
        let mut owner = EventLoop::new(&home);
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        owner.park();
        owner.run_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// The remote thread reads one entry and leaves the others in the inbox.
#[test]
fn a_remote_thread_leaves_a_backlog_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        drop(Timer::once(&home, 5, 5, probe.once()));
        drop(Timer::once(&home, HORIZON + 10, 5, || {}));
        drop(Timer::once(&home, HORIZON + 20, 5, || {}));
        let mut owner = EventLoop::new(&home);
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        owner.park();
        owner.run_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// A canceller drains the inbox because there is too much garbage, while a producer arms a timer
/// and the owner parks.
#[test]
fn a_canceller_drains_while_a_producer_arms_and_the_owner_parks() {
    // With a bound of 2, this model alone takes a quarter of the time of all.
    model!(Some(1), || {
        let home = shard();
        let [first, second] = [1, 2].map(|i| Timer::once(&home, HORIZON + i, 5, || {}));
        assert_eq!(first.cancel(), Cancel::Cancelled);
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let canceller = thread::spawn(move || assert_eq!(second.cancel(), Cancel::Cancelled));
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || drop(Timer::once(&home, 5, 5, probe.once()))
        });
        owner.run_until(|| probe.runs() == 1);
        canceller.join().unwrap();
        producer.join().unwrap();
        assert!(home.garbage() <= 2);
        close(&home);
        assert_eq!(home.owner().over(Outcome::Cancelled), 2);
    });
}

/// A producer's timer is in the inbox already: only the canceller moves it to the store.
#[test]
fn a_canceller_drains_while_the_owner_parks() {
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        let [first, second] = [1, 2].map(|i| Timer::once(&home, HORIZON + i, 5, || {}));
        assert_eq!(first.cancel(), Cancel::Cancelled);
        drop(Timer::once(&home, 5, 5, probe.once()));
        let mut owner = EventLoop::new(&home);
        let canceller = thread::spawn(move || assert_eq!(second.cancel(), Cancel::Cancelled));
        owner.park();
        owner.run_until(|| probe.runs() == 1);
        canceller.join().unwrap();
        close(&home);
        assert_eq!(home.owner().over(Outcome::Cancelled), 2);
    });
}

/// A remote thread holds the lock, so the canceller is denied it: the remote thread sweeps instead.
#[test]
fn a_canceller_is_denied_the_lock() {
    model!(Some(3), || {
        let home = shard();
        EventLoop::new(&home);
        let [first, second] = [1, 2].map(|i| Timer::once(&home, HORIZON + i, 5, || {}));
        let canceller = thread::spawn(move || {
            assert_eq!(first.cancel(), Cancel::Cancelled);
            assert_eq!(second.cancel(), Cancel::Cancelled);
        });
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        canceller.join().unwrap();
        remote_thread.join().unwrap();
        assert!(home.stored() < 2, "nobody has read a cancellation");
        close(&home);
    });
}

/// The owner holds the lock for `step`, so the canceller is denied it. The owner then goes to
/// sleep, but not over the update. `arm` arms a timer of the owner for `step`.
fn a_canceller_is_denied_the_lock_by(
    arm: fn(&Home) -> Timer<Worker>,
    step: fn(&Home, &Timer<Worker>),
) {
    model!(Some(3), move || {
        // Each cancellation is one too many.
        GARBAGE_FLOOR.set(0);
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let mine = arm(&home);
        let other = Timer::once(&home, HORIZON + 1, 5, || {});
        let canceller = thread::spawn(move || assert_eq!(other.cancel(), Cancel::Cancelled));
        step(&home, &mine);
        let sleeps = owner.announce();
        canceller.join().unwrap();
        assert!(
            !sleeps || !home.has_updates(),
            "the owner sleeps, and no thread reads the update"
        );
        home.resume();
        close(&home);
    });
}

#[test]
fn a_canceller_is_denied_the_lock_while_the_owner_arms() {
    a_canceller_is_denied_the_lock_by(
        |home| Timer::once(home, HORIZON, 5, || {}),
        |home, _| drop(Timer::once(home, HORIZON + 3, 5, || {})),
    );
}

#[test]
fn a_canceller_is_denied_the_lock_while_the_owner_cancels() {
    a_canceller_is_denied_the_lock_by(
        |home| Timer::once(home, HORIZON, 5, || {}),
        |_, mine| assert_eq!(mine.cancel(), Cancel::Cancelled),
    );
}

#[test]
fn a_canceller_is_denied_the_lock_while_the_owner_notes_a_move() {
    a_canceller_is_denied_the_lock_by(
        |home| {
            let timer = Timer::once(home, HORIZON + 30, 5, || {});
            // From here on, the owner expects earlier deadlines, and leaves notes of them.
            assert_eq!(timer.reset_at(HORIZON + 20), Reset::Pending);
            timer
        },
        |_, mine| assert_eq!(mine.reset_at(HORIZON + 10), Reset::Pending),
    );
}

/// The threads that freed the nodes of a model, one entry for each node.
#[derive(Clone, Default)]
struct FreedBy(Plain<PlainMutex<Vec<ThreadId>>>);

impl Drop for FreedBy {
    fn drop(&mut self) {
        self.0.lock().unwrap().push(thread::current().id());
    }
}

impl FreedBy {
    /// Starts a timer whose node records the thread that frees it.
    fn arm(&self, home: &Home, deadline: u64) -> Timer<Worker> {
        let freed = self.clone();
        let options = Options {
            deadline: Some(deadline),
            condition: Some(Box::new(move || freed.0.lock().is_ok())),
            ..Options::default()
        };
        let timer = Timer::build(home, 5, options, |_| Flow::Continue(()));
        timer.start(0);
        timer
    }

    /// Returns how many nodes the calling thread has freed.
    fn here(&self) -> usize {
        let here = thread::current().id();
        let freed = self.0.lock().unwrap();
        freed.iter().filter(|&&by| by == here).count()
    }
}

/// A thread that denies others the lock reads one batch of its own, and one for the others. It does
/// not go on for as long as others cancel timers.
#[test]
fn a_thread_reads_one_batch_for_those_that_it_denies_the_lock() {
    model!(Some(3), || {
        let home = shard();
        let freed = FreedBy::default();
        let [first, rest @ ..] = [1, 2, 3, 4].map(|i| freed.arm(&home, HORIZON + i));
        // All timers are in the store, and one update is in the inbox.
        home.settle();
        assert_eq!(first.cancel(), Cancel::Cancelled);
        drop(first);
        let canceller = thread::spawn(move || {
            for timer in rest {
                assert_eq!(timer.cancel(), Cancel::Cancelled);
            }
        });
        expire(&home, 0);
        let read = freed.here();
        assert!(read <= 2, "one call has read {read} updates, each a batch");
        canceller.join().unwrap();
        close(&home);
    });
}

/// A remote thread has the lock twice in a row, and a canceller is denied it both times. The second
/// time the remote thread leaves the update to the owner. The owner does not sleep over it.
///
/// The other threads start while the remote thread holds the lock: its condition stands for the
/// first canceller, and starts them, although a condition must not use the crate.
#[test]
fn a_canceller_is_denied_again_while_the_owner_parks() {
    model!(Some(1), || {
        // A batch holds all updates. So a thread that reads one for a denied canceller has its
        // update, unless that was pushed while the batch was read.
        BATCH.set(4);
        // Each cancellation is one too many.
        GARBAGE_FLOOR.set(0);
        let home = shard();
        let cancelled = [1, 2].map(|i| Timer::once(&home, HORIZON + i, 5, || {}));
        let cancelled = PlainMutex::new(Some(cancelled));
        let started = Plain::new(PlainMutex::new(None));
        let condition = {
            let (home, started) = (home.clone(), started.clone());
            move || {
                let Some([first, second]) = cancelled.lock().unwrap().take() else {
                    return true;
                };
                assert_eq!(first.cancel(), Cancel::Cancelled);
                let canceller = thread::spawn(move || {
                    assert_eq!(second.cancel(), Cancel::Cancelled);
                });
                let home = home.clone();
                let owner = thread::spawn(move || EventLoop::new(&home).announce());
                *started.lock().unwrap() = Some((canceller, owner));
                true
            }
        };
        let options = Options {
            deadline: Some(5),
            condition: Some(Box::new(condition)),
            ..Options::default()
        };
        let moved = Timer::build(&home, 5, options, |_| Flow::Continue(()));
        moved.start(0);
        // All timers are in the store. The condition is asked where the old deadline comes up.
        home.settle();
        assert_eq!(moved.reset_at(HORIZON + 3), Reset::Pending);
        expire(&home, 5);
        let (canceller, owner) = started.lock().unwrap().take().unwrap();
        canceller.join().unwrap();
        let sleeps = owner.join().unwrap();
        let is_asleep = sleeps && home.parker().parked_until().is_some();
        assert!(
            !is_asleep || !home.has_updates(),
            "the owner sleeps, and no thread reads the updates"
        );
        home.resume();
        close(&home);
    });
}

/// The owner moves a timer to the earlier deadline `to`, and tries to leave a note of the move in
/// the store. A remote thread has the lock, or reads the inbox, at the same time. The owner does
/// not sleep past `to`. `first` is the deadline of another timer.
fn the_owner_notes_a_move(is_in_the_inbox: bool, first: u64, to: u64) {
    model!(Some(3), move || {
        let home = shard();
        let (mine, other) = (Probe::new(), Probe::new());
        // No thread is the owner yet, so this timer goes into the inbox.
        let arm = |at| Timer::once(&home, at, 5, mine.once());
        let early = is_in_the_inbox.then(|| arm(HORIZON + 40));
        let mut owner = EventLoop::new(&home);
        drop(Timer::once(&home, first, 5, other.once()));
        let late = Timer::once(&home, HORIZON + 30, 5, || {});
        // From here on, the owner expects earlier deadlines.
        assert_eq!(late.reset_at(HORIZON + 20), Reset::Pending);
        let timer = early.unwrap_or_else(|| arm(HORIZON + 40));
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        assert_eq!(timer.reset_at(to), Reset::Pending);
        owner.run_until(|| mine.runs() == 1);
        assert_eq!(owner.now, to);
        assert_eq!(other.runs(), usize::from(first < to));
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// The store takes the note, because the new deadline is not the earliest.
#[test]
fn the_owner_notes_a_move_behind_another_timer() {
    the_owner_notes_a_move(false, 10, 20);
}

/// The store takes no note, because the new deadline is the earliest.
#[test]
fn the_owner_notes_a_move_before_all_other_timers() {
    the_owner_notes_a_move(false, HORIZON + 10, 20);
}

/// The store has no entry of the timer, unless the remote thread has read the inbox.
#[test]
fn the_owner_notes_a_move_of_a_timer_in_the_inbox() {
    the_owner_notes_a_move(true, 10, 20);
}

/// A cancellation that no thread has read counts as garbage, although the owner reads others
/// meanwhile.
#[test]
fn unread_cancellations_are_counted_while_the_owner_drains() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let [first, second] = [1, 2].map(|i| Timer::once(&home, HORIZON + i, 5, || {}));
        let canceller = thread::spawn(move || {
            assert_eq!(first.cancel(), Cancel::Cancelled);
            assert_eq!(second.cancel(), Cancel::Cancelled);
        });
        owner.expire();
        canceller.join().unwrap();
        assert!(home.garbage() >= home.stored());
        close(&home);
    });
}

/// The owner is denied its own lock when it arms a timer.
#[test]
fn the_owner_arms_while_a_remote_thread_has_the_lock() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        drop(Timer::once(&home, 5, 5, probe.once()));
        assert!(home.next_deadline() <= 5);
        owner.run_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// The owner is denied its own lock when it resets a timer to an earlier time, and when it cancels
/// one.
#[test]
fn the_owner_moves_and_cancels_while_a_remote_thread_has_the_lock() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, HORIZON + 10, 5, probe.once());
        let other = Timer::once(&home, 3, 5, || unreachable!("it is cancelled"));
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || expire(&home, 0)
        });
        assert_eq!(other.cancel(), Cancel::Cancelled);
        timer.reset_at(5);
        owner.run_until(|| probe.runs() == 1);
        remote_thread.join().unwrap();
        close(&home);
        assert_eq!(home.owner().overs(), 2);
    });
}

/// The owner and a rescuer take due timers, and each timer is run by one of them.
#[test]
fn a_rescuer_and_the_owner_expire_at_once() {
    model!(Some(3), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probes = [Probe::new(), Probe::new()];
        for probe in &probes {
            drop(Timer::once(&home, 5, 5, probe.once()));
        }
        let rescuer = thread::spawn({
            let home = home.clone();
            move || {
                let mut due = Vec::new();
                home.expire(5, 1, &mut due);
                due.into_iter().for_each(|it| drop(loom_tests::run(it, 5)));
            }
        });
        owner.now = 5;
        owner.expire();
        rescuer.join().unwrap();
        owner.expire();
        for probe in &probes {
            assert_eq!((probe.runs(), probe.drops()), (1, 1));
        }
        close(&home);
        assert_eq!(home.owner().over(Outcome::Fired), 2);
    });
}

/// A remote thread settles the store, which moves an entry to a later key, and resets the timer to
/// an earlier time, while the owner parks.
#[test]
fn a_remote_thread_settles_and_moves_while_the_owner_parks() {
    model!(Some(2), || {
        let home = shard();
        let mut owner = EventLoop::new(&home);
        let probe = Probe::new();
        let timer = Timer::once(&home, HORIZON + 10, 5, probe.once());
        assert_eq!(timer.reset_at(HORIZON + 50), Reset::Pending);
        let remote_thread = thread::spawn({
            let home = home.clone();
            move || {
                assert_eq!(home.settle(), HORIZON + 50);
                assert_eq!(timer.reset_at(10), Reset::Pending);
                let next = home.settle();
                assert!(next == 10 || next == NEVER);
            }
        });
        owner.run_until(|| probe.runs() == 1);
        assert_eq!(owner.now, 10);
        remote_thread.join().unwrap();
        close(&home);
    });
}

/// Two threads settle the store, one of them after it has armed a timer: a call that begins after
/// the timer was armed finds the timer.
#[test]
fn a_remote_thread_settles_while_a_producer_arms() {
    model!(Some(3), || {
        let home = shard();
        let probe = Probe::new();
        let producer = thread::spawn({
            let (home, probe) = (home.clone(), probe.clone());
            move || {
                drop(Timer::once(&home, 5, 5, probe.once()));
                assert_eq!(home.settle(), 5);
            }
        });
        let next = home.settle();
        assert!(next == 5 || next == NEVER);
        producer.join().unwrap();
        assert_eq!(home.next_deadline(), 5);
        close(&home);
    });
}
