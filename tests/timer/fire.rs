//! Callback timers run exactly once and never early, from whichever thread they are armed.

use crate::common::timers::{Report, assert_over, none_early, reporter};
use crate::common::{Drops, Gate, HOUR, PATIENCE, alarm, eventually, on_worker, runtime};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon::timer::Outcome;
use tourbillon::{
    Handle, Timer,
    timer::{Cancel, Reset, Status},
};

/// Delays of every order of magnitude that is short enough for a test.
const DELAYS: [Duration; 9] = [
    Duration::ZERO,
    Duration::from_nanos(1),
    Duration::from_nanos(999),
    Duration::from_micros(1),
    Duration::from_micros(50),
    Duration::from_micros(999),
    Duration::from_millis(1),
    Duration::from_micros(7_531),
    Duration::from_millis(20),
];

#[test]
fn a_callback_never_runs_before_its_deadline() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let mut count = 0;
    for _ in 0..10 {
        for delay in DELAYS {
            // The test reads the clock before the call, so the timer's deadline is at least
            // `asked`.
            let asked = Instant::now() + delay;
            runtime.handle().after(delay, reporter(&sender, asked));
            let asked = Instant::now() + delay;
            runtime.handle().after(delay, reporter(&sender, asked));
            let asked = Instant::now() + delay;
            runtime.handle().at(asked, reporter(&sender, asked));
            let asked = Instant::now() + delay;
            runtime.handle().at(asked, reporter(&sender, asked));
            let asked = Instant::now() + delay;
            let armed = Timer::after(delay)
                .on(runtime.handle())
                .try_start(reporter(&sender, asked));
            armed.expect("there is no bound");
            let asked = Instant::now() + delay;
            let armed = Timer::at(asked)
                .on(runtime.handle())
                .try_start(reporter(&sender, asked));
            armed.expect("there is no bound");
            count += 6;
        }
    }
    none_early(&receiver, count);
    assert!(receiver.try_recv().is_err(), "none runs twice");
}

/// Arms one timer of each delay with the free functions. Returns how many.
fn arm_here(sender: &mpsc::Sender<Report>) -> usize {
    for delay in DELAYS {
        let asked = Instant::now() + delay;
        tourbillon::after(delay, reporter(sender, asked));
        let asked = Instant::now() + delay;
        tourbillon::at(asked, reporter(sender, asked));
        let asked = Instant::now() + delay;
        Timer::after(delay)
            .try_start(reporter(sender, asked))
            .expect("there is no bound");
        let asked = Instant::now() + delay;
        Timer::at(asked)
            .try_start(reporter(sender, asked))
            .expect("there is no bound");
    }
    4 * DELAYS.len()
}

#[test]
fn free_functions_arm_on_the_current_runtime() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let mut count = 0;
    {
        let sender = sender.clone();
        count += on_worker(&runtime, move || arm_here(&sender));
    }
    {
        let sender = sender.clone();
        let task = runtime.spawn(async move { arm_here(&sender) });
        count += runtime.block_on(task).unwrap();
    }
    count += runtime.block_on(async { arm_here(&sender) });
    {
        let _entered = runtime.enter();
        count += arm_here(&sender);
    }
    none_early(&receiver, count);
    assert!(receiver.try_recv().is_err(), "none runs twice");
}

#[test]
fn one_worker_runs_its_timers_in_deadline_order() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let order = Arc::new(Mutex::new(Vec::new()));
    let expected: Vec<u64> = (0..500).collect();
    {
        let order = order.clone();
        // Armed by a callback: none of them can run before the last is armed.
        on_worker(&runtime, move || {
            let base = Instant::now() + Duration::from_millis(2);
            for i in 0..500 {
                // A permutation, since 500 and 37 have no common divisor.
                let place = i * 37 % 500;
                let order = order.clone();
                tourbillon::at(base + Duration::from_micros(3 * place), move || {
                    order.lock().unwrap().push(place);
                });
            }
        });
    }
    eventually("all of them run", || order.lock().unwrap().len() == 500);
    assert_eq!(*order.lock().unwrap(), expected);
}

