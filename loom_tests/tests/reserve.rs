//! The reserve: when a worker or a helper leaves to run user code, another thread remains parked
//! or in reserve, or the number of helpers is at its maximum. No more helpers are started than
//! this needs.
//!
//! A new helper counts as in reserve from the moment at which a thread decides to start it. A
//! helper that has nothing to do in a model has no thread. All threads end while they are up, as
//! if they were stuck.
#![cfg(loom)]

use std::sync::atomic::AtomicUsize as PlainUsize;

use loom::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use loom_tests::{EventLoop, Home, model, park, shard};
use tourbillon_sched::{NextSlot, SearchClaim, Searchers};
use tourbillon_shards::Owner;

struct Pool {
    searchers: Searchers,
    /// The maximum number of helpers.
    most: usize,
    started: PlainUsize,
}

impl Pool {
    /// Returns a pool with `parked` parked workers, and with `helpers` helpers in reserve. The
    /// other workers are up.
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

    /// Ensures a reserve, since the calling thread is about to run user code. Returns whether the
    /// caller has to start a helper.
    fn ensure_reserve(&self) -> bool {
        let start = self.searchers.ensure_reserve(self.most);
        if start {
            self.started.fetch_add(1, Ordering::Relaxed);
        }
        start
    }

    /// Counts a parked worker as up, and ensures a reserve.
    fn get_up(&self) {
        self.searchers.unpark();
        self.ensure_reserve();
    }

    /// Counts a helper in reserve as up, and ensures a reserve.
    fn leave_reserve(&self) {
        self.searchers.leave_reserve();
        self.ensure_reserve();
    }

    /// Returns the numbers of parked workers, of helpers in reserve, and of all helpers. They are
    /// exact if all other threads were joined.
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

/// The last two workers get up at the same time: one of them starts a helper, if one is allowed.
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

/// Two workers get up while a third stays parked, so that no helper is needed.
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

/// The last worker gets up while the only helper tries to end: the helper stays, or another is
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

/// The last worker gets up while two helpers try to end.
#[test]
fn a_worker_gets_up_while_two_helpers_end() {
    model!(None, || {
        let pool = Pool::new(1, 2, 2);
        let helpers = [0, 1].map(|_| spawn(&pool, |pool| pool.searchers.retire(0)));
        pool.get_up();
        let ended = helpers.map(|it| usize::from(it.join().unwrap()));
        let stay = 2 + pool.started() - ended.iter().sum::<usize>();
        assert!(stay >= 1, "a helper is in reserve");
        assert_eq!(pool.counts(), [0, stay, stay]);
        assert_eq!(pool.started(), usize::from(ended == [1, 1]));
    });
}

/// A worker parks while the only helper tries to end. The worker is woken, or finds work before it
/// sleeps.
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

/// One worker counts as parked for a moment, and the other, which gets up, may rely on that: one
/// helper is started in either case.
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

/// The only helper in reserve leaves it as the last worker gets up: both run. If no other helper
/// is allowed, the reserve is empty, and the helper does not end when it is in reserve again.
/// Otherwise one more is started.
fn a_helper_leaves_the_reserve_while_the_worker_gets_up(most: usize) {
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
fn the_only_helper_leaves_the_reserve_while_the_worker_gets_up() {
    a_helper_leaves_the_reserve_while_the_worker_gets_up(1);
}

#[test]
fn one_helper_of_three_leaves_the_reserve_while_the_worker_gets_up() {
    a_helper_leaves_the_reserve_while_the_worker_gets_up(3);
}

/// A helper is called, does its work, enters the reserve again and tries to end, while the last
/// worker gets up.
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
        let [parked, reserved, helpers] = pool.counts();
        assert_eq!(
            (parked, reserved),
            (0, helpers),
            "all helpers are in reserve"
        );
        assert!(helpers >= 1, "a helper is in reserve");
        assert_eq!(helpers, 1 + pool.started() - usize::from(ended));
    });
}

/// Two helpers try to end at the same time. One thread remains parked or in reserve, and at least
/// `least` helpers remain.
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

/// A helper could not be started. A thread that got up in between may have relied on it; the next
/// thread that gets up tries again.
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

/// A clock that is paused, and that may jump while no helper is up.
struct Clock {
    pool: Arc<Pool>,
    paused: AtomicBool,
    /// Set by the helper when it acts.
    done: AtomicBool,
}

impl Clock {
    /// Returns `None` if a helper is up. Otherwise returns whether the caller sees what the helper
    /// has done.
    fn judge(&self) -> Option<bool> {
        let still = self.pool.searchers.all_in_reserve();
        still.then(|| self.done.load(Ordering::Relaxed))
    }
}

