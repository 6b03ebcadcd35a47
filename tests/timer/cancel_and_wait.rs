//! After `cancel_and_wait` has returned, the callback does not run and never runs again.

use std::{
    pin::pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

use crate::common::{
    Drops, Gate, HOUR, PATIENCE, alarm, eventually, on_worker, runtime,
    told::{Told, stick_a_worker, worker_number},
};
use futures_lite::future::{block_on, poll_once};
use tourbillon::{
    Runtime, Timer,
    timer::{Cancel, Outcome, Status, WaitError},
};

type Way = fn(&Timer) -> Result<Cancel, WaitError>;

/// Both ways to wait, from a thread that is no worker.
const WAYS: [Way; 2] = [
    |timer| timer.blocking_cancel_and_wait(),
    |timer| block_on(timer.cancel_and_wait()),
];

#[test]
fn returns_at_once_if_the_callback_does_not_run() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // The only worker is blocked, so a call that needed the worker would not return before
    // `release`.
    let (_, release) = stick_a_worker(runtime.handle());
    for wait in WAYS {
        let drops = Drops::new();
        let token = drops.token();
        let pending = runtime.handle().after(HOUR, move || drop(token));
        assert_eq!(wait(&pending), Ok(Cancel::Cancelled));
        assert_eq!(drops.count(), 1);
        assert_eq!(wait(&pending), Ok(Cancel::Over));
        assert_eq!(
            wait(&runtime.handle().every(HOUR, || ())),
            Ok(Cancel::Cancelled)
        );
        let token = drops.token();
        let built = Timer::after(HOUR)
            .on(runtime.handle())
            .manual()
            .start(move || drop(token));
        assert_eq!(wait(&built), Ok(Cancel::Cancelled));
        assert_eq!(drops.count(), 2);
        let told = Told::new();
        let built = Timer::after(HOUR).on(runtime.handle());
        let built = built.manual().start_with(told.once());
        assert_eq!(wait(&built), Ok(Cancel::Cancelled));
        assert_eq!(told.total(), 0, "it is told when it is started");
    }
    release.open();
    for wait in WAYS {
        let fired = runtime.handle().after(Duration::ZERO, || ());
        eventually("it fires", || {
            fired.status() == Status::Over(Outcome::Fired)
        });
        assert_eq!(wait(&fired), Ok(Cancel::Over));
    }
    let handle = runtime.handle().clone();
    let kept = runtime.handle().after(HOUR, || ());
    drop(runtime);
    for wait in WAYS {
        assert_eq!(wait(&handle.after(HOUR, || ())), Ok(Cancel::Over));
        assert_eq!(wait(&kept), Ok(Cancel::Over));
    }
}

