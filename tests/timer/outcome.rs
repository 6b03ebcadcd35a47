//! A callback with an outcome gets exactly one, on a worker, and it agrees with the answer of
//! `cancel`.

use std::{
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, Random, alarm, eventually,
    panics::{assert_alive, panics},
    runtime,
    told::{Told, read_inboxes, worker_number},
};
use tourbillon::{
    Handle, Runtime, Timer,
    timer::{Cancel, Outcome, Status},
};

/// A timer, and the outcomes that its callback took.
#[derive(Default)]
struct Case {
    timer: OnceLock<Timer>,
    told: Told,
    cancelled: AtomicUsize,
}

impl Case {
    fn cancel(&self) {
        let answer = self.timer.get().map(Timer::cancel);
        if answer == Some(Cancel::Cancelled) {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Checks that the callback took one outcome and that all answers agree with it. Returns the
    /// outcome.
    #[track_caller]
    fn check(&self) -> Outcome {
        let how = match self.told.all() {
            [1, 0, 0] => Outcome::Fired,
            [0, 1, 0] => Outcome::Cancelled,
            [0, 0, 1] => Outcome::Shutdown,
            told => panic!("told {told:?}"),
        };
        let timer = self.timer.get().expect("it was armed");
        assert_eq!(timer.status(), Status::Over(how));
        let cancelled = self.cancelled.load(Ordering::SeqCst);
        assert_eq!(cancelled, usize::from(how == Outcome::Cancelled));
        how
    }
}

/// Arms, cancels and shuts down at the same time, in several threads. Returns how many timers ended
/// in each way.
fn race(seed: u64, after: Duration) -> [usize; 3] {
    const ARMING: usize = 2;
    const EACH: usize = 600;
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let cases: Vec<Case> = (0..ARMING * EACH).map(|_| Case::default()).collect();
    let cases = Arc::new(cases);
    let (go, go_too) = (Gate::new(), Gate::new());
    let mut threads = Vec::new();
    for arming in 0..ARMING {
        let (cases, handle, go) = (cases.clone(), handle.clone(), go.clone());
        threads.push(thread::spawn(move || {
            let mut random = Random::new(seed * 10 + arming as u64);
            for case in &cases[arming * EACH..][..EACH] {
                let delay = match random.below(8) {
                    0 => HOUR,
                    _ => Duration::from_micros(random.below(3_000)),
                };
                let builder = Timer::after(delay).on(&handle);
                let timer = builder.start_with(case.told.once());
                case.timer.set(timer).expect("once");
            }
            go.open();
        }));
    }
    for cancelling in 0..2 {
        let (cases, go_too) = (cases.clone(), go_too.clone());
        threads.push(thread::spawn(move || {
            let mut random = Random::new(seed * 10 + 5 + cancelling);
            while !go_too.is_open() {
                cases[random.below((ARMING * EACH) as u64) as usize].cancel();
            }
            cases.iter().step_by(3).for_each(Case::cancel);
        }));
    }
    go.wait();
    thread::sleep(after);
    go_too.open();
    if seed % 2 == 0 {
        drop(runtime);
        for thread in threads {
            thread.join().expect("nothing panics");
        }
    } else {
        // All cancellations are over before the shutdown.
        for thread in threads {
            thread.join().expect("nothing panics");
        }
        drop(runtime);
    }
    let mut ends = [0; 3];
    for case in cases.iter() {
        ends[case.check() as usize] += 1;
    }
    ends
}

#[test]
fn expiry_cancel_and_shutdown_race_for_one_outcome() {
    let _alarm = alarm();
    let mut sum = [0; 3];
    for seed in 1..=12 {
        let ends = race(seed, Duration::from_micros(200 * (seed % 4)));
        for (sum, count) in sum.iter_mut().zip(ends) {
            *sum += count;
        }
    }
    assert!(sum[Outcome::Cancelled as usize] > 0, "{sum:?}");
}

#[test]
fn a_recurring_timer_gets_an_outcome_per_run_and_one_for_its_end() {
    let _alarm = alarm();
    for by_shutdown in [false, true] {
        let runtime = runtime(2);
        let told: Vec<Arc<Mutex<Vec<Outcome>>>> = (0..50).map(|_| Arc::default()).collect();
        let timers: Vec<_> = told
            .iter()
            .enumerate()
            .map(|(i, told)| {
                let told = told.clone();
                let period = Duration::from_micros(100 + 20 * i as u64);
                let builder = Timer::every(period).on(runtime.handle());
                builder.start_with(move |how| told.lock().unwrap().push(how))
            })
            .collect();
        eventually("all run", || {
            told.iter().all(|told| told.lock().unwrap().len() >= 3)
        });
        let last = if by_shutdown {
            drop(runtime);
            Outcome::Shutdown
        } else {
            for timer in &timers {
                let answer = timer.cancel();
                assert!(
                    matches!(answer, Cancel::Cancelled | Cancel::AfterRun),
                    "{answer:?}"
                );
                assert_eq!(timer.cancel(), Cancel::Over);
            }
            eventually("all are told", || {
                let over = |timer: &Timer| timer.status() == Status::Over(Outcome::Cancelled);
                timers.iter().all(over)
            });
            drop(runtime);
            Outcome::Cancelled
        };
        for (told, timer) in told.iter().zip(&timers) {
            let told = told.lock().unwrap();
            let (end, runs) = told.split_last().unwrap();
            assert_eq!(*end, last);
            assert!(runs.iter().all(|&how| how == Outcome::Fired), "{told:?}");
            assert_eq!(timer.status(), Status::Over(last));
        }
    }
}

/// Cancels a timer with `cancel`. Checks that a worker delivers the outcome, and not the caller.
#[track_caller]
fn is_told_on_a_worker(runtime: &Runtime, cancel: impl FnOnce(&Timer)) {
    let (sender, told) = mpsc::channel();
    let handle = runtime.handle().clone();
    let builder = Timer::after(HOUR).on(runtime.handle()).name("told");
    let timer = builder.start_with(move |how| {
        // The callback has the same worker context as any other callback.
        tourbillon::spawn(async {});
        let current = Handle::current().metrics().num_workers();
        let same = current == handle.metrics().num_workers();
        sender.send((how, worker_number(), same)).unwrap();
    });
    cancel(&timer);
    let (how, worker, same) = told.recv_timeout(PATIENCE).expect("it is told");
    assert_eq!(how, Outcome::Cancelled);
    assert!(worker.is_some() && same);
}

#[test]
fn the_cancelled_outcome_is_delivered_on_a_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    is_told_on_a_worker(&runtime, |timer| _ = timer.cancel());
    is_told_on_a_worker(&runtime, |_| {
        assert_eq!(runtime.handle().cancel_named("told", 9), 1)
    });
    is_told_on_a_worker(&runtime, |timer| {
        runtime.block_on(async { assert_eq!(timer.cancel(), Cancel::Cancelled) });
    });
    let other = crate::common::runtime(1);
    is_told_on_a_worker(&runtime, |_| {
        let handle = runtime.handle().clone();
        crate::common::on_worker(&other, move || {
            assert_eq!(handle.cancel_named("told", 9), 1)
        });
    });
    is_told_on_a_worker(&runtime, |_| {
        let handle = runtime.handle().clone();
        crate::common::on_worker(&runtime, move || {
            assert_eq!(handle.cancel_named("told", 9), 1)
        });
    });
}

#[test]
fn the_caller_of_cancel_may_hold_a_lock_that_the_callback_takes() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let wanted = Arc::new(Mutex::new(Told::new()));
    let wants = || {
        let wanted = wanted.clone();
        move |how| wanted.lock().unwrap().note(how)
    };
    let timer = || Timer::after(HOUR).on(runtime.handle()).name("wants");
    {
        let held = wanted.lock().unwrap();
        let cancelled = timer().start_with(wants());
        assert_eq!(cancelled.cancel(), Cancel::Cancelled);
        let named = timer().start_with(wants());
        assert_eq!(runtime.handle().cancel_all_named("wants"), 1);
        let guarded = timer().start_with(wants()).cancel_on_drop();
        drop(guarded);
        let built = timer().manual().start_with(wants());
        assert_eq!(built.cancel(), Cancel::Cancelled);
        _ = built.start();
        let wall = Timer::after_boot(HOUR)
            .on(runtime.handle())
            .start_with(wants());
        assert_eq!(wall.cancel(), Cancel::Cancelled);
        let f = wants();
        let every = Timer::every(HOUR).on(runtime.handle()).start_with(f);
        assert_eq!(every.cancel(), Cancel::Cancelled);
        assert_eq!(held.total(), 0, "nobody was told here");
        drop(named);
    }
    eventually("all are told", || wanted.lock().unwrap().all() == [0, 6, 0]);
    // The same holds for the shutdown.
    let kept = timer().start_with(wants());
    {
        let held = wanted.lock().unwrap();
        runtime.shutdown_background();
        assert_eq!(held.total(), 6);
    }
    eventually("it is told", || wanted.lock().unwrap().all() == [0, 6, 1]);
    eventually("it is over", || {
        kept.status() == Status::Over(Outcome::Shutdown)
    });
}

