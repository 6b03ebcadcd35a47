//! A group of workers that serve each other's timers.

use std::sync::{Arc as Plain, atomic::Ordering};

use loom::{sync::Arc, thread};
use tourbillon_sched::{Searchers, Sleeper};
use tourbillon_shards::{Leaning, Mate, Mates, Shard};

use crate::{AHEAD, HORIZON, Home, Worker, run};

/// A group of workers, which defer their wake-ups.
pub struct Crew {
    /// Their shards, by place.
    pub homes: Vec<Home>,
    leaning: Leaning,
}

impl Crew {
    /// Creates a group of so many workers. None of them sleeps.
    pub fn new(workers: usize) -> Plain<Self> {
        Self::of(workers, Shard::new)
    }

    /// Like [`new`](Crew::new), with an alarm for each worker.
    pub fn watched(workers: usize) -> Plain<Self> {
        Self::of(workers, |worker| Shard::watched(worker, AHEAD))
    }

    fn of(workers: usize, shard: impl Fn(Worker) -> Shard<Worker>) -> Plain<Self> {
        let home = |_| Arc::new(shard(Worker::default()).deferring());
        let crew = Plain::new(Self {
            homes: (0..workers).map(home).collect(),
            leaning: Leaning::new(),
        });
        for (place, home) in crew.homes.iter().enumerate() {
            let set = home.owner().crew.set((Plain::downgrade(&crew), place));
            assert!(set.is_ok());
        }
        crew
    }

    fn mates(&self) -> Mates<'_, Worker> {
        Mates::new(&self.leaning, &self.homes, 0, 1)
    }

    /// Returns whether the worker at `place` leans, and another one wakes up for a timer that is due
    /// `at`.
    pub fn is_covered(&self, place: usize, at: u64) -> bool {
        self.leaning.leans(place) && self.mates().is_covered(at, place)
    }

    /// Acts as a peer that finds the worker at `place` blocked at `now`, and begins to watch it.
    pub fn watch(&self, place: usize, now: u64) {
        let home = &self.homes[place];
        assert!(home.take_alarm(now) && home.watch_on(now));
        self.mates().wake_left(place);
    }

    /// Returns the worker at `place` as one that sleeps for ever if it leans.
    pub fn mate(&self, place: usize) -> Mate<'_, Worker> {
        let home = &self.homes[place];
        home.owner().parks.fetch_add(1, Ordering::Relaxed);
        Mate::new(home, Some((self.mates(), place)), HORIZON + 90)
    }

    /// Runs the timers of the worker at `place` that are due at `now`, and those of workers that
    /// lean. Returns whether there may be more.
    fn expire(&self, place: usize, now: u64) -> bool {
        let mut due = Vec::new();
        let mut more = self.homes[place].expire(now, usize::MAX, &mut due).more;
        for (_, mate) in self.mates().leaning(place) {
            if mate.next_deadline() <= now {
                more |= mate.expire(now, usize::MAX, &mut due).more;
            }
        }
        due.into_iter().for_each(|due| drop(run(due, now)));
        more
    }

    /// Makes the calling thread the worker at `place`, and returns its shard.
    pub fn begin(&self, place: usize) -> &Home {
        let home = &self.homes[place];
        *home.owner().thread.lock().unwrap() = Some(thread::current().id());
        home
    }

    /// Makes the calling thread the worker at `place`. It runs timers and sleeps, until `done`
    /// returns true. Then it wakes the others. Returns the time.
    pub fn run_until(&self, place: usize, done: impl Fn() -> bool) -> u64 {
        let home = self.begin(place);
        let (searchers, mut now) = (Searchers::new(1), 0);
        loop {
            let more = self.expire(place, now);
            if done() {
                break;
            }
            if more {
                // Another thread holds the lock of a shard.
                thread::yield_now();
                continue;
            }
            let mate = self.mate(place);
            let sleep = |until| home.owner().sleep(until, &mut now);
            if !searchers.sleep(&mate, false, &done, sleep).slept {
                thread::yield_now();
            }
        }
        for home in &self.homes {
            home.wake();
        }
        now
    }

    /// Has the worker at `place`, which is the calling thread, lean until it is woken. `meanwhile`
    /// runs as soon as it sleeps.
    pub fn lean(&self, place: usize, meanwhile: impl FnOnce()) {
        let (home, mate) = (&self.homes[place], self.mate(place));
        let until = mate.announce_sleep();
        assert!(until > HORIZON && mate.leans() && mate.may_sleep(until));
        meanwhile();
        home.owner().eventfd.sleep();
        mate.end_sleep();
    }
}
