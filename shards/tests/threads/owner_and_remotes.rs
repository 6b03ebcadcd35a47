//! Tests with real threads: an owner that sleeps and expires as a worker does, three threads that
//! arm, cancel and move timers at random, and one that takes due timers away from the owner. No
//! timer is lost, and each ends exactly once.
//!
//! No test measures time. If a wake-up is lost, a test does not end: the owner sleeps without a
//! limit if it has no deadline, and the last phase waits for all timers to fire.

use std::{
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Poll, Wake, Waker},
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use crate::common::{Drops, Overs, Random, times, units::MS};
use tourbillon_sched::Searchers;
use tourbillon_shards::{
    Cancel, Due, Kind, NEVER, Outcome, Owner, Ran, Reset, Shard, Sleep, Status, Timer,
};

const REMOTES: u64 = 3;
const OPERATIONS: usize = times(60_000);
/// How long a test waits for another thread. Only a hang exceeds it.
const PATIENCE: Duration = Duration::from_secs(300);

/// A worker that sleeps on a condition variable.
struct Worker {
    thread: ThreadId,
    started: Instant,
    tickled: Mutex<bool>,
    bell: Condvar,
    wakes: AtomicUsize,
    over: Overs,
}

impl Worker {
    fn shard() -> Arc<Shard<Worker>> {
        Arc::new(Shard::new(Worker {
            thread: thread::current().id(),
            started: Instant::now(),
            tickled: Mutex::new(false),
            bell: Condvar::new(),
            wakes: AtomicUsize::new(0),
            over: Overs::default(),
        }))
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sleeps until `until`, or until woken.
    fn sleep(&self, until: u64) {
        let mut tickled = self.tickled.lock().unwrap();
        while !*tickled {
            if until == NEVER {
                tickled = self.bell.wait(tickled).unwrap();
                continue;
            }
            let left = Duration::from_nanos(until).saturating_sub(self.started.elapsed());
            if left.is_zero() {
                break;
            }
            (tickled, _) = self.bell.wait_timeout(tickled, left).unwrap();
        }
        *tickled = false;
    }
}

impl Owner for Worker {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        *self.tickled.lock().unwrap() = true;
        self.bell.notify_one();
    }

    fn is_current(&self) -> bool {
        thread::current().id() == self.thread
    }

    fn over(&self, kind: Kind, how: Outcome) {
        self.over.note(kind, how);
    }
}

/// Counts of all threads.
#[derive(Default)]
struct Tally {
    armed: AtomicUsize,
    cancelled: AtomicUsize,
    ran: AtomicUsize,
    early: AtomicUsize,
    drops: Drops,
}

fn add(count: &AtomicUsize) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn read(count: &AtomicUsize) -> usize {
    count.load(Ordering::Relaxed)
}

/// How often the owner parked and slept.
#[derive(Default)]
struct Parks {
    slept: usize,
    parked: usize,
}

/// Runs the loop of a worker until `stop`.
fn work(shard: &Arc<Shard<Worker>>, stop: &AtomicBool, limit: usize) -> Parks {
    let searchers = Searchers::new(1);
    let owner = shard.owner();
    let mut parks = Parks::default();
    let mut due = Vec::new();
    while !stop.load(Ordering::Acquire) {
        let now = owner.now();
        let expired = shard.expire(now, limit, &mut due);
        run_all(&mut due, owner);
        if !expired.more {
            let parked = searchers.sleep(
                &**shard,
                false,
                || stop.load(Ordering::Acquire),
                |until| owner.sleep(until),
            );
            // No thread pushes work. Only the end of the test makes a searcher of the worker.
            if parked.searching {
                searchers.found(|| false, || false);
                assert!(stop.load(Ordering::Acquire));
            }
            parks.slept += usize::from(parked.slept);
            parks.parked += 1;
        }
    }
    parks
}

fn run_all(due: &mut Vec<Due<Worker>>, owner: &Worker) {
    for timer in due.drain(..) {
        if let Ran::Panicked(with) = timer.run(|| owner.now()) {
            std::panic::resume_unwind(with);
        }
    }
}

/// A timer of a remote thread, with the data to check its end.
struct Armed {
    timer: Timer<Worker>,
    cancelled: bool,
    /// The timer is never moved, so the test knows whether it is early.
    fixed: bool,
}

