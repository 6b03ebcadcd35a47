//! A timer that is built but not started. It can be cancelled, and then its start delivers the
//! outcome. If it is dropped, nothing runs.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use crate::common::{
    Drops, HOUR, PATIENCE, alarm, eventually, on_worker, runtime,
    told::{Told, read_inboxes, worker_number},
};
use tourbillon::{
    Timer,
    time::BootInstant,
    timer::{Cancel, Outcome, Reset, Started, Status},
};

const SOON: Duration = Duration::from_millis(2);

#[test]
fn the_delay_begins_with_the_start() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    let timer = {
        let sender = sender.clone();
        Timer::after(5 * SOON)
            .on(runtime.handle())
            .manual()
            .start(move || {
                sender.send(Instant::now()).unwrap();
            })
    };
    let every = Timer::every(5 * SOON).on(runtime.handle()).times(1);
    let every = every.manual().start_with(move |how| {
        assert_eq!(how, Outcome::Fired);
        sender.send(Instant::now()).unwrap();
    });
    for timer in [&timer, &every] {
        assert_eq!(
            (timer.status(), timer.deadline()),
            (Status::NotStarted, None)
        );
        assert!(!timer.is_pending());
    }
    // This is longer than the delay, and the workers had occasion to run the timer.
    thread::sleep(6 * SOON);
    read_inboxes(runtime.handle());
    assert!(receiver.try_recv().is_err());
    assert_eq!(timer.status(), Status::NotStarted);
    for timer in [timer, every] {
        let start = Instant::now();
        assert_eq!(timer.start(), Started::Pending);
        let ran = receiver.recv_timeout(PATIENCE).expect("it runs");
        assert!(ran >= start + 5 * SOON);
        eventually("it is over", || {
            timer.status() == Status::Over(Outcome::Fired)
        });
    }
    // The deadline of a timer of one hour is an hour from its start.
    let timer = Timer::after(HOUR)
        .on(runtime.handle())
        .manual()
        .start(|| ());
    thread::sleep(SOON);
    let before = Instant::now();
    assert_eq!(timer.start(), Started::Pending);
    assert!(timer.deadline().unwrap().into_std() >= before + HOUR);
    assert_eq!(timer.cancel(), Cancel::Cancelled);
    // The same holds on the boot clock.
    let timer = Timer::after_boot(HOUR)
        .on(runtime.handle())
        .manual()
        .start(|| ());
    thread::sleep(SOON);
    let before = BootInstant::now();
    assert_eq!(timer.start(), Started::Pending);
    assert!(timer.deadline().unwrap() >= before + HOUR);
}

#[test]
fn a_timer_cancelled_before_its_start_gets_one_outcome_on_a_worker() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, told) = mpsc::channel();
    let tells = || {
        let sender = sender.clone();
        move |how| sender.send((how, worker_number())).unwrap()
    };
    let (drops, token) = (Drops::new(), Drops::token);
    let mut kept = Vec::new();
    for recurring in [false, true] {
        let token = token(&drops);
        let timer = if recurring {
            let f = tells();
            Timer::every(SOON)
                .on(runtime.handle())
                .manual()
                .start_with(move |how| {
                    let _ = &token;
                    f(how);
                })
        } else {
            let f = tells();
            Timer::after(SOON)
                .on(runtime.handle())
                .manual()
                .start_with(move |how| {
                    drop(token);
                    f(how);
                })
        };
        assert_eq!(timer.cancel(), Cancel::Cancelled);
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
        assert_eq!(timer.cancel(), Cancel::Over);
        assert_eq!(timer.refresh(), Reset::TooLate);
        assert_eq!(timer.reset_after(HOUR), Reset::TooLate);
        // Only the start delivers the outcome.
        on_worker(&runtime, || ());
        assert!(told.try_recv().is_err());
        assert_eq!(timer.start(), Started::Cancelled);
        let (how, worker) = told.recv_timeout(PATIENCE).expect("it is told");
        assert_eq!(how, Outcome::Cancelled);
        assert!(worker.is_some());
        for _ in 0..2 {
            assert_eq!(timer.start(), Started::Cancelled);
        }
        kept.push(timer);
    }
    eventually("they are over", || drops.count() == 2);
    drop(runtime);
    assert!(told.try_recv().is_err(), "nobody is told twice");
    for timer in kept {
        assert_eq!(timer.status(), Status::Over(Outcome::Cancelled));
    }
}

#[test]
fn start_and_cancel_race_for_one_outcome() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for round in 0..500 {
        let told = Told::new();
        let timer = Timer::after(Duration::ZERO).on(runtime.handle());
        let timer = Arc::new(timer.manual().start_with(told.once()));
        let (mut started, mut cancelled) = (None, None);
        thread::scope(|scope| {
            scope.spawn(|| started = Some(timer.start()));
            if round % 2 == 0 {
                thread::yield_now();
            }
            cancelled = Some(timer.cancel());
        });
        eventually("it is told", || told.total() > 0);
        let how = match cancelled.unwrap() {
            Cancel::Cancelled => [0, 1, 0],
            _ => [1, 0, 0],
        };
        assert_eq!(told.all(), how, "{started:?} {cancelled:?}");
    }
}

#[test]
fn a_timer_started_after_shutdown_gets_its_outcome_on_the_caller() {
    let _alarm = alarm();
    let (told, drops) = (Told::new(), Drops::new());
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let tells = Timer::after(SOON)
        .on(&handle)
        .manual()
        .start_with(told.once());
    let wall = Timer::after_boot(SOON)
        .on(&handle)
        .manual()
        .start_with(told.once());
    let cancelled = Timer::after(SOON)
        .on(&handle)
        .manual()
        .start_with(told.once());
    let token = drops.token();
    let plain = Timer::after(SOON)
        .on(&handle)
        .name("kept")
        .manual()
        .start(move || drop(token));
    assert_eq!(cancelled.cancel(), Cancel::Cancelled);
    drop(runtime);
    assert_eq!((told.total(), tells.status()), (0, Status::NotStarted));
    assert_eq!(tells.start(), Started::Shutdown);
    assert_eq!(told.all(), [0, 0, 1]);
    assert_eq!(wall.start(), Started::Shutdown);
    assert_eq!(told.all(), [0, 0, 2]);
    assert_eq!(cancelled.start(), Started::Cancelled);
    assert_eq!(told.all(), [0, 1, 2]);
    assert_eq!((plain.start(), drops.count()), (Started::Shutdown, 1));
    for timer in [&tells, &plain] {
        assert_eq!(timer.status(), Status::Over(Outcome::Shutdown));
        assert_eq!(timer.start(), Started::Shutdown, "as before");
    }
    assert_eq!(told.all(), [0, 1, 2]);
    assert_eq!(handle.timers().named, []);

    // A timer that is built after the shutdown is over.
    let thread = Arc::new(Mutex::new(None));
    let place = thread.clone();
    let late = Timer::after(SOON)
        .on(&handle)
        .manual()
        .start_with(move |how| {
            *place.lock().unwrap() = Some((how, thread::current().id()));
        });
    let expected = Some((Outcome::Shutdown, thread::current().id()));
    assert_eq!(
        *thread.lock().unwrap(),
        expected,
        "told by the calling thread"
    );
    assert_eq!(late.start(), Started::Shutdown);
    assert_eq!(late.status(), Status::Over(Outcome::Shutdown));
}
