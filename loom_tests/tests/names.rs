//! Names: a timer is found by its name from when it is built until it ends. Then it is out of the
//! list, whichever thread removes it.
//!
//! A wrong place in the list shows as a timer that is found after its end, as one that is not
//! found, or as a panic. A timer that stays in the list shows as a leak, since the list owns it.
#![cfg(loom)]

use std::cell::RefCell;

use loom::{sync::Arc, thread};
use loom_tests::{EventLoop, Home, Probe, Worker, close, due, expire, model, run, shard};
use tourbillon_shards::{Cancel, Due, Flow, Name, Names, Options, Outcome, Started, Timer};

const NAME: &str = "n";

struct Setting {
    home: Home,
    names: Arc<Names<Worker>>,
    probes: RefCell<Vec<Probe>>,
}

impl Setting {
    /// Returns a shard owned by this thread, and a table of names.
    fn new() -> Self {
        let home = shard();
        EventLoop::new(&home);
        Self {
            home,
            names: Arc::new(Names::new(1)),
            probes: RefCell::default(),
        }
    }

    /// Returns a named timer that runs after 5.
    fn timer(&self, recurring: bool) -> Timer<Worker> {
        let options = Options {
            recurring,
            name: Some(Name::new(&self.names, NAME)),
            ..Options::default()
        };
        let probe = Probe::new();
        let callback = probe.told(Flow::Continue(()));
        self.probes.borrow_mut().push(probe);
        let timer = Timer::build(&self.home, 5, options, callback);
        assert_eq!(timer.start(0), Started::Pending);
        timer
    }

    /// Cancels up to `max` timers by name, in another thread.
    fn cancel(&self, max: usize) -> thread::JoinHandle<usize> {
        let names = self.names.clone();
        thread::spawn(move || names.cancel(NAME, max))
    }

    /// Returns the one timer that is due at 5.
    fn due(&self) -> Due<Worker> {
        due(&self.home, 5)
    }

    /// Returns how many runs there were.
    fn runs(&self) -> usize {
        self.probes.borrow().iter().map(Probe::runs).sum()
    }

    /// Asserts that `timers` timers have ended, `cancelled` of them as cancelled, and that the
    /// table is empty.
    fn ended(self, timers: usize, cancelled: usize) {
        assert_eq!(self.names.list(), []);
        expire(&self.home, 5);
        assert_eq!(self.home.stored(), 0);
        close(&self.home);
        let owner = self.home.owner();
        assert_eq!(owner.overs(), timers);
        assert_eq!(owner.over(Outcome::Cancelled), cancelled);
        let probes = self.probes.borrow();
        assert_eq!(probes.len(), timers);
        assert!(probes.iter().all(|probe| probe.drops() == 1));
    }
}

/// A timer fires, or is cancelled by its name.
#[test]
fn fire_or_cancel_by_name() {
    model!(None, || {
        let it = Setting::new();
        drop(it.timer(false));
        let canceller = it.cancel(9);
        expire(&it.home, 5);
        let cancelled = canceller.join().unwrap();
        assert_eq!(it.runs() + cancelled, 1);
        it.ended(1, cancelled);
    });
}

/// A recurring timer runs while another thread cancels it by its name.
#[test]
fn a_recurring_one_runs_or_is_cancelled_by_name() {
    model!(None, || {
        let it = Setting::new();
        drop(it.timer(true));
        let due = it.due();
        let canceller = it.cancel(9);
        run(due, 5);
        assert_eq!(canceller.join().unwrap(), 1);
        it.ended(1, 1);
    });
}

/// One thread cancels by the handle, another by the name: one of them wins.
#[test]
fn cancel_by_handle_or_by_name() {
    model!(None, || {
        let it = Setting::new();
        let timer = it.timer(false);
        let canceller = it.cancel(9);
        let here = usize::from(timer.cancel() == Cancel::Cancelled);
        assert_eq!(canceller.join().unwrap() + here, 1);
        it.ended(1, 1);
    });
}

/// Two threads cancel one timer each by the same name: they cancel two different ones.
#[test]
fn two_cancel_one_each() {
    model!(None, || {
        let it = Setting::new();
        drop([it.timer(false), it.timer(false)]);
        let canceller = it.cancel(1);
        assert_eq!(it.names.cancel(NAME, 1), 1);
        assert_eq!(canceller.join().unwrap(), 1);
        it.ended(2, 2);
    });
}

