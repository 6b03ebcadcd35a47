//! Timers on the wall clock and on the boot clock are never early, run in order, and do not depend
//! on one worker.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::common::{
    Drops, HOUR, PATIENCE, Random, alarm, eventually, on_worker, runtime,
    told::{Told, read_inboxes, stick_a_worker},
};
use tourbillon::{
    Timer,
    time::BootInstant,
    timer::{Cancel, OnStep, Outcome, Reset, Status, WallTimer},
};

const MS: Duration = Duration::from_millis(1);

#[test]
fn wall_clock_timers_are_never_early() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    for i in 0..50_u32 {
        let at = SystemTime::now() + i * MS / 2;
        let (sender, place) = (sender.clone(), i % 3);
        let run = move || sender.send((at, SystemTime::now())).unwrap();
        match place {
            0 => drop(Timer::at_wall(at).on(runtime.handle()).start(run)),
            1 => on_worker(&runtime, move || drop(Timer::at_wall(at).start(run))),
            _ => {
                let skips = Timer::at_wall(at)
                    .on(runtime.handle())
                    .on_step(OnStep::Skip);
                drop(skips.start(run));
            }
        }
    }
    for _ in 0..50 {
        let (at, ran) = receiver.recv_timeout(PATIENCE).expect("it runs");
        assert!(ran >= at, "early by {:?}", at.duration_since(ran));
    }
}

#[test]
fn boot_clock_timers_are_never_early() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (sender, receiver) = mpsc::channel();
    for i in 0..50_u32 {
        let at = BootInstant::now() + i * MS / 2;
        let sender = sender.clone();
        let run = move || sender.send((at, BootInstant::now())).unwrap();
        match i % 3 {
            0 => drop(Timer::at_boot(at).on(runtime.handle()).start(run)),
            1 => on_worker(&runtime, move || drop(Timer::at_boot(at).start(run))),
            _ => drop(
                Timer::after_boot(i * MS / 2)
                    .on(runtime.handle())
                    .start(run),
            ),
        }
    }
    for _ in 0..50 {
        let (at, ran) = receiver.recv_timeout(PATIENCE).expect("it runs");
        assert!(ran >= at, "early by {:?}", at - ran);
    }
}

#[test]
fn past_times_are_due_at_once_and_the_far_future_never() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let handle = runtime.handle();
    let told = Told::new();
    let past = [
        UNIX_EPOCH,
        UNIX_EPOCH - 10 * HOUR,
        UNIX_EPOCH + Duration::from_secs(1_577_836_800),
        SystemTime::now() - HOUR,
        SystemTime::now(),
    ];
    for at in past {
        let _detached = Timer::at_wall(at).on(handle).start_with(told.once());
    }
    let boot = Timer::after_boot(Duration::ZERO).on(handle);
    let _detached = boot.start_with(told.once());
    eventually("all are due", || told.all() == [6, 0, 0]);

    let years = |years: u64| Duration::from_secs(years * 365 * 86_400);
    let far = Timer::at_wall(UNIX_EPOCH + years(110))
        .on(handle)
        .start(|| ());
    assert_eq!(far.deadline(), Some(UNIX_EPOCH + years(110)));
    let never = Timer::at_wall(UNIX_EPOCH + years(200))
        .on(handle)
        .start(|| ());
    let boot = Timer::after_boot(Duration::MAX).on(handle).start(|| ());
    assert_eq!((never.deadline(), boot.deadline()), (None, None));
    // These timers exist, and do not keep others from firing.
    let _detached = Timer::at_wall(SystemTime::now() + MS)
        .on(handle)
        .start_with(told.once());
    let _detached = Timer::after_boot(MS).on(handle).start_with(told.once());
    eventually("they are due", || told.all() == [8, 0, 0]);
    assert!(far.is_pending() && never.is_pending() && boot.is_pending());
    assert_eq!(never.reset_at(SystemTime::now()), Reset::Pending);
    eventually("it is due", || {
        never.status() == Status::Over(Outcome::Fired)
    });
    for cancel in [far.cancel(), boot.cancel()] {
        assert_eq!(cancel, Cancel::Cancelled);
    }
}

