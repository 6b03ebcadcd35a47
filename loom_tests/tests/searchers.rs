//! Waking one searcher: no work stays in the queue while all workers that could do it are asleep.
//!
//! The queue is a counter with relaxed accesses, which order nothing. Only the fences ensure that a
//! pusher and a worker about to sleep see each other. Work that no worker does shows as a deadlock.
#![cfg(loom)]

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};
use loom_tests::{EventFd, EventLoop, Home, model, park, park_in_reserve, shard};
use tourbillon_sched::{Limit, SearchClaim, Searchers};
use tourbillon_shards::Owner;

/// Workers, and a queue from which each of them takes.
struct Pool {
    homes: Vec<Home>,
    /// The worker that a pusher tries to wake first.
    first: usize,
    /// Which workers are retired.
    retired: Vec<AtomicBool>,
    searchers: Searchers,
    queue: AtomicUsize,
    /// The queue of a group of tasks. The workers look at it once the group is made.
    in_group: AtomicUsize,
    is_made: AtomicBool,
    done: AtomicUsize,
    /// The number of jobs. After that many are done the workers leave.
    total: usize,
    /// The first of two jobs may wait for this.
    second: EventFd,
}

impl Pool {
    fn new(workers: usize, total: usize) -> Arc<Self> {
        Arc::new(Self::trying_first(0, workers, total))
    }

    fn trying_first(first: usize, workers: usize, total: usize) -> Self {
        Self {
            first,
            homes: (0..workers).map(|_| shard()).collect(),
            retired: (0..workers).map(|_| AtomicBool::new(false)).collect(),
            searchers: Searchers::new(workers),
            queue: AtomicUsize::new(0),
            in_group: AtomicUsize::new(0),
            is_made: AtomicBool::new(false),
            done: AtomicUsize::new(0),
            total,
            second: EventFd::default(),
        }
    }

    /// Returns the queues that a worker looks at.
    fn queues(&self) -> impl Iterator<Item = &AtomicUsize> {
        let is_made = || self.is_made.load(Ordering::Relaxed);
        let group = std::iter::once_with(move || is_made().then_some(&self.in_group));
        std::iter::once(&self.queue).chain(group.flatten())
    }

    fn has_jobs(&self) -> bool {
        self.queues().any(|it| it.load(Ordering::Relaxed) > 0)
    }

    fn work(&self) -> bool {
        self.has_jobs() || self.over()
    }

    fn over(&self) -> bool {
        self.done.load(Ordering::Relaxed) == self.total
    }

    fn push(&self) {
        self.queue.fetch_add(1, Ordering::Relaxed);
        self.wake_one();
    }

    /// Makes the group, unless it is made, and pushes a job to its queue.
    fn push_to_group(&self) {
        self.is_made.store(true, Ordering::Relaxed);
        self.in_group.fetch_add(1, Ordering::Relaxed);
        self.wake_one();
    }

    fn wake_one(&self) -> bool {
        self.searchers
            .wake_one(|| self.wake_any(), || self.has_jobs())
    }

    fn wake_any(&self) -> bool {
        let all = || self.homes.iter().zip(&self.retired);
        let mut homes = all().skip(self.first).chain(all().take(self.first));
        homes.any(|(home, is_retired)| {
            if is_retired.load(Ordering::Relaxed) {
                return false;
            }
            let claim = home.parker().claim_for_search();
            if claim == SearchClaim::Asleep {
                home.owner().wake();
            }
            claim != SearchClaim::Refused
        })
    }

    fn pop(&self) -> bool {
        self.queues().any(Self::pop_from)
    }

    fn pop_from(queue: &AtomicUsize) -> bool {
        let mut left = queue.load(Ordering::Relaxed);
        while left > 0 {
            match queue.compare_exchange(left, left - 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => left = now,
            }
        }
        false
    }

