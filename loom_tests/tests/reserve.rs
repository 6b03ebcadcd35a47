//! Who sits: whenever a worker or a helper has got up to run foreign code, somebody is left who
//! sits, or there are as many helpers as there may be; and no more are started than that takes.
//!
//! A helper that is started sits from when it was put on the list: of those that have nothing else
//! to do in a model there is no thread. All come to their end while they are up, as if they were
//! stuck.
#![cfg(loom)]

use std::sync::atomic::AtomicUsize as PlainUsize;

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering, fence},
    },
    thread,
};
use loom_tests::{EventLoop, Home, model, park, shard};
use tourbillon_shards::{NextSlot, Owner, SearchClaim, Searchers};

struct Pool {
    searchers: Searchers,
    /// How many helpers there may be.
    most: usize,
    started: PlainUsize,
}

impl Pool {
    /// Workers of which so many are parked, the others are up, and helpers that sit.
    fn new(parked: usize, helpers: usize, most: usize) -> Arc<Self> {
        let searchers = Searchers::new(2);
        (0..parked).for_each(|_| searchers.park(false));
        (0..helpers).for_each(|_| searchers.enlist());
        Arc::new(Self {
            searchers,
            most,
            started: PlainUsize::new(0),
        })
    }

    /// The calling thread is about to run foreign code; whether a helper has to be started for
    /// that.
    fn ensure_reserve(&self) -> bool {
        let start = self.searchers.ensure_reserve(self.most);
        if start {
            self.started.fetch_add(1, Ordering::Relaxed);
        }
        start
    }

    /// A worker gets up.
    fn get_up(&self) {
        self.searchers.unpark();
        self.ensure_reserve();
    }

    /// A helper gets up.
    fn leave_reserve(&self) {
        self.searchers.leave_reserve();
        self.ensure_reserve();
    }

    /// Parked workers, helpers that sit, and all helpers. Exact if all other threads were joined.
    fn counts(&self) -> [usize; 3] {
        let it = &self.searchers;
        [it.parked(), it.in_reserve(), it.helpers()]
    }

    fn started(&self) -> usize {
        self.started.load(Ordering::Relaxed)
    }
}

fn spawn<T: 'static>(
    pool: &Arc<Pool>,
    f: impl FnOnce(&Pool) -> T + 'static,
) -> thread::JoinHandle<T> {
    let pool = pool.clone();
    thread::spawn(move || f(&pool))
}

/// The last two workers get up at once: one of them has a helper started, if there may be one.
fn two_workers_get_up(most: usize) {
    model!(None, move || {
        let pool = Pool::new(2, 0, most);
        let other = spawn(&pool, Pool::get_up);
        pool.get_up();
        other.join().unwrap();
        let helpers = most.min(1);
        assert_eq!(pool.counts(), [0, helpers, helpers]);
        assert_eq!(pool.started(), helpers);
    });
}

#[test]
fn two_workers_get_up_and_one_helper_is_started() {
    two_workers_get_up(2);
}

#[test]
fn two_workers_get_up_and_the_one_helper_is_started() {
    two_workers_get_up(1);
}

#[test]
fn two_workers_get_up_and_there_may_be_no_helper() {
    two_workers_get_up(0);
}

/// Two workers get up while a third stays parked, which is somebody who sits.
#[test]
fn two_workers_get_up_and_a_third_is_parked() {
    model!(None, || {
        let pool = Pool::new(3, 0, 2);
        let other = spawn(&pool, Pool::get_up);
        pool.get_up();
        other.join().unwrap();
        assert_eq!((pool.counts(), pool.started()), ([1, 0, 0], 0));
    });
}

/// The last worker gets up while the only helper ends, or wants to: it stays, or another is
/// started.
#[test]
fn a_worker_gets_up_while_the_helper_ends() {
    model!(None, || {
        let pool = Pool::new(1, 1, 1);
        let helper = spawn(&pool, |pool| pool.searchers.retire(0));
        pool.get_up();
        let ended = helper.join().unwrap();
        assert_eq!(pool.counts(), [0, 1, 1]);
        assert_eq!(pool.started(), usize::from(ended));
    });
}