/// Checks that both waiting calls return only after the timer's callback. `start` starts the
/// timer, and the first call answers `answer`.
fn waits_for_a_run(start: impl Fn(&Runtime, Box<dyn Fn() + Send>) -> Timer, answer: Cancel) {
    for wait in WAYS {
        let runtime = runtime(2);
        let (started, go_on) = (Gate::new(), Gate::new());
        let inside = Arc::new(AtomicBool::new(false));
        let timer = {
            let (started, go_on, inside) = (started.clone(), go_on.clone(), inside.clone());
            start(
                &runtime,
                Box::new(move || {
                    inside.store(true, Ordering::SeqCst);
                    started.open();
                    go_on.wait();
                    thread::yield_now();
                    inside.store(false, Ordering::SeqCst);
                }),
            )
        };
        started.wait();
        let ended = AtomicUsize::new(0);
        thread::scope(|scope| {
            // Several threads may wait at once, in either way.
            for wait in [wait, WAYS[0], WAYS[1]] {
                let (timer, ended, inside) = (&timer, &ended, &inside);
                scope.spawn(move || {
                    let answered = wait(timer).unwrap();
                    assert!(!inside.load(Ordering::SeqCst), "it is running still");
                    // The first call gets `answer`, and each later call gets `Over`.
                    assert!(answered == answer || answered == Cancel::Over);
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
            eventually("one has asked", || {
                timer.status() == Status::Running { last: true }
            });
            thread::sleep(Duration::from_millis(2));
            assert_eq!(ended.load(Ordering::SeqCst), 0, "it runs");
            go_on.open();
        });
        assert!(matches!(timer.status(), Status::Over(_)));
    }
}

#[test]
fn waits_for_a_running_callback() {
    let _alarm = alarm();
    waits_for_a_run(
        |runtime, f| runtime.handle().after(Duration::ZERO, f),
        Cancel::Running,
    );
    let on = |runtime: &Runtime| runtime.handle().clone();
    waits_for_a_run(
        |runtime, f| Timer::after(Duration::ZERO).on(&on(runtime)).start(f),
        Cancel::Running,
    );
}

#[test]
fn waits_for_the_last_run_of_a_recurring_timer() {
    let _alarm = alarm();
    let period = Duration::from_micros(200);
    waits_for_a_run(
        |runtime, f| runtime.handle().every(period, f),
        Cancel::AfterRun,
    );
    waits_for_a_run(
        |runtime, f| Timer::every(period).on(runtime.handle()).start(f),
        Cancel::AfterRun,
    );
}

#[test]
fn waits_for_the_delivery_of_the_outcome() {
    let _alarm = alarm();
    // First the outcome of a run, then the outcome of a cancellation.
    waits_for_a_run(
        |runtime, f| {
            let builder = Timer::after(Duration::ZERO).on(runtime.handle());
            builder.start_with(move |_| f())
        },
        Cancel::Running,
    );
    waits_for_a_run(
        |runtime, f| {
            let timer = Timer::after(HOUR)
                .on(runtime.handle())
                .start_with(move |how| {
                    assert_eq!(how, Outcome::Cancelled);
                    f();
                });
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            timer
        },
        Cancel::Over,
    );
    let runtime = runtime(2);
    for wait in WAYS {
        let told = Told::new();
        let note = told.clone();
        let timer = Timer::after(HOUR)
            .on(runtime.handle())
            .start_with(move |how| {
                thread::sleep(Duration::from_millis(1));
                note.note(how);
            });
        assert_eq!(wait(&timer), Ok(Cancel::Cancelled));
        assert_eq!(told.all(), [0, 1, 0], "it has been told by then");
        let note = told.clone();
        let every = Timer::every(Duration::from_micros(50)).on(runtime.handle());
        let every = every.start_with(move |how| note.note(how));
        eventually("it runs", || told.count(Outcome::Fired) > 0);
        wait(&every).unwrap();
        let all = told.all();
        assert_eq!(all[1..], [2, 0]);
        thread::sleep(Duration::from_micros(200));
        assert_eq!(told.all(), all, "and never again");
    }
}

#[test]
fn a_wait_in_the_timers_own_callback_cancels_and_returns_an_error() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let period = Duration::from_millis(1);
    for way in WAYS {
        let (sender, answers) = mpsc::channel();
        // The callback waits for the timer that it finds in the cell.
        let wait = |cell: &Arc<OnceLock<Timer>>| {
            let (cell, sender) = (cell.clone(), sender.clone());
            move || sender.send(way(cell.wait())).unwrap()
        };
        let expect = |cell: Arc<OnceLock<Timer>>, timer: Timer, cancel| {
            cell.set(timer).unwrap();
            let answer = answers
                .recv_timeout(PATIENCE)
                .expect("it does not wait for ever");
            assert_eq!(answer, Err(WaitError::InsideCallback(cancel)));
            assert_eq!(answer.unwrap_err().cancel(), cancel);
            let timer = cell.wait();
            eventually("it ends", || matches!(timer.status(), Status::Over(_)));
            timer.status()
        };
        let cell = Arc::new(OnceLock::new());
        let once = runtime.handle().after(Duration::ZERO, wait(&cell));
        assert_eq!(
            expect(cell, once, Cancel::Running),
            Status::Over(Outcome::Fired)
        );

        let cell = Arc::new(OnceLock::new());
        let every = runtime.handle().every(period, wait(&cell));
        assert_eq!(
            expect(cell, every, Cancel::AfterRun),
            Status::Over(Outcome::Cancelled)
        );

        let cell = Arc::new(OnceLock::new());
        let inside = wait(&cell);
        let told = Timer::after(HOUR)
            .on(runtime.handle())
            .start_with(move |how| {
                assert_eq!(how, Outcome::Cancelled);
                inside();
            });
        assert_eq!(told.cancel(), Cancel::Cancelled);
        assert_eq!(
            expect(cell, told, Cancel::Over),
            Status::Over(Outcome::Cancelled)
        );

        let cell = Arc::new(OnceLock::new());
        let inside = wait(&cell);
        let told = Timer::every(period)
            .on(runtime.handle())
            .start_with(move |how| {
                if how == Outcome::Fired {
                    inside();
                }
            });
        assert_eq!(
            expect(cell, told, Cancel::AfterRun),
            Status::Over(Outcome::Cancelled)
        );
    }
}

#[test]
fn the_blocking_call_fails_on_a_worker_but_tasks_can_wait() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let pending = runtime.handle().after(HOUR, || ());
    let (pending, answer) = on_worker(&runtime, move || {
        let answer = pending.blocking_cancel_and_wait();
        (pending, answer)
    });
    assert_eq!(answer, Err(WaitError::OnWorker(Cancel::Cancelled)));
    assert_eq!(pending.status(), Status::Over(Outcome::Cancelled));
    assert!(answer.unwrap_err().to_string().contains("cancel_and_wait"));
    let other = crate::common::runtime(1);

    let (started, go_on) = (Gate::new(), Gate::new());
    let (gate, wait) = (started.clone(), go_on.clone());
    let running = runtime.handle().after(Duration::ZERO, move || {
        gate.open();
        wait.wait();
    });
    started.wait();
    let waits = other.spawn(async move {
        let mut ended = pin!(running.cancel_and_wait());
        assert_eq!(poll_once(ended.as_mut()).await, None);
        go_on.open();
        ended.await
    });
    assert_eq!(other.block_on(waits).unwrap(), Ok(Cancel::Running));
}

#[test]
fn callbacks_can_wait_for_each_other_in_tasks() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let cells: [Arc<OnceLock<Timer>>; 2] = [Arc::default(), Arc::default()];
    let (sender, answers) = mpsc::channel();
    let (report, started) = mpsc::channel();
    let both = Gate::new();
    let run = |other: usize| {
        let (cell, sender) = (cells[other].clone(), sender.clone());
        let (report, both) = (report.clone(), both.clone());
        move || {
            report.send(worker_number()).unwrap();
            both.wait();
            // The task goes on when the callback has returned.
            tourbillon::spawn(async move {
                let _ = sender.send(cell.wait().cancel_and_wait().await);
            });
        }
    };
    let one = Timer::after(Duration::ZERO)
        .on(runtime.handle())
        .start(run(1));
    let busy = started.recv_timeout(PATIENCE).expect("it runs");
    let free = 1 - busy.expect("on a worker");
    let two = Timer::after(Duration::ZERO).on(runtime.handle());
    let two = two.on_worker(free).start(run(0));
    started.recv_timeout(PATIENCE).expect("it runs");
    cells[0].set(one).unwrap();
    cells[1].set(two).unwrap();
    both.open();
    for _ in 0..2 {
        let answer = answers
            .recv_timeout(PATIENCE)
            .expect("neither waits for ever");
        assert!(answer.is_ok(), "{answer:?}");
    }
}