    /// Runs a worker that looks for work and sleeps in between, until all jobs are done. It calls
    /// `job` for each one that it has found.
    fn worker(&self, index: usize, job: impl Fn(&Self)) {
        let home = &self.homes[index];
        EventLoop::new(home);
        let mut searching = false;
        while !self.over() {
            if self.pop() {
                self.leave_search(&mut searching);
                job(self);
                continue;
            }
            if !searching && self.searchers.begin() {
                searching = true;
                continue;
            }
            searching = park(home, &self.searchers, searching, || self.work(), &mut 0).searching;
        }
        self.leave_search(&mut searching);
    }

    /// Takes the calling worker off the count of searchers, if it is one, as one that has found
    /// work.
    fn leave_search(&self, searching: &mut bool) {
        if std::mem::take(searching) {
            self.searchers.found(|| self.wake_any(), || self.has_jobs());
        }
    }

    /// Does a job. The worker that does the last one wakes all, so that they leave.
    fn finish(&self) {
        if self.done.fetch_add(1, Ordering::Relaxed) + 1 == self.total {
            for home in &self.homes {
                home.wake();
            }
        }
    }
}

/// One worker goes to sleep, and one pusher pushes a job.
#[test]
fn one_worker_and_a_pusher() {
    model!(None, || {
        let pool = Pool::new(1, 1);
        let pusher = thread::spawn({
            let pool = pool.clone();
            move || pool.push()
        });
        pool.worker(0, Pool::finish);
        pusher.join().unwrap();
    });
}

