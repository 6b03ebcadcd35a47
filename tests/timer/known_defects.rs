//! Defects of other systems' timers that Tourbillon does not have: early timers, loops that an
//! overdue timer hangs, and lateness that grows with the load. `cancel_batch.rs` has those about
//! cancelling, `recurring.rs` has drift, and `rescue/busy_worker.rs` those about a busy thread.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    HOUR, PATIENCE, Random, alarm, eventually, on_worker, runtime, spin,
    timers::{Report, none_early, reporter},
};
use tourbillon::{
    Runtime, Timer,
    runtime::Builder,
    time::{sleep, sleep_until},
    timer::Reset,
};

/// The length of a job that keeps a worker from its timers for longer than many of their delays.
const LONG: Duration = Duration::from_micros(300);

/// Returns a random delay from 1 µs to about 30 ms, with nanosecond resolution. Each power of two
/// is equally likely.
fn delay(random: &mut Random) -> Duration {
    let micros = 1_u64 << random.below(15);
    Duration::from_nanos(1_000 * micros + random.below(1_000 * micros))
}

/// Recurring callbacks that keep the workers busy until this is dropped. Long callbacks make the
/// time that a worker read before them stale. Callbacks that take no time let the worker look at
/// its timers all the while, also just before their deadlines.
struct Busy {
    timers: Vec<Timer>,
}

impl Busy {
    fn all_of(runtime: &Runtime, workers: usize, each: Duration) -> Self {
        let busy = |_| {
            runtime
                .handle()
                .every(Duration::from_nanos(1), move || spin(each))
        };
        Self {
            timers: (0..workers).map(busy).collect(),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        for timer in &self.timers {
            timer.cancel();
        }
    }
}

/// Arms one callback by each way: with a deadline, with a delay, and by a move. Checks the
/// deadline where it is known exactly. Returns how many callbacks it armed.
fn arm_each_way(sender: &mpsc::Sender<Report>, random: &mut Random) -> usize {
    let asked = Instant::now() + delay(random);
    let timer = tourbillon::at(asked, reporter(sender, asked));
    if let Some(deadline) = timer.deadline() {
        assert_eq!(deadline.into_std(), asked, "something was cut off");
    }
    let wait = delay(random);
    let asked = Instant::now() + wait;
    tourbillon::after(wait, reporter(sender, asked));

    // One of the calls moves this timer from the far future to `to`.
    let wait = delay(random);
    let asked = Arc::new(OnceLock::new());
    let (known, report) = (asked.clone(), sender.clone());
    let timer = tourbillon::after(HOUR, move || {
        let now = Instant::now();
        let _ = report.send((*known.get().unwrap(), now));
    });
    let to = Instant::now() + wait;
    asked.set(to).unwrap();
    let answer = match random.below(2) {
        0 => timer.reset_after(wait),
        _ => timer.reset_at(to),
    };
    assert_eq!(answer, Reset::Pending);
    3
}

/// sylar, libev and libuv count from a time that they read once per turn of the loop. They and
/// libco also truncate to milliseconds. Either defect makes a timer up to 1 ms early.
#[test]
fn a_callback_is_never_early_on_a_cold_or_busy_worker() {
    let _alarm = alarm();
    for workers in [1, 2] {
        let runtime = runtime(workers);
        let _entered = runtime.enter();
        let (sender, receiver) = mpsc::channel();
        let mut random = Random::new(workers as u64);
        // Cold: the worker has nothing to do before or after.
        for _ in 0..30 {
            let count = arm_each_way(&sender, &mut random);
            none_early(&receiver, count);
        }
        for each in [LONG, Duration::ZERO] {
            let _busy = Busy::all_of(&runtime, workers, each);
            let mut count = 0;
            for _ in 0..500 {
                count += arm_each_way(&sender, &mut random);
            }
            none_early(&receiver, count);
        }
    }
}

/// The delay of a timer that a worker arms late in a long callback counts from the call, and not
/// from an older reading of the clock.
#[test]
fn delays_in_a_long_callback_count_from_the_call() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    for seed in 0..50 {
        let sender = sender.clone();
        let count = on_worker(&runtime, move || {
            let mut random = Random::new(seed);
            let mut count = 0;
            for _ in 0..10 {
                spin(Duration::from_micros(100));
                count += arm_each_way(&sender, &mut random);
            }
            count
        });
        none_early(&receiver, count);
    }
}

#[test]
fn a_refreshed_timer_waits_its_whole_delay_again() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    let mut random = Random::new(3);
    for from_worker in [true, false].repeat(20) {
        // On most machines, this is long enough to refresh the timer before it fires.
        let wait = Duration::from_millis(10) + delay(&mut random) / 2;
        let asked = Arc::new(Mutex::new(Instant::now() + wait));
        let (known, report) = (asked.clone(), sender.clone());
        let timer = runtime.handle().after(wait, move || {
            let now = Instant::now();
            let _ = report.send((*known.lock().unwrap(), now));
        });
        let refresh = move || {
            spin(Duration::from_millis(3));
            // The callback reads the clock before it waits for this lock.
            let mut asked = asked.lock().unwrap();
            let to = Instant::now() + wait;
            if timer.refresh() == Reset::Pending {
                *asked = to;
            }
        };
        if from_worker {
            on_worker(&runtime, refresh);
        } else {
            refresh();
        }
        none_early(&receiver, 1);
    }
}