/// Two of three timers end at the same time: the places of the others move, and the third is found
/// at its new place.
#[test]
fn two_of_three_end_at_once() {
    model!(None, || {
        let it = Setting::new();
        let [first, second, third] = [0; 3].map(|_| it.timer(false));
        let other = thread::spawn(move || assert_eq!(third.cancel(), Cancel::Cancelled));
        assert_eq!(first.cancel(), Cancel::Cancelled);
        other.join().unwrap();
        assert_eq!(it.names.count(NAME), 1);
        assert_eq!(second.cancel(), Cancel::Cancelled);
        it.ended(3, 3);
    });
}

/// The newer of two timers ends by its handle while another thread cancels one by name, which is
/// the older one.
#[test]
fn one_of_two_ends_while_one_is_cancelled_by_name() {
    model!(None, || {
        let it = Setting::new();
        let [first, second] = [0; 2].map(|_| it.timer(false));
        let canceller = it.cancel(1);
        assert_eq!(second.cancel(), Cancel::Cancelled, "it is not the oldest");
        assert_eq!(canceller.join().unwrap(), 1);
        assert_eq!(first.cancel(), Cancel::Over);
        it.ended(2, 2);
    });
}

/// The timer that the canceller takes first ends by its handle at that moment.
#[test]
fn the_first_of_two_ends_while_one_is_cancelled_by_name() {
    model!(None, || {
        let it = Setting::new();
        let [first, second] = [0; 2].map(|_| it.timer(false));
        let canceller = it.cancel(1);
        let here = first.cancel();
        assert_eq!(canceller.join().unwrap(), 1);
        match here {
            // The canceller tried this timer, or found it gone, and took the second one.
            Cancel::Cancelled => assert_eq!(second.cancel(), Cancel::Over),
            _ => assert_eq!(second.cancel(), Cancel::Cancelled),
        }
        it.ended(2, 2);
    });
}

/// The timer between two others ends while another thread cancels two by name: those are the two
/// oldest of the list, before or after this end.
#[test]
fn the_middle_of_three_ends_while_two_are_cancelled_by_name() {
    model!(Some(2), || {
        let it = Setting::new();
        let [first, second, third] = [0; 3].map(|_| it.timer(false));
        let canceller = it.cancel(2);
        let here = second.cancel();
        assert_eq!(canceller.join().unwrap(), 2);
        assert_eq!(first.cancel(), Cancel::Over, "it was the oldest");
        match here {
            Cancel::Cancelled => assert_eq!(third.cancel(), Cancel::Over),
            _ => assert_eq!(third.cancel(), Cancel::Cancelled),
        }
        it.ended(3, 3);
    });
}

/// A timer is refreshed and counted by name while it fires.
#[test]
fn fire_or_refresh_by_name() {
    model!(None, || {
        let it = Setting::new();
        drop(it.timer(false));
        let other = thread::spawn({
            let names = it.names.clone();
            move || {
                let moved = names.refresh(NAME, || 5);
                assert!(names.count(NAME) <= 1);
                moved
            }
        });
        expire(&it.home, 5);
        let moved = other.join().unwrap();
        assert_eq!(it.runs() + moved, 1);
        assert_eq!(it.names.count(NAME), moved);
        expire(&it.home, 10);
        assert_eq!(it.runs(), 1);
        it.ended(1, 0);
    });
}

/// The last timer of a name ends while another of the same name is built.
#[test]
fn one_ends_while_another_is_built() {
    model!(None, || {
        let it = Setting::new();
        let old = it.timer(false);
        let other = thread::spawn(move || assert_eq!(old.cancel(), Cancel::Cancelled));
        let new = it.timer(false);
        other.join().unwrap();
        assert_eq!(it.names.count(NAME), 1);
        assert_eq!(new.cancel(), Cancel::Cancelled);
        it.ended(2, 2);
    });
}

/// A timer is cancelled by its name while the shard is closed.
#[test]
fn close_or_cancel_by_name() {
    model!(None, || {
        let it = Setting::new();
        drop(it.timer(false));
        let canceller = it.cancel(9);
        close(&it.home);
        let cancelled = canceller.join().unwrap();
        it.ended(1, cancelled);
    });
}