#[test]
fn callbacks_behind_a_blocked_callback_run_on_another_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..20 {
        let all_ran = Gate::new();
        let left = Arc::new(AtomicUsize::new(50));
        let blocked = Arc::new(AtomicBool::new(false));
        let done = Gate::new();
        {
            let (all_ran, done, blocked) = (all_ran.clone(), done.clone(), blocked.clone());
            on_worker(&runtime, move || {
                let past = Instant::now();
                let gate = all_ran.clone();
                // The worker that runs this callback waits for the others, which are queued behind
                // it.
                tourbillon::at(past, move || {
                    blocked.store(!gate.wait_for(PATIENCE / 2), Ordering::SeqCst);
                    done.open();
                });
                for _ in 0..50 {
                    let (left, gate) = (left.clone(), all_ran.clone());
                    tourbillon::at(past + Duration::from_nanos(1), move || {
                        if left.fetch_sub(1, Ordering::SeqCst) == 1 {
                            gate.open();
                        }
                    });
                }
            });
        }
        done.wait();
        let blocked = blocked.load(Ordering::SeqCst);
        assert!(!blocked, "what was queued behind it did not run elsewhere");
    }
    assert!(runtime.metrics().total().steal_operations() > 0);
}

#[test]
fn a_dropped_timer_still_fires() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let asked = Instant::now() + Duration::from_millis(2);
    drop(runtime.handle().at(asked, reporter(&sender, asked)));
    {
        let sender = sender.clone();
        on_worker(&runtime, move || {
            drop(tourbillon::at(asked, reporter(&sender, asked)));
        });
    }
    none_early(&receiver, 2);
    let (tick, ticks) = mpsc::channel();
    drop(runtime.handle().every(Duration::from_millis(1), move || {
        let _ = tick.send(());
    }));
    for _ in 0..3 {
        ticks.recv_timeout(PATIENCE).expect("it goes on");
    }
}

#[test]
fn a_dropped_guard_cancels_its_timer_unless_detached() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let drops = Drops::new();
    let token = drops.token();
    let guard = runtime
        .handle()
        .after(HOUR, move || drop(token))
        .cancel_on_drop();
    assert!(guard.is_pending());
    assert_eq!(guard.reset_after(2 * HOUR), Reset::Pending);
    assert_eq!(drops.count(), 0);
    drop(guard);
    assert_eq!(drops.count(), 1);
    assert_eq!(runtime.metrics().total().cancelled(), 1);

    let token = drops.token();
    let guard = runtime
        .handle()
        .after(HOUR, move || drop(token))
        .cancel_on_drop();
    let timer = guard.detach();
    assert!(timer.is_pending());
    assert_eq!(drops.count(), 1);
    assert_eq!(timer.cancel(), Cancel::Cancelled);

    // A timer that is cancelled twice counts once.
    let guard = runtime.handle().after(HOUR, || ()).cancel_on_drop();
    assert_eq!(guard.cancel(), Cancel::Cancelled);
    drop(guard);
    assert_eq!(runtime.metrics().total().cancelled(), 3);
}

#[test]
fn a_delay_of_zero_runs_at_once_but_never_on_the_callers_stack() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let caller = thread::current().id();
    let (sender, receiver) = mpsc::channel();
    runtime.handle().after(Duration::ZERO, move || {
        sender.send(thread::current().id()).unwrap();
    });
    assert_ne!(receiver.recv_timeout(PATIENCE).unwrap(), caller);

    let (sender, receiver) = mpsc::channel();
    on_worker(&runtime, move || {
        let returned = Arc::new(AtomicBool::new(false));
        let past = Instant::now();
        for i in 0..3 {
            let (returned, sender) = (returned.clone(), sender.clone());
            let f = move || sender.send(returned.load(Ordering::SeqCst)).unwrap();
            match i {
                0 => tourbillon::after(Duration::ZERO, f),
                1 => tourbillon::after(Duration::from_nanos(1), f),
                _ => tourbillon::at(past, f),
            };
        }
        // This is the only worker, so no callback runs before this one returns.
        thread::sleep(Duration::from_millis(1));
        returned.store(true, Ordering::SeqCst);
    });
    for _ in 0..3 {
        assert!(receiver.recv_timeout(PATIENCE).unwrap());
    }
}