fn arm(shard: &Arc<Shard<Worker>>, random: &mut Random, tally: &Arc<Tally>) -> Armed {
    add(&tally.armed);
    let probe = tally.drops.probe();
    let wait = random.below(4) * random.below(MS);
    let deadline = shard.owner().now() + wait;
    let (home, counts) = (Arc::downgrade(shard), tally.clone());
    let recurring = random.below(6) == 0;
    let fixed = random.below(3) == 0;
    let f = move || {
        let _goes_with_the_callback = &probe;
        let home = home.upgrade().expect("the shard outlives its timers");
        if fixed && home.owner().now() < deadline {
            add(&counts.early);
        }
        add(&counts.ran);
    };
    let timer = if recurring {
        Timer::recurring(shard, deadline, wait.max(MS / 10), f)
    } else {
        Timer::once(shard, deadline, wait, f)
    };
    Armed {
        timer,
        cancelled: false,
        fixed,
    }
}

/// Arms, cancels and moves timers at random. Returns the timers that were not cancelled.
fn meddle(shard: &Arc<Shard<Worker>>, seed: u64, tally: &Arc<Tally>) -> Vec<Armed> {
    let mut random = Random(seed);
    let mut timers: Vec<Armed> = Vec::new();
    for _ in 0..OPERATIONS {
        if timers.len() < 50 || (timers.len() < 1_000 && random.below(3) == 0) {
            timers.push(arm(shard, &mut random, tally));
            continue;
        }
        let at = random.below(timers.len() as u64) as usize;
        let armed = &mut timers[at];
        let now = shard.owner().now();
        let moved = match random.below(10) {
            4.. if armed.fixed => continue,
            0..=3 => {
                match armed.timer.cancel() {
                    Cancel::Cancelled | Cancel::AfterRun => {
                        assert!(!armed.cancelled, "cancelled twice");
                        armed.cancelled = true;
                        add(&tally.cancelled);
                    }
                    Cancel::Running | Cancel::Over => {}
                }
                timers.swap_remove(at);
                continue;
            }
            4 | 5 => armed.timer.refresh(now),
            6 => armed.timer.reset_after(now, random.below(3 * MS)),
            7 => armed.timer.reset_from_start(random.below(3 * MS)),
            8 => armed.timer.reset_at(now + random.below(MS)),
            // Move the timer later, which sends no update, and earlier, which does.
            _ => {
                let _ = armed.timer.reset_at(now + 1_000 * MS);
                armed.timer.reset_at(now)
            }
        };
        if moved == Reset::TooLate {
            let status = armed.timer.status();
            assert!(
                matches!(status, Status::Over(_) | Status::Running { last: true }),
                "too late for a timer that is {status:?}"
            );
        }
    }
    timers
}