#[test]
fn a_sleep_is_never_early_on_a_cold_or_busy_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let sleeps = |seed: u64, count: usize| async move {
        let mut random = Random::new(seed);
        for i in 0..count {
            let wait = delay(&mut random);
            let asked = Instant::now() + wait;
            match i % 2 {
                0 => sleep(wait).await,
                _ => sleep_until(asked.into()).await,
            }
            let now = Instant::now();
            assert!(now >= asked, "early by {:?}", asked - now);
        }
    };
    runtime.block_on(runtime.spawn(sleeps(1, 50))).unwrap();
    runtime.block_on(sleeps(2, 50));
    for each in [LONG, Duration::ZERO] {
        let _busy = Busy::all_of(&runtime, 2, each);
        let tasks: Vec<_> = (0..100).map(|i| runtime.spawn(sleeps(i, 10))).collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
    }
}

/// dstore waits for the first deadline minus the current time. If the deadline has passed, the
/// result is negative, which means for ever: nothing fires any more.
#[test]
fn overdue_timers_do_not_starve_later_timers() {
    let _alarm = alarm();
    let long_past = Instant::now();
    let mut runtime = Builder::new();
    runtime.worker_threads(1);
    let runtime = runtime.build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let arm = move |sender: &mpsc::Sender<Report>| {
        let now = Instant::now();
        let ms = Duration::from_millis;
        // Some deadlines have passed, some pass while the worker is busy, and some come later.
        for at in [long_past, now, now + ms(1), now + ms(4), now + ms(20)] {
            for _ in 0..50 {
                tourbillon::at(at, reporter(sender, at));
            }
        }
        250
    };
    for _ in 0..5 {
        let mut count = 0;
        let (started, has_started) = mpsc::channel();
        let worker = sender.clone();
        runtime.handle().after(Duration::ZERO, move || {
            arm(&worker);
            started.send(()).unwrap();
            spin(Duration::from_millis(3));
        });
        count += 250;
        has_started.recv_timeout(PATIENCE).unwrap();
        let _entered = runtime.enter();
        // First while the worker is busy, then while it is idle.
        count += arm(&sender);
        none_early(&receiver, count);
        let count = arm(&sender);
        none_early(&receiver, count);
    }
    // The worker sleeps, and wakes for a later deadline.
    on_worker(&runtime, || ());
    let asked = Instant::now() + Duration::from_millis(15);
    runtime.handle().at(asked, reporter(&sender, asked));
    none_early(&receiver, 1);
}

/// The numbers of callbacks that ran, and of those that ran early.
#[derive(Default)]
struct Fired {
    fired: AtomicUsize,
    early: AtomicUsize,
}

impl Fired {
    fn note(&self, asked: Instant) {
        if Instant::now() < asked {
            self.early.fetch_add(1, Ordering::Relaxed);
        }
        // This comes last: a thread that sees this callback counted also sees whether it was
        // early.
        self.fired.fetch_add(1, Ordering::Release);
    }

    #[track_caller]
    fn check(&self, count: usize) {
        eventually("all of them fire", || {
            self.fired.load(Ordering::Acquire) >= count
        });
        assert_eq!(self.fired.load(Ordering::Acquire), count);
        assert_eq!(self.early.load(Ordering::Relaxed), 0, "early");
    }
}

/// In Workflow, arming and firing contend for one lock. Where they overlap, p99 rises from 50 µs
/// to 1.3 s.
#[test]
fn timers_fire_while_another_thread_arms_as_fast_as_it_can() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let fires = Arc::new(Fired::default());
    let stop = Arc::new(AtomicBool::new(false));
    let handle = runtime.handle().clone();
    let armer = {
        let (fires, stop) = (fires.clone(), stop.clone());
        thread::spawn(move || {
            let mut random = Random::new(9);
            let mut count = 0;
            while !stop.load(Ordering::Relaxed) && count < 1_000_000 {
                let fires = fires.clone();
                let asked = Instant::now() + Duration::from_nanos(random.below(5_000_000));
                handle.at(asked, move || fires.note(asked));
                count += 1;
            }
            count
        })
    };
    eventually("timers fire while others are armed", || {
        fires.fired.load(Ordering::Relaxed) >= 100_000
    });
    stop.store(true, Ordering::Relaxed);
    let count = armer.join().unwrap();
    fires.check(count);
}

/// With ten times as many timers, Go fell seconds behind, and tokio half a second.
#[test]
fn a_hundred_thousand_timers_over_one_second_are_not_seconds_behind() {
    let _alarm = alarm();
    const COUNT: u32 = 100_000;
    let runtime = runtime(2);
    let fires = Arc::new(Fired::default());
    let base = Instant::now() + Duration::from_millis(500);
    for i in 0..COUNT {
        let fires = fires.clone();
        // The factor and the count are coprime, so this is a permutation of the second.
        let place = u64::from(i) * 7_919 % u64::from(COUNT);
        let asked = base + Duration::from_secs(1) / COUNT * place as u32;
        if i % 8 == 0 {
            runtime.spawn(async move {
                sleep_until(asked.into()).await;
                fires.note(asked);
            });
        } else {
            runtime.handle().at(asked, move || fires.note(asked));
        }
    }
    fires.check(COUNT as usize);
}