/// The last worker gets up while two helpers end, or want to.
#[test]
fn a_worker_gets_up_while_two_helpers_end() {
    model!(None, || {
        let pool = Pool::new(1, 2, 2);
        let helpers = [0, 1].map(|_| spawn(&pool, |pool| pool.searchers.retire(0)));
        pool.get_up();
        let ended = helpers.map(|it| usize::from(it.join().unwrap()));
        let stay = 2 + pool.started() - ended.iter().sum::<usize>();
        assert!(stay >= 1, "somebody sits");
        assert_eq!(pool.counts(), [0, stay, stay]);
        assert_eq!(pool.started(), usize::from(ended == [1, 1]));
    });
}

/// The same with a worker that goes to sleep first, and is woken, or finds that there is work.
#[test]
fn a_worker_parks_while_the_helper_ends() {
    model!(None, || {
        let pool = Pool::new(0, 1, 1);
        let home = shard();
        EventLoop::new(&home);
        let work = Arc::new(AtomicBool::new(false));
        let helper = spawn(&pool, {
            let (home, work) = (home.clone(), work.clone());
            move |pool| {
                let ended = pool.searchers.retire(0);
                work.swap(true, Ordering::Relaxed);
                home.wake();
                ended
            }
        });
        let looks = || work.load(Ordering::Relaxed);
        park(&home, &pool.searchers, false, looks, &mut 0);
        pool.ensure_reserve();
        let ended = helper.join().unwrap();
        assert_eq!(pool.counts(), [0, 1, 1]);
        assert_eq!(pool.started(), usize::from(ended));
    });
}

/// One worker counts as parked for a moment, on which the other relies when it gets up.
#[test]
fn a_worker_gets_up_while_another_looks_a_last_time() {
    model!(None, || {
        let pool = Pool::new(1, 0, 2);
        let other = spawn(&pool, |pool| {
            let home = shard();
            EventLoop::new(&home);
            park(&home, &pool.searchers, false, || true, &mut 0);
            pool.ensure_reserve();
        });
        pool.get_up();
        other.join().unwrap();
        assert_eq!((pool.counts(), pool.started()), ([0, 1, 1], 1));
    });
}

/// The helper gets up as the last worker does: both run. If there may be no other, nobody sits, and
/// the helper does not end when it sits again; otherwise one more is started.
fn a_helper_rises_while_the_worker_gets_up(most: usize) {
    model!(None, move || {
        let pool = Pool::new(1, 1, most);
        let helper = spawn(&pool, Pool::leave_reserve);
        pool.get_up();
        helper.join().unwrap();
        let started = usize::from(most > 1);
        assert_eq!(pool.counts(), [0, started, 1 + started]);
        assert_eq!(pool.started(), started);
        pool.searchers.enter_reserve();
        assert_eq!(pool.searchers.retire(0), started == 1);
        assert_eq!(pool.counts(), [0, 1, 1]);
    });
}

#[test]
fn the_only_helper_rises_while_the_worker_gets_up() {
    a_helper_rises_while_the_worker_gets_up(1);
}

#[test]
fn one_helper_of_three_rises_while_the_worker_gets_up() {
    a_helper_rises_while_the_worker_gets_up(3);
}

/// A helper is called, does what there is to do, sits again and ends, while the last worker gets
/// up.
#[test]
fn a_helper_comes_and_goes_while_the_worker_gets_up() {
    model!(None, || {
        let pool = Pool::new(1, 1, 2);
        let helper = spawn(&pool, |pool| {
            pool.leave_reserve();
            pool.searchers.enter_reserve();
            pool.searchers.retire(0)
        });
        pool.get_up();
        let ended = helper.join().unwrap();
        let [parked, sitting, helpers] = pool.counts();
        assert_eq!((parked, sitting), (0, helpers), "all of them sit");
        assert!(helpers >= 1, "somebody sits");
        assert_eq!(helpers, 1 + pool.started() - usize::from(ended));
    });
}

