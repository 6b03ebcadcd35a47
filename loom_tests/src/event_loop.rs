//! The worker's event loop: it takes the due timers, runs them, and sleeps.

use std::{panic::resume_unwind, sync::atomic::Ordering};

use loom::{sync::Arc, thread};
use tourbillon_sched::{Parked, Searchers};
use tourbillon_shards::{Cancel, Due, NewTimers, Ran, Reset, Timer};

use crate::{Home, Probe, Worker};

/// The event loop of a shard's owner.
pub struct EventLoop {
    home: Home,
    searchers: Searchers,
    /// The time of the modelled clock.
    pub now: u64,
    /// If set, a watched worker leaves its alarm unchanged when it goes to sleep.
    pub lets_be: bool,
}

impl EventLoop {
    /// Makes the calling thread the owner of `home`.
    pub fn new(home: &Home) -> Self {
        *home.owner().thread.lock().unwrap() = Some(thread::current().id());
        Self {
            home: home.clone(),
            searchers: Searchers::new(1),
            now: 0,
            lets_be: false,
        }
    }

    /// Sleeps until the shard's next deadline, or until woken.
    pub fn park(&mut self) -> Parked {
        let (home, now) = (&self.home, &mut self.now);
        let owner = home.owner();
        owner.parks.fetch_add(1, Ordering::Relaxed);
        let parked = self.searchers.sleep(
            &**home,
            false,
            || false,
            |until| {
                if !self.lets_be {
                    home.rest(until);
                }
                owner.sleep(until, now);
            },
        );
        self.home.beat(self.now);
        parked
    }

    /// Sleeps as [`park`](EventLoop::park) does, but as an event loop that does not steal work.
    pub fn sleep(&mut self) {
        let owner = self.home.owner();
        owner.parks.fetch_add(1, Ordering::Relaxed);
        if let Some(until) = self.home.sleep_until() {
            owner.sleep(until, &mut self.now);
            self.home.resume();
        }
    }

    /// Announces that the owner sleeps, as [`sleep`](EventLoop::sleep) does, and returns whether it
    /// would sleep. It is awake again after [`resume`](tourbillon_shards::Shard::resume).
    pub fn announce(&mut self) -> bool {
        let owner = self.home.owner();
        owner.parks.fetch_add(1, Ordering::Relaxed);
        self.home.sleep_until().is_some()
    }

    /// Takes the due timers and runs them.
    pub fn expire(&mut self) {
        expire(&self.home, self.now);
    }

    /// Runs due timers and sleeps in between, until `done` returns true.
    pub fn run_until(&mut self, done: impl FnMut() -> bool) {
        self.run(done, |this| _ = this.park());
    }

    /// Like [`run_until`](EventLoop::run_until), but sleeps with [`sleep`](EventLoop::sleep).
    pub fn run_and_sleep_until(&mut self, done: impl FnMut() -> bool) {
        self.run(done, Self::sleep);
    }

    fn run(&mut self, mut done: impl FnMut() -> bool, mut sleep: impl FnMut(&mut Self)) {
        loop {
            let mut due = Vec::new();
            let expired = self.home.expire(self.now, usize::MAX, &mut due);
            let now = self.now;
            due.into_iter().for_each(|due| drop(run(due, now)));
            if done() {
                break;
            }
            if expired.more {
                // Another thread holds the shard's lock. An owner does not sleep then.
                thread::yield_now();
            } else {
                sleep(self);
            }
        }
    }
}

/// Parks the owner of `home`, which is the calling thread.
pub fn park(
    home: &Home,
    searchers: &Searchers,
    searching: bool,
    work: impl FnOnce() -> bool,
    now: &mut u64,
) -> Parked {
    let owner = home.owner();
    owner.parks.fetch_add(1, Ordering::Relaxed);
    searchers.sleep(&**home, searching, work, |until| owner.sleep(until, now))
}

/// Parks the worker of `home`, which is retired, as the runtime does.
pub fn park_in_reserve(
    home: &Home,
    searchers: &Searchers,
    work: impl FnOnce() -> bool,
    now: &mut u64,
) -> Parked {
    let owner = home.owner();
    owner.parks.fetch_add(1, Ordering::Relaxed);
    searchers.sleep_in_reserve(&**home, work, |until| owner.sleep(until, now))
}

/// Takes the timers that are due at `now` and runs them. If another thread holds the shard's lock,
/// that thread takes them.
pub fn expire(home: &Home, now: u64) {
    let mut due = Vec::new();
    home.expire(now, usize::MAX, &mut due);
    due.into_iter().for_each(|due| drop(run(due, now)));
}

/// Returns the one timer that is due at `now`.
pub fn due(home: &Home, now: u64) -> Due<Worker> {
    let mut due = Vec::new();
    assert_eq!(home.expire(now, usize::MAX, &mut due).count, 1);
    due.pop().unwrap()
}

/// Arms a timer for each of these deadlines, all together, and returns them.
pub fn arm_many(home: &Home, deadlines: &[u64], probes: &[Probe]) -> Vec<Timer<Worker>> {
    let mut timers = NewTimers::new(home, deadlines.len());
    for (deadline, probe) in deadlines.iter().zip(probes) {
        timers.once(*deadline, 5, None, probe.once());
    }
    timers.arm()
}

/// Starts a thread that cancels `timer`.
pub fn cancels(timer: &Arc<Timer<Worker>>) -> thread::JoinHandle<Cancel> {
    let timer = timer.clone();
    thread::spawn(move || timer.cancel())
}

/// Starts a thread that resets `timer` to `deadline`.
pub fn resets(timer: &Arc<Timer<Worker>>, deadline: u64) -> thread::JoinHandle<Reset> {
    let timer = timer.clone();
    thread::spawn(move || timer.reset_at(deadline))
}

/// Runs a timer. Passes a panic in it on to the caller: it is a failure that loom reports.
pub fn run(due: Due<Worker>, now: u64) -> Ran {
    match due.run(|| now) {
        Ran::Panicked(panic) => resume_unwind(panic),
        ran => ran,
    }
}