/// One worker and two pushers. One pusher may rely on the other's claim to wake.
#[test]
fn one_worker_and_two_pushers() {
    model!(Some(3), || {
        let pool = Pool::new(1, 2);
        let pushers = [0, 1].map(|_| {
            let pool = pool.clone();
            thread::spawn(move || pool.push())
        });
        pool.worker(0, Pool::finish);
        pushers.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// Two workers and one pusher of two jobs, of which the first lasts until the second is done: the
/// searcher that finds the first wakes the next.
#[test]
fn the_last_searcher_wakes_the_next() {
    model!(Some(2), || {
        let pool = Pool::new(2, 2);
        let begun = Arc::new(AtomicUsize::new(0));
        let job = |begun: Arc<AtomicUsize>| {
            move |pool: &Pool| {
                if begun.fetch_add(1, Ordering::Relaxed) == 0 {
                    pool.second.sleep();
                } else {
                    pool.second.write();
                }
                pool.finish();
            }
        };
        let worker = thread::spawn({
            let (pool, job) = (pool.clone(), job(begun.clone()));
            move || pool.worker(1, job)
        });
        let pusher = thread::spawn({
            let pool = pool.clone();
            move || {
                pool.push();
                pool.push();
            }
        });
        pool.worker(0, job(begun));
        worker.join().unwrap();
        pusher.join().unwrap();
    });
}

/// Two workers and two pushers of a job each.
#[test]
fn two_workers_and_two_pushers() {
    model!(Some(1), || {
        let pool = Pool::new(2, 2);
        let worker = thread::spawn({
            let pool = pool.clone();
            move || pool.worker(1, Pool::finish)
        });
        let pushers = [0, 1].map(|_| {
            let pool = pool.clone();
            thread::spawn(move || pool.push())
        });
        pool.worker(0, Pool::finish);
        worker.join().unwrap();
        pushers.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// A worker is woken for a deadline, and not to search, at the moment when a pusher looks for a
/// searcher to wake: the worker counts as parked, but the pusher cannot wake it.
#[test]
fn a_pusher_finds_no_worker_to_wake() {
    model!(Some(3), || {
        let pool = Pool::new(1, 1);
        let pusher = thread::spawn({
            let pool = pool.clone();
            move || pool.push()
        });
        let ticker = thread::spawn({
            let pool = pool.clone();
            move || pool.homes[0].wake()
        });
        pool.worker(0, Pool::finish);
        pusher.join().unwrap();
        ticker.join().unwrap();
    });
}

/// A thread makes a group, and pushes a job to its queue, while the worker goes to sleep. The worker
/// does not see the group, or wakes up for the job.
#[test]
fn a_group_is_made_while_a_worker_goes_to_sleep() {
    model!(None, || {
        let pool = Pool::new(1, 1);
        let pusher = thread::spawn({
            let pool = pool.clone();
            move || pool.push_to_group()
        });
        pool.worker(0, Pool::finish);
        pusher.join().unwrap();
    });
}

/// One worker, a pusher to the queue of a group that is new, and one to the other queue.
#[test]
fn one_worker_and_pushers_to_two_queues() {
    model!(Some(2), || {
        let pool = Pool::new(1, 2);
        let pushers = [Pool::push, Pool::push_to_group].map(|push| {
            let pool = pool.clone();
            thread::spawn(move || push(&pool))
        });
        pool.worker(0, Pool::finish);
        pushers.into_iter().for_each(|it| it.join().unwrap());
    });
}

/// Workers of which some are retired, as a limit says.
struct Limited {
    pool: Pool,
    limit: Limit,
}

impl Limited {
    fn new(workers: usize, total: usize) -> Arc<Self> {
        Arc::new(Self {
            // The last worker is the one that retires.
            pool: Pool::trying_first(workers - 1, workers, total),
            limit: Limit::new(),
        })
    }

    /// Sets how many workers take part, and wakes the others.
    fn set(&self, workers: usize) {
        self.limit.set(workers);
        for home in &self.pool.homes[1..] {
            home.wake();
        }
    }

    /// Runs a worker as [`Pool::worker`] does, which is retired while the limit says so. Then it
    /// takes no job, and is no searcher.
    fn worker(&self, index: usize) {
        let (pool, home) = (&self.pool, &self.pool.homes[index]);
        EventLoop::new(home);
        let mut searching = false;
        while !pool.over() {
            let retired = self.limit.retires(index);
            pool.retired[index].store(retired, Ordering::Relaxed);
            if retired {
                pool.leave_search(&mut searching);
                let work = || pool.over() || !self.limit.retires(index);
                searching = park_in_reserve(home, &pool.searchers, work, &mut 0).searching;
                continue;
            }
            if pool.pop() {
                pool.leave_search(&mut searching);
                pool.finish();
                continue;
            }
            if !searching && pool.searchers.begin() {
                searching = true;
                continue;
            }
            let work = || pool.work() || self.limit.retires(index);
            searching = park(home, &pool.searchers, searching, work, &mut 0).searching;
        }
        pool.leave_search(&mut searching);
    }
}

/// Returns a program of two workers, and of a pusher that does `push`. `begin` runs before these.
fn two_workers_and(begin: fn(&Limited), push: fn(&Limited)) -> impl Fn() + Send + Sync {
    move || {
        let limited = Limited::new(2, 1);
        begin(&limited);
        let worker = thread::spawn({
            let limited = limited.clone();
            move || limited.worker(1)
        });
        let pusher = thread::spawn({
            let limited = limited.clone();
            move || push(&limited)
        });
        limited.worker(0);
        worker.join().unwrap();
        pusher.join().unwrap();
    }
}

/// A worker retires while a pusher pushes a job. It may be the searcher on which the pusher relies.
#[test]
fn a_worker_retires_and_a_pusher() {
    let push = |limited: &Limited| {
        limited.set(1);
        limited.pool.push();
    };
    model!(Some(2), two_workers_and(|_| (), push));
}

/// A worker is retired, and the other one goes to sleep, while a pusher pushes a job.
#[test]
fn a_pusher_passes_a_retired_worker_by() {
    let retire = |limited: &Limited| limited.limit.set(1);
    let push = |limited: &Limited| limited.pool.push();
    model!(Some(2), two_workers_and(retire, push));
}

/// The limit rises while the retired worker goes to sleep. It takes part: only it can do the job.
#[test]
fn a_retired_worker_takes_part_again() {
    model!(Some(2), || {
        let limited = Limited::new(2, 1);
        limited.limit.set(1);
        let worker = thread::spawn({
            let limited = limited.clone();
            move || limited.worker(1)
        });
        // The other worker is blocked, and only this one can do the job.
        limited.set(2);
        limited.pool.push();
        worker.join().unwrap();
    });
}