/// Two helpers end at once: of all that sit one stays, and of helpers so many as are asked for.
fn two_helpers_end(parked: usize, least: usize, stay: usize) {
    model!(None, move || {
        let pool = Pool::new(parked, 2, 2);
        let other = spawn(&pool, move |pool| pool.searchers.retire(least));
        let here = pool.searchers.retire(least);
        let there = other.join().unwrap();
        assert_eq!(usize::from(here) + usize::from(there), 2 - stay);
        assert_eq!(pool.counts(), [parked, stay, stay]);
    });
}

#[test]
fn two_helpers_end_and_no_worker_is_parked() {
    two_helpers_end(0, 0, 1);
}

#[test]
fn two_helpers_end_and_a_worker_is_parked() {
    two_helpers_end(1, 0, 0);
}

#[test]
fn two_helpers_end_and_one_has_to_stay() {
    two_helpers_end(1, 1, 1);
}

/// A helper could not be started. Who got up meanwhile may have relied on it; who gets up next
/// tries again.
#[test]
fn two_workers_get_up_and_the_helper_does_not_start() {
    model!(None, || {
        let pool = Pool::new(2, 0, 1);
        let try_to_start = |pool: &Pool| {
            pool.searchers.unpark();
            if pool.ensure_reserve() {
                pool.searchers.strike();
            }
        };
        let other = spawn(&pool, try_to_start);
        try_to_start(&pool);
        other.join().unwrap();
        assert!(pool.started() >= 1);
        assert_eq!(pool.counts(), [0, 0, 0]);
        pool.searchers.park(false);
        pool.searchers.unpark();
        assert!(pool.ensure_reserve(), "it is tried again");
        assert_eq!(pool.counts(), [0, 1, 1]);
    });
}

/// A clock that is paused, and may jump if no helper has anything in hand.
struct Clock {
    pool: Arc<Pool>,
    paused: AtomicBool,
    /// What the helper did when it was called.
    done: AtomicBool,
}

impl Clock {
    /// Whether no helper is up, and if so, whether what it did is seen.
    fn judge(&self) -> Option<bool> {
        let still = self.pool.searchers.all_in_reserve();
        still.then(|| self.done.load(Ordering::Relaxed))
    }
}

/// A helper is called while the clock is paused, which it finds, or acts. The clock does not jump
/// while it acts, or without seeing what it did; and one of both who look last finds that it may
/// jump. The helper's fence is that of who took an alarm.
#[test]
fn a_clock_is_paused_while_a_helper_acts() {
    model!(None, || {
        let clock = Arc::new(Clock {
            pool: Pool::new(0, 1, 2),
            paused: AtomicBool::new(false),
            done: AtomicBool::new(false),
        });
        let helper = thread::spawn({
            let clock = clock.clone();
            move || {
                let pool = &clock.pool;
                pool.searchers.leave_reserve();
                fence(Ordering::SeqCst);
                let acts = !clock.paused.load(Ordering::Relaxed);
                if acts {
                    pool.ensure_reserve();
                    clock.done.store(true, Ordering::Relaxed);
                }
                pool.searchers.enter_reserve();
                let paused = clock.paused.load(Ordering::Relaxed);
                (acts, paused.then(|| clock.judge()).flatten())
            }
        });
        clock.paused.swap(true, Ordering::Relaxed);
        let here = clock.judge();
        let (acts, there) = helper.join().unwrap();
        assert!(here.is_some() || there.is_some(), "it does not jump");
        for seen in here.into_iter().chain(there) {
            assert!(seen || !acts, "it jumps while the helper acts");
        }
    });
}