/// Runs the owner's loop on this thread while `f` runs on others, and then stops the owner.
fn beside_an_owner<R: Send>(
    shard: &Arc<Shard<Worker>>,
    limit: usize,
    f: impl FnOnce() -> R + Send,
) -> (R, Parks) {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let others = scope.spawn(|| {
            // Stop the owner even if `f` panics. Otherwise the test would not end.
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            stop.store(true, Ordering::Release);
            shard.wake();
            result
        });
        let parks = work(shard, &stop, limit);
        match others.join().unwrap() {
            Ok(result) => (result, parks),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Checks that each timer ended once, and that the end was counted.
fn settle(shard: Arc<Shard<Worker>>, tally: &Tally, parks: &Parks) {
    let over = &shard.owner().over;
    let all = |how| over.get(Kind::Once, how) + over.get(Kind::Recurring, how);
    let ended = all(Outcome::Fired) + all(Outcome::Cancelled) + all(Outcome::Shutdown);
    assert_eq!(ended, read(&tally.armed), "{:?}", over.all());
    assert_eq!(all(Outcome::Cancelled), read(&tally.cancelled));
    assert_eq!(over.get(Kind::Recurring, Outcome::Fired), 0);
    assert!(read(&tally.ran) >= over.get(Kind::Once, Outcome::Fired));
    assert_eq!(tally.drops.get() as usize, read(&tally.armed), "payloads");
    assert_eq!(read(&tally.early), 0, "ran before their deadlines");
    let wakes = read(&shard.owner().wakes);
    assert!(
        wakes <= parks.parked,
        "{wakes} wakes, parked {}",
        parks.parked
    );
    assert_eq!(shard.stored(), 0);
    assert!(!shard.has_updates());
    assert_eq!(Arc::strong_count(&shard), 1, "a node was left behind");
}

fn meddlers(shard: &Arc<Shard<Worker>>, tally: &Arc<Tally>) -> Vec<Armed> {
    thread::scope(|scope| {
        let meddlers: Vec<_> = (1..=REMOTES)
            .map(|seed| scope.spawn(move || meddle(shard, seed * 0x9E37_79B9, tally)))
            .collect();
        let timers = meddlers.into_iter().map(|thread| thread.join().unwrap());
        timers.flatten().collect()
    })
}

#[test]
fn each_timer_ends_once_while_threads_arm_cancel_and_move() {
    let shard = Worker::shard();
    let tally = Arc::new(Tally::default());
    let (left, parks) = beside_an_owner(&shard, usize::MAX, || meddlers(&shard, &tally));
    drop(shard.close());
    for armed in &left {
        assert!(matches!(armed.timer.status(), Status::Over(_)));
    }
    drop(left);
    settle(shard, &tally, &parks);
}

/// Other threads take due timers as a rescuer does. They run most of them and drop some.
#[test]
fn each_timer_ends_once_while_others_rescue() {
    let shard = Worker::shard();
    let tally = Arc::new(Tally::default());
    let rescued = AtomicUsize::new(0);
    let (left, parks) = beside_an_owner(&shard, 3, || {
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut due = Vec::new();
                while !done.load(Ordering::Acquire) {
                    let now = shard.owner().now();
                    shard.expire(now, 5, &mut due);
                    rescued.fetch_add(due.len(), Ordering::Relaxed);
                    if due.len() > 3 {
                        due.swap_remove(1).shutdown();
                    }
                    run_all(&mut due, shard.owner());
                    thread::yield_now();
                }
            });
            let begun = Instant::now();
            let mut left = meddlers(&shard, &tally);
            // On a busy machine the rescuer may have had no core meanwhile.
            while read(&rescued) == 0 && begun.elapsed() < PATIENCE {
                left.extend(meddlers(&shard, &tally));
            }
            done.store(true, Ordering::Release);
            left
        })
    });
    assert!(read(&rescued) > 0, "the rescuer never got anything");
    drop(shard.close());
    drop(left);
    settle(shard, &tally, &parks);
}

/// The shard is closed while other threads arm and move timers.
#[test]
fn each_timer_ends_once_while_the_shard_is_closed() {
    for round in 0..times(60) as u64 {
        let shard = Worker::shard();
        let tally = Arc::new(Tally::default());
        let armed = AtomicUsize::new(0);
        thread::scope(|scope| {
            for seed in 1..=REMOTES {
                let (shard, tally, armed) = (&shard, &tally, &armed);
                scope.spawn(move || {
                    let mut random = Random(seed * 7_919 + round);
                    let mut timers: Vec<Armed> = Vec::new();
                    for _ in 0..400 {
                        timers.push(arm(shard, &mut random, tally));
                        add(armed);
                        let at = random.below(timers.len() as u64) as usize;
                        let Armed { timer, fixed, .. } = &timers[at];
                        let now = shard.owner().now();
                        if !fixed {
                            let _ = timer.reset_at(now + random.below(50 * MS));
                            let _ = timer.reset_at(now);
                        }
                        if random.below(4) == 0 {
                            let timer = timers.swap_remove(at).timer;
                            if matches!(timer.cancel(), Cancel::Cancelled | Cancel::AfterRun) {
                                add(&tally.cancelled);
                            }
                        }
                    }
                });
            }
            // The owner holds some due timers when it closes the shard.
            let mut due = Vec::new();
            while read(&armed) < 40 * (round as usize % 20) {
                let now = shard.owner().now();
                shard.expire(now, 3, &mut due);
                if due.len() > 20 {
                    run_all(&mut due, shard.owner());
                }
            }
            drop(shard.close());
            run_all(&mut due, shard.owner());
        });
        let parks = Parks {
            parked: usize::MAX,
            slept: 0,
        };
        settle(shard, &tally, &parks);
    }
}