#[test]
fn wall_and_boot_clock_timers_can_be_cancelled_and_moved() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let drops = Drops::new();
    let now = SystemTime::now();
    let wall = || {
        let token = drops.token();
        Timer::at_wall(now + HOUR)
            .on(handle)
            .start(move || drop(token))
    };
    let timer: WallTimer = wall();
    assert_eq!(timer.deadline(), Some(now + HOUR));
    assert_eq!(timer.reset_at(now + 3 * HOUR), Reset::Pending);
    assert_eq!(timer.deadline(), Some(now + 3 * HOUR));
    assert_eq!(timer.reset_at(now + 2 * HOUR), Reset::Pending);
    assert_eq!(timer.deadline(), Some(now + 2 * HOUR));
    assert_eq!((timer.cancel(), drops.count()), (Cancel::Cancelled, 1));
    assert_eq!((timer.cancel(), timer.deadline()), (Cancel::Over, None));
    assert_eq!(timer.reset_at(now), Reset::TooLate);
    // To a deadline before the earliest one.
    let moved = wall();
    assert_eq!(moved.reset_at(SystemTime::now() + MS), Reset::Pending);
    eventually("it is due", || {
        moved.status() == Status::Over(Outcome::Fired)
    });

    let before = BootInstant::now();
    let boot = Timer::after_boot(HOUR).on(handle).start(|| ());
    assert!(boot.deadline().unwrap() >= before + HOUR);
    assert_eq!(boot.reset_after(2 * HOUR), Reset::Pending);
    assert!(boot.deadline().unwrap() >= before + 2 * HOUR);
    assert_eq!(boot.refresh(), Reset::Pending);
    assert!(boot.deadline().unwrap() >= before + 2 * HOUR);
    assert_eq!(boot.reset_from_start(MS), Reset::Pending);
    eventually("it is due", || {
        boot.status() == Status::Over(Outcome::Fired)
    });

    // Cancellation that waits for the end, and cancellation by a guard.
    let (told, timer) = (Told::new(), Timer::after_boot(HOUR).on(handle));
    let timer = timer.start_with(told.once());
    assert_eq!(timer.blocking_cancel_and_wait(), Ok(Cancel::Cancelled));
    assert_eq!(told.all(), [0, 1, 0]);
    let timer = wall();
    assert_eq!(
        runtime.block_on(timer.cancel_and_wait()),
        Ok(Cancel::Cancelled)
    );
    drop(wall().cancel_on_drop());
    assert_eq!(drops.count(), 4);
    eventually("none waits", || {
        let timers = runtime.timers();
        timers.wall.pending + timers.boot.pending == 0
    });
}

#[test]
fn thousands_of_timers_fire_in_deadline_order() {
    let _alarm = alarm();
    // The only worker runs due timers in the order in which it takes them.
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let mut random = Random::new(7);
    let came = Arc::new(Mutex::new((Vec::new(), Vec::new())));
    let (wall, boot) = (SystemTime::now(), BootInstant::now());
    for i in 0..4_000 {
        let offset = Duration::from_micros(300_000 + random.below(200_000));
        let (came, handle) = (came.clone(), handle.clone());
        let arm = move || {
            if i % 2 == 0 {
                drop(Timer::at_wall(wall + offset).on(&handle).start(move || {
                    came.lock()
                        .unwrap()
                        .0
                        .push((offset, SystemTime::now() >= wall + offset));
                }));
            } else {
                drop(Timer::at_boot(boot + offset).on(&handle).start(move || {
                    came.lock()
                        .unwrap()
                        .1
                        .push((offset, BootInstant::now() >= boot + offset));
                }));
            }
        };
        if i % 40 == 0 {
            on_worker(&runtime, arm)
        } else {
            arm()
        }
    }
    // A worker reads a long inbox in parts. Timers that are late would come in the order in which
    // the worker reads them.
    eventually("all are read", || {
        read_inboxes(runtime.handle());
        // Count the timers that fired first. A timer that fires in between then counts nowhere,
        // and not twice.
        let came = {
            let came = came.lock().unwrap();
            came.0.len() + came.1.len()
        };
        let timers = runtime.timers();
        came + timers.wall.pending + timers.boot.pending == 4_000
    });
    let armed_by = wall.elapsed().expect("nobody sets the clock");
    eventually("all have come", || {
        let came = came.lock().unwrap();
        came.0.len() + came.1.len() == 4_000
    });
    let came = came.lock().unwrap();
    for came in [&came.0, &came.1] {
        assert!(came.iter().all(|(_, in_time)| *in_time), "never early");
        // Timers that were due before the whole inbox was read may have run before earlier ones.
        let rest: Vec<_> = came
            .iter()
            .filter(|(offset, _)| *offset > armed_by)
            .collect();
        assert!(rest.is_sorted());
    }
}