/// A helper that ends does not judge again: who looks at that moment is not to take it for one that
/// is up.
#[test]
fn a_helper_ends_while_a_clock_is_paused() {
    model!(None, || {
        let pool = Pool::new(1, 2, 2);
        let judge = spawn(&pool, |pool| pool.searchers.all_in_reserve());
        assert!(pool.searchers.retire(0));
        assert!(judge.join().unwrap());
        assert_eq!(pool.counts(), [1, 1, 1]);
    });
}

/// A helper, a worker that steals from it, and what they share. A slot stands for the helper's
/// deque: crossbeam's are not seen by loom. The shared queue is one of loom's mutexes.
struct Jobs {
    pool: Arc<Pool>,
    home: Home,
    deque: NextSlot<Box<usize>>,
    shared: Mutex<Vec<usize>>,
    runs: [AtomicUsize; 2],
}

impl Jobs {
    fn run(&self, job: usize) {
        assert_eq!(self.runs[job].fetch_add(1, Ordering::Relaxed), 0);
    }

    fn over(&self) -> bool {
        self.runs.iter().all(|it| it.load(Ordering::Relaxed) == 1)
    }

    fn has_work(&self) -> bool {
        !self.deque.is_empty() || !self.shared.lock().unwrap().is_empty()
    }

    fn wake_one(&self) {
        let wake = || {
            let claim = self.home.parker().claim_for_search();
            if claim == SearchClaim::Asleep {
                self.home.owner().wake();
            }
            claim != SearchClaim::Refused
        };
        self.pool.searchers.wake_one(wake, || self.has_work());
    }

    /// The helper spawns a task.
    fn push(&self, job: usize) {
        assert!(self.deque.put(Box::new(job)).is_none());
        self.wake_one();
    }

    /// The helper runs what it has.
    fn run_own(&self) {
        while let Some(job) = self.deque.take() {
            self.run(*job);
        }
    }

    /// The helper acts, and ends if it may: its last hook has a job to spawn, which nobody would
    /// run.
    fn help(&self) {
        let searchers = &self.pool.searchers;
        self.pool.leave_reserve();
        self.push(0);
        self.run_own();
        searchers.enter_reserve();
        if searchers.retire(0) {
            self.push(1);
            while let Some(job) = self.deque.take() {
                self.shared.lock().unwrap().push(*job);
                self.wake_one();
            }
        } else {
            self.pool.leave_reserve();
            self.push(1);
            self.run_own();
            searchers.enter_reserve();
        }
        assert!(self.deque.is_empty());
        if self.over() {
            self.home.wake();
        }
    }

    fn work(&self) {
        let searchers = &self.pool.searchers;
        let mut searching = false;
        while !self.over() {
            let shared = self.shared.lock().unwrap().pop();
            if let Some(job) = shared.or_else(|| self.deque.steal().map(|job| *job)) {
                if std::mem::take(&mut searching) && searchers.found() {
                    self.wake_one();
                }
                self.run(job);
            } else {
                let looks = || self.has_work() || self.over();
                searching = park(&self.home, searchers, searching, looks, &mut 0).searching;
                self.pool.ensure_reserve();
            }
        }
    }
}

/// A helper that ends leaves nothing behind: what it has is run once, by itself, by who steals it,
/// or by who finds it where it has put it, and is woken for that.
#[test]
fn a_helper_ends_while_it_is_stolen_from() {
    model!(Some(3), || {
        let pool = Pool::new(0, 1, 1);
        let jobs = Arc::new(Jobs {
            pool,
            home: shard(),
            deque: NextSlot::default(),
            shared: Mutex::default(),
            runs: Default::default(),
        });
        EventLoop::new(&jobs.home);
        let helper = thread::spawn({
            let jobs = jobs.clone();
            move || jobs.help()
        });
        jobs.work();
        helper.join().unwrap();
        assert!(!jobs.has_work());
        let [parked, sitting, helpers] = jobs.pool.counts();
        assert_eq!((parked, sitting, helpers), (0, 1, 1));
    });
}