/// A helper is called while a thread pauses the clock. The helper acts, unless it finds the clock
/// paused. The clock does not jump while the helper acts, or without seeing what it did. Of the
/// two, the one that checks last finds that the clock may jump.
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

/// A clock whose timerfd calls a helper. It follows `src/engine/paused/quiescence.rs`, and the
/// helper's loop in `src/engine/helpers/mod.rs`.
struct Called {
    pool: Arc<Pool>,
    paused: AtomicBool,
    /// The judges' mutex.
    judges: Mutex<()>,
    /// Whether the announcement of the clock's shard is claimed. The thread that takes the timers
    /// announces anew.
    claimed: AtomicBool,
    /// Set by the callback of a timer of the clock.
    done: AtomicBool,
}

impl Called {
    /// Returns whether the clock may jump. Fails if it may jump before the callback is over.
    fn judge(&self) -> bool {
        let _judging = self.judges.lock().unwrap();
        let still = self.paused.load(Ordering::Relaxed)
            && self.pool.searchers.all_in_reserve()
            && !self.claimed.load(Ordering::Relaxed);
        assert!(
            !still || self.done.load(Ordering::Relaxed),
            "it jumps while the helper acts"
        );
        still
    }

    /// Takes the clock's timers and runs them, as the helper. With `passes`, a helper that finds
    /// the clock paused first waits until no thread judges.
    fn help(&self, passes: bool) -> bool {
        let pool = &self.pool;
        pool.searchers.leave_reserve();
        if passes && self.paused.load(Ordering::Relaxed) {
            drop(self.judges.lock().unwrap());
        }
        self.claimed.swap(false, Ordering::AcqRel);
        pool.ensure_reserve();
        self.done.store(true, Ordering::Relaxed);
        pool.searchers.enter_reserve();
        self.paused.load(Ordering::Relaxed) && self.judge()
    }
}

/// The timerfd of a clock calls a helper while a thread pauses the clock and judges. The helper
/// runs a callback in either case. The clock does not jump before that callback is over. Of the
/// two, the one that checks last finds that the clock may jump.
fn a_clock_is_paused_while_it_calls_a_helper(passes: bool) {
    model!(None, move || {
        let clock = Arc::new(Called {
            pool: Pool::new(0, 1, 2),
            paused: AtomicBool::new(false),
            judges: Mutex::new(()),
            claimed: AtomicBool::new(true),
            done: AtomicBool::new(false),
        });
        let helper = thread::spawn({
            let clock = clock.clone();
            move || clock.help(passes)
        });
        clock.paused.swap(true, Ordering::Relaxed);
        let here = clock.judge();
        let there = helper.join().unwrap();
        assert!(here || there, "it does not jump");
    });
}

#[test]
fn a_clock_is_paused_while_it_calls_a_helper_that_waits_for_the_judge() {
    a_clock_is_paused_while_it_calls_a_helper(true);
}

/// The clock jumps too early if the helper does not wait: a judge may count the helper as in
/// reserve, and read the clock's announcement after the helper has taken the timers.
#[test]
#[should_panic(expected = "it jumps while the helper acts")]
fn a_clock_is_paused_while_it_calls_a_helper_that_does_not_wait() {
    a_clock_is_paused_while_it_calls_a_helper(false);
}

/// A helper that ends does not check again: another thread that checks at that moment must not see
/// it as up.
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

/// A helper, a worker that steals from it, and the queues that they share. A slot stands for the
/// helper's deque, since loom does not see crossbeam's. The shared queue is a mutex of loom's.
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
        let searchers = &self.pool.searchers;
        searchers.wake_one(|| self.wake(), || self.has_work());
    }

    fn wake(&self) -> bool {
        let claim = self.home.parker().claim_for_search();
        if claim == SearchClaim::Asleep {
            self.home.owner().wake();
        }
        claim != SearchClaim::Refused
    }

    /// Spawns a task, as the helper.
    fn push(&self, job: usize) {
        assert!(self.deque.put(Box::new(job)).is_none());
        self.wake_one();
    }

    /// Runs the tasks in the helper's deque.
    fn run_own(&self) {
        while let Some(job) = self.deque.take() {
            self.run(*job);
        }
    }

    /// Runs the helper, which ends if it may. Its last hook spawns a task, which must not be
    /// lost.
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
                if std::mem::take(&mut searching) {
                    searchers.found(|| self.wake(), || self.has_work());
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

/// A helper that ends leaves no task behind. Each task runs once: on the helper, on a worker that
/// steals it, or on a worker that is woken for it and finds it in the shared queue.
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
        let [parked, reserved, helpers] = jobs.pool.counts();
        assert_eq!((parked, reserved, helpers), (0, 1, 1));
    });
}