#[test]
fn a_deadline_before_the_start_of_the_runtime_is_due_at_once() {
    let _alarm = alarm();
    let before = Instant::now();
    thread::sleep(Duration::from_millis(1));
    let runtime = runtime(1);
    let (sender, receiver) = mpsc::channel();
    let timer = runtime.handle().at(before, reporter(&sender, before));
    none_early(&receiver, 1);
    eventually("it is over", || {
        timer.status() == Status::Over(Outcome::Fired)
    });
    let timer = runtime.handle().after(HOUR, reporter(&sender, before));
    assert_eq!(timer.reset_at(before), Reset::Pending);
    none_early(&receiver, 1);
}

#[test]
fn a_timer_with_an_unlimited_delay_can_be_moved_and_cancelled() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let never = || -> [Timer; 4] {
        [
            runtime.handle().after(Duration::MAX, || ()),
            runtime.handle().every(Duration::MAX, || ()),
            // 100 years are more than the clock's range of 73 years.
            runtime.handle().after(876_000 * HOUR, || ()),
            runtime.handle().at(Instant::now() + 876_000 * HOUR, || ()),
        ]
    };
    for timer in never() {
        assert!(timer.is_pending());
        assert_eq!(timer.deadline(), None, "it is never due");
        assert_eq!(timer.refresh(), Reset::Pending);
        assert_eq!(timer.deadline(), None);
        assert_eq!(timer.reset_after(Duration::MAX), Reset::Pending);
        assert_eq!(timer.reset_from_start(Duration::MAX), Reset::Pending);
        assert!(timer.is_pending());
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_over(&timer, Outcome::Cancelled);
    }
    for timer in never() {
        // A timer that is never due does not fire when others do.
        on_worker(&runtime, || ());
        assert!(timer.is_pending());
        assert_eq!(timer.reset_at(Instant::now()), Reset::Pending);
        eventually("it fires", || {
            runtime.metrics().total().callbacks() > 0 && timer.deadline().is_none()
        });
        timer.cancel();
    }
    // A timer with a deadline can be put off for ever.
    let timer = runtime.handle().after(HOUR, || ());
    assert_eq!(timer.reset_after(Duration::MAX), Reset::Pending);
    assert_eq!(timer.deadline(), None);
    assert!(timer.is_pending());
}

#[test]
fn callbacks_can_arm_callbacks_on_a_single_worker() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let done = Gate::new();
    fn chain(left: usize, early: Arc<AtomicUsize>, done: Gate) {
        if left == 0 {
            return done.open();
        }
        let asked = Instant::now() + Duration::from_nanos((left % 5_000) as u64);
        tourbillon::at(asked, move || {
            if Instant::now() < asked {
                early.fetch_add(1, Ordering::SeqCst);
            }
            chain(left - 1, early, done);
        });
    }
    let early = Arc::new(AtomicUsize::new(0));
    {
        let (early, done) = (early.clone(), done.clone());
        on_worker(&runtime, move || chain(5_000, early, done));
    }
    done.wait();
    assert_eq!(early.load(Ordering::SeqCst), 0);
    let total = runtime.metrics().total();
    assert_eq!(total.armed(), 5_001);
}