/// The owner sleeps without a limit and is woken for each timer. If a wake-up is lost, this test
/// does not end.
#[test]
fn no_wake_up_is_lost_between_threads_that_take_turns() {
    let shard = Worker::shard();
    let fired = Arc::new(AtomicUsize::new(0));
    let ((), parks) = beside_an_owner(&shard, usize::MAX, || {
        thread::scope(|scope| {
            for _ in 0..REMOTES {
                scope.spawn(|| {
                    for turn in 0..times(3_000) as u64 {
                        let now = shard.owner().now();
                        let done = Arc::new(AtomicBool::new(false));
                        let (mine, count) = (done.clone(), fired.clone());
                        let far = now + 3_600_000 * MS;
                        // Due at once, or far away and then made earlier.
                        let deadline = if turn % 2 == 0 { now } else { far };
                        let timer = Timer::once(&shard, deadline, 0, move || {
                            add(&count);
                            mine.store(true, Ordering::Release);
                        });
                        if turn % 2 == 1 {
                            let _ = timer.reset_at(now + turn % 7);
                        }
                        while !done.load(Ordering::Acquire) {
                            thread::yield_now();
                        }
                    }
                });
            }
        });
    });
    assert_eq!(read(&fired), REMOTES as usize * times(3_000));
    assert!(parks.slept > 0, "the owner never slept");
    drop(shard.close());
    assert_eq!(Arc::strong_count(&shard), 1);
}

/// A waker that unparks the thread that waits for a sleep.
struct Unpark(thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on(sleep: &Sleep<Worker>) -> Outcome {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    loop {
        match sleep.poll(&waker) {
            Poll::Ready(how) => return how,
            Poll::Pending => thread::park(),
        }
    }
}

/// Sleeps are moved, awaited and armed again by threads that sleep without a limit until woken.
#[test]
fn sleeps_wake_their_tasks_each_time() {
    let shard = Worker::shard();
    let ((), parks) = beside_an_owner(&shard, 2, || {
        thread::scope(|scope| {
            for seed in 1..=REMOTES {
                let shard = &shard;
                scope.spawn(move || {
                    let mut random = Random(seed * 104_729);
                    let mut sleep = Sleep::new(shard, 0);
                    for _ in 0..times(3_000) {
                        let now = shard.owner().now();
                        for _ in 0..random.below(4) {
                            sleep.reset(now + random.below(MS / 5));
                            let _ = sleep.poll(Waker::noop());
                        }
                        if random.below(8) == 0 {
                            sleep = Sleep::new(shard, now + random.below(MS / 5));
                        }
                        let deadline = sleep.deadline();
                        assert_eq!(block_on(&sleep), Outcome::Fired);
                        let now = shard.owner().now();
                        assert!(deadline.is_none_or(|at| at <= now), "fired early");
                    }
                    // The last thread leaves one that is still awaited when the shard is closed.
                    sleep.reset(NEVER);
                    drop(sleep);
                });
            }
        });
    });
    assert!(parks.parked > 0);
    drop(shard.close());
    assert_eq!(Arc::strong_count(&shard), 1);
}

/// Tasks that wait when the shard is closed get `Shutdown`.
#[test]
fn closing_wakes_the_tasks_that_wait() {
    let shard = Worker::shard();
    thread::scope(|scope| {
        let sleepers: Vec<_> = (0..REMOTES)
            .map(|_| {
                scope.spawn(|| {
                    let mut sleep = Sleep::new(&shard, NEVER);
                    let how = block_on(&sleep);
                    sleep.reset(1);
                    (how, block_on(&sleep))
                })
            })
            .collect();
        // Some tasks may wait already when the shard is closed, and some come to the closed shard.
        thread::yield_now();
        drop(shard.close());
        for sleeper in sleepers {
            let both = sleeper.join().unwrap();
            assert_eq!(both, (Outcome::Shutdown, Outcome::Shutdown));
        }
    });
    assert_eq!(Arc::strong_count(&shard), 1);
}