#[test]
fn borrowed_data_of_the_callback_can_be_freed_after_the_wait() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let inside = Arc::new(AtomicUsize::new(0));
    let f = || {
        let inside = inside.clone();
        move || {
            inside.fetch_add(1, Ordering::SeqCst);
            std::hint::spin_loop();
            inside.fetch_sub(1, Ordering::SeqCst);
        }
    };
    for round in 0..3_000_u64 {
        let delay = Duration::from_micros(round % 60);
        let timer = match round % 5 {
            0 => handle.after(delay, f()),
            1 => handle.every(Duration::from_micros(5), f()),
            2 => Timer::after(delay).on(handle).name("used").start(f()),
            3 => {
                let f = f();
                Timer::after(delay).on(handle).start_with(move |_| f())
            }
            _ => {
                let f = f();
                let every = Timer::every(Duration::from_micros(5)).on(handle);
                every.start_with(move |_| f())
            }
        };
        if round % 3 == 0 {
            thread::yield_now();
        }
        let answer = if round % 2 == 0 {
            timer.blocking_cancel_and_wait()
        } else {
            runtime.block_on(timer.cancel_and_wait())
        };
        assert!(answer.is_ok());
        assert_eq!(inside.load(Ordering::SeqCst), 0, "it runs in round {round}");
        assert!(matches!(timer.status(), Status::Over(_)));
    }
}