#[test]
fn a_hundred_thousand_timers_of_four_threads_all_fire_once() {
    let _alarm = alarm();
    const THREADS: usize = 4;
    const EACH: usize = 25_000;
    let runtime = runtime(2);
    let ran: Arc<Vec<AtomicU8>> = Arc::new((0..THREADS * EACH).map(|_| AtomicU8::new(0)).collect());
    let early = Arc::new(AtomicUsize::new(0));
    let count = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (ran, early, count) = (ran.clone(), early.clone(), count.clone());
            let handle: Handle = runtime.handle().clone();
            scope.spawn(move || {
                let mut random = crate::common::Random::new(thread as u64);
                for i in 0..EACH {
                    let (ran, early, count) = (ran.clone(), early.clone(), count.clone());
                    let asked = Instant::now() + Duration::from_micros(random.below(50_000));
                    handle.at(asked, move || {
                        if Instant::now() < asked {
                            early.fetch_add(1, Ordering::SeqCst);
                        }
                        ran[thread * EACH + i].fetch_add(1, Ordering::SeqCst);
                        count.fetch_add(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
    eventually("all of them ran", || {
        count.load(Ordering::SeqCst) >= THREADS * EACH
    });
    assert!(ran.iter().all(|ran| ran.load(Ordering::SeqCst) == 1));
    assert_eq!(early.load(Ordering::SeqCst), 0);
    eventually("the metrics say the same", || {
        let total = runtime.metrics().total();
        (total.armed(), total.fired(), total.callbacks()) == (100_000, 100_000, 100_000)
    });
}

#[test]
fn timers_of_many_threads_are_spread_over_all_workers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    // A worker that has not slept yet would be passed over.
    eventually("both workers have slept", || {
        let metrics = runtime.metrics();
        metrics.workers().iter().all(|w| w.counts().parks() > 0)
    });
    thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| drop(runtime.handle().after(HOUR, || ())));
        }
    });
    eventually("all of them are stored", || {
        let metrics = runtime.metrics();
        metrics.workers().iter().map(|w| w.stored()).sum::<usize>() == 64 || {
            // Arrivals stand in the inbox until the worker has a reason to look.
            let _entered = runtime.enter();
            for _ in 0..2 {
                tourbillon::after(Duration::ZERO, || ());
            }
            false
        }
    });
    for worker in runtime.metrics().workers() {
        assert!(worker.stored() > 0, "a worker has none of 64 timers");
    }
}

#[test]
fn full_inboxes_are_drained_while_the_workers_sleep() {
    const TIMERS: usize = 100_000;
    // A remote thread arms 1,024 timers in a row on one worker. An inbox may keep two such runs
    // and a part of a third, if the other worker was passed over in between.
    const LEFT: usize = 3 * 1_024;
    let _alarm = alarm();
    let runtime = runtime(2);
    for _ in 0..TIMERS {
        runtime.handle().after(HOUR, || ());
    }
    // No timer comes due, so no timer wakes the workers.
    eventually(
        "no more stand in the inboxes than of the last turns",
        || {
            let metrics = runtime.metrics();
            let stored: usize = metrics.workers().iter().map(|w| w.stored()).sum();
            stored >= TIMERS - LEFT
        },
    );
}

#[test]
fn timers_cancelled_by_a_remote_thread_do_not_pile_up() {
    let _alarm = alarm();
    let runtime = runtime(1);
    for _ in 0..50_000 {
        assert_eq!(
            runtime.handle().after(HOUR, || ()).cancel(),
            Cancel::Cancelled
        );
    }
    // The worker, or the next canceller, sweeps timers that were cancelled while the worker held
    // its shard's lock.
    eventually(
        "no more are left than the bound that the shard promises",
        || {
            assert_eq!(
                runtime.handle().after(HOUR, || ()).cancel(),
                Cancel::Cancelled
            );
            let metrics = runtime.metrics();
            let worker = &metrics.workers()[0];
            worker.garbage() <= 64.max(worker.stored() / 4) + 1 && worker.stored() <= 1_000
        },
    );
}

#[test]
fn a_due_timer_is_stolen_while_its_worker_runs_its_next_task() {
    let _alarm = alarm();
    let runtime = tourbillon::runtime::Builder::new()
        .worker_threads(2)
        .event_interval(1)
        .build()
        .unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let served = Gate::new();
    let gate = served.clone();
    runtime.spawn(async move {
        let (waker_sender, waker) = std::sync::mpsc::channel();
        let mut first = true;
        // Once woken, this task occupies its worker until the timer has run elsewhere.
        tourbillon::spawn(std::future::poll_fn(move |cx| {
            if std::mem::take(&mut first) {
                waker_sender.send(cx.waker().clone()).unwrap();
                return std::task::Poll::Pending;
            }
            sender.send(gate.wait_for(PATIENCE)).unwrap();
            std::task::Poll::Ready(())
        }));
        tourbillon::time::sleep(Duration::from_millis(20)).await;
        tourbillon::after(Duration::from_millis(5), move || served.open());
        std::thread::sleep(Duration::from_millis(10));
        waker.recv().unwrap().wake();
    });
    let stolen = receiver.recv_timeout(2 * PATIENCE).unwrap();
    assert!(stolen, "the timer waited for the task");
}