#[test]
fn a_new_earliest_timer_is_not_missed() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    let mut kept = Vec::new();
    for round in 0..300_u32 {
        // The other timers wait longer and longer in even rounds, and shorter and shorter in odd
        // rounds.
        let later = HOUR + round * MS - (round % 2) * 2 * round * MS;
        kept.push(
            Timer::at_wall(SystemTime::now() + later)
                .on(handle)
                .start(|| ()),
        );
        let (sender, fired) = mpsc::channel();
        let (handle, at) = (handle.clone(), SystemTime::now() + round % 4 * MS / 4);
        let arm = move || {
            let _detached = Timer::at_wall(at)
                .on(&handle)
                .start(move || sender.send(()).unwrap());
        };
        if round % 3 == 0 {
            on_worker(&runtime, arm)
        } else {
            arm()
        }
        assert_eq!(fired.recv_timeout(PATIENCE), Ok(()), "in round {round}");
    }
    assert!(kept.iter().all(WallTimer::is_pending));
}

#[test]
fn a_blocked_worker_does_not_delay_wall_and_boot_timers() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let handle = runtime.handle();
    for _ in 0..20 {
        let told = Told::new();
        let before = Timer::at_wall(SystemTime::now() + 3 * MS).on(handle);
        let _detached = before.start_with(told.once());
        let boot = Timer::after_boot(3 * MS).on(handle);
        let _detached = boot.start_with(told.once());
        let (_, release) = stick_a_worker(handle);
        let _detached = Timer::at_wall(SystemTime::now() + MS)
            .on(handle)
            .start_with(told.once());
        let _detached = Timer::after_boot(MS).on(handle).start_with(told.once());
        eventually("they fire", || told.all() == [4, 0, 0]);
        assert!(!release.is_open());
        release.open();
    }
}

#[test]
fn shutdown_ends_wall_and_boot_timers_and_refuses_more() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let (told, drops) = (Told::new(), Drops::new());
    let handle = runtime.handle().clone();
    for i in 0..1_000_u32 {
        let wall = Timer::at_wall(SystemTime::now() + HOUR + i * MS).on(&handle);
        let _detached = wall.start_with(told.once());
        let _detached = Timer::after_boot(HOUR + i * MS)
            .on(&handle)
            .start_with(told.once());
        let token = drops.token();
        let _detached = Timer::at_wall(SystemTime::now() + HOUR)
            .on(&handle)
            .start(move || drop(token));
    }
    let kept = Timer::after_boot(HOUR).on(&handle).start(|| ());
    let ending = thread::spawn(move || drop(runtime));
    ending.join().unwrap();
    assert_eq!((told.all(), drops.count()), ([0, 0, 2_000], 1_000));
    assert_eq!(kept.status(), Status::Over(Outcome::Shutdown));
    assert_eq!(kept.reset_after(MS), Reset::TooLate);
    let late = Timer::at_wall(SystemTime::now()).on(&handle);
    assert_eq!(
        late.try_start(|| ()).err(),
        Some(tourbillon::ArmError::Shutdown)
    );
    let late = Timer::at_wall(SystemTime::now())
        .on(&handle)
        .start(|| unreachable!());
    assert_eq!(late.status(), Status::Over(Outcome::Shutdown));
    let timers = handle.timers();
    assert_eq!((timers.wall.pending, timers.boot.next_deadline), (0, None));
}