#[test]
fn a_callback_that_panics_on_its_outcome_is_contained() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    let start = |delay| {
        let token = drops.token();
        let builder = Timer::after(delay).on(runtime.handle()).name("panics");
        builder.start_with(move |how| {
            let _token = token;
            panic!("on purpose: {how:?}");
        })
    };
    let before = panics(&runtime);
    let fired = start(Duration::ZERO);
    eventually("it runs", || fired.status() == Status::Over(Outcome::Fired));
    let cancelled = start(HOUR);
    assert_eq!(cancelled.cancel(), Cancel::Cancelled);
    eventually("it is told", || {
        cancelled.status() == Status::Over(Outcome::Cancelled)
    });
    for _ in 0..10 {
        let _detached = start(HOUR);
    }
    assert_eq!(runtime.handle().cancel_all_named("panics"), 10);
    eventually("they are told", || drops.count() == 12);
    eventually("they are counted", || panics(&runtime) == before + 12);
    assert_alive(&runtime);
    let kept: Vec<_> = (0..10).map(|_| start(HOUR)).collect();
    drop(runtime);
    assert_eq!(drops.count(), 22);
    for timer in kept {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
    }
}

#[test]
fn a_callback_with_an_outcome_can_cancel_and_arm_timers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let told = Told::new();
    // Each callback cancels the timer before its own, the first arms another timer, and this
    // thread cancels the last timer.
    let mut last: Option<Timer> = None;
    for _ in 0..1_000 {
        let (before, told) = (last.take(), told.clone());
        let builder = Timer::after(HOUR).on(runtime.handle());
        last = Some(builder.start_with(move |how| {
            told.note(how);
            match before {
                Some(before) => assert_eq!(before.cancel(), Cancel::Cancelled),
                None => _ = Timer::after(Duration::ZERO).start_with(told.once()),
            }
        }));
    }
    assert_eq!(last.unwrap().cancel(), Cancel::Cancelled);
    eventually("all are told", || told.all() == [1, 1_000, 0]);
    read_inboxes(runtime.handle());
    assert_eq!(panics(&runtime), 0);
    assert_eq!(runtime.timers().pending(), 0);
}
