//! `TimerBuilder::times`, and built timers under `Builder::max_timers`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::{
    common::{Drops, HOUR, alarm, eventually, panics::assert_alive, runtime, told::Told},
    max_timers::bounded,
};
use tourbillon::{
    ArmError, Timer,
    timer::{Cancel, Outcome, Reset, Started, Status},
};

const PERIOD: Duration = Duration::from_micros(300);

#[test]
fn times_limits_the_number_of_runs() {
    let _alarm = alarm();
    let runtime = runtime(2);
    let drops = Drops::new();
    for (round, times) in [1, 2, 3, 7, 100].into_iter().enumerate() {
        let runs = Arc::new(AtomicUsize::new(0));
        let (token, count) = (drops.token(), runs.clone());
        let plain = Timer::every(PERIOD).on(runtime.handle()).times(times);
        let plain = plain.start(move || {
            let _ = &token;
            count.fetch_add(1, Ordering::SeqCst);
        });
        let told = Told::new();
        let (token, noted) = (drops.token(), told.clone());
        let tells = Timer::every(PERIOD).on(runtime.handle()).times(times);
        let tells = tells.start_with(move |how| {
            let _ = &token;
            noted.note(how);
        });
        for timer in [plain, tells] {
            eventually("it runs out", || {
                timer.status() == Status::Over(Outcome::Fired)
            });
            assert_eq!(timer.cancel(), Cancel::Over);
            assert_eq!(timer.refresh(), Reset::TooLate);
        }
        assert_eq!(drops.count(), 2 * round + 2, "the callbacks are dropped");
        assert_eq!(runs.load(Ordering::SeqCst), times as usize);
        assert_eq!(
            told.all(),
            [times as usize, 0, 0],
            "the last run is the outcome"
        );
    }
    // A worker counts a timer after it has reported it as over.
    eventually("all are counted", || {
        let total = runtime.metrics().total();
        (total.fired(), total.callbacks()) == (10, 2 * (1 + 2 + 3 + 7 + 100))
    });
}

#[test]
fn runs_that_panic_count() {
    let _alarm = alarm();
    let runtime = runtime(2);
    for panics in [
        [true; 4],
        [false, true, false, true],
        [true, true, true, false],
    ] {
        let (drops, runs) = (Drops::new(), Arc::new(AtomicUsize::new(0)));
        let make = || {
            let (token, runs) = (drops.token(), runs.clone());
            let mut mine = 0;
            move |_| {
                let _ = &token;
                runs.fetch_add(1, Ordering::SeqCst);
                mine += 1;
                assert!(!panics[mine - 1], "on purpose");
            }
        };
        let every = || Timer::every(PERIOD).on(runtime.handle()).times(4);
        let (mut plain, tells) = (make(), make());
        let timers = [
            every().start(move || plain(Outcome::Fired)),
            every().start_with(tells),
        ];
        for timer in timers {
            eventually("it runs out", || {
                timer.status() == Status::Over(Outcome::Fired)
            });
        }
        assert_eq!((runs.load(Ordering::SeqCst), drops.count()), (8, 2));
    }
    assert_eq!(runtime.metrics().total().panics(), 2 * (4 + 2 + 3));
    assert_alive(&runtime);
}

#[test]
fn times_of_zero_is_refused() {
    let _alarm = alarm();
    let runtime = runtime(1);
    let (drops, told) = (Drops::new(), Told::new());
    let never = || Timer::every(HOUR).on(runtime.handle()).times(0);
    let token = drops.token();
    let refused = never().try_start(move || _ = &token);
    assert_eq!(refused.err(), Some(ArmError::ZeroTimes));
    assert_eq!(drops.count(), 1);
    let note = told.clone();
    let refused = never().try_start_with(move |how| note.note(how));
    assert_eq!(refused.err(), Some(ArmError::ZeroTimes));

    let zero = || Timer::every(Duration::ZERO).on(runtime.handle());
    assert_eq!(zero().try_start(|| ()).err(), Some(ArmError::ZeroPeriod));
    assert_eq!(
        zero().try_start_with(|_| ()).err(),
        Some(ArmError::ZeroPeriod)
    );
    assert_eq!(told.total(), 0);
    assert_eq!(runtime.metrics().total().armed(), 0);
}

#[test]
fn start_accepts_a_period_and_a_count_of_zero() {
    let _alarm = alarm();
    let runtime = runtime(1);
    // A period of 1 ns.
    let told = Told::new();
    let note = told.clone();
    let every = Timer::every(Duration::ZERO).on(runtime.handle()).times(5);
    let every = every.start_with(move |how| note.note(how));
    eventually("it runs out", || {
        every.status() == Status::Over(Outcome::Fired)
    });
    assert_eq!(told.all(), [5, 0, 0]);
    // A timer with zero runs ends as cancelled at its first deadline.
    let told = Told::new();
    let note = told.clone();
    let never = Timer::every(PERIOD).on(runtime.handle()).times(0);
    let never = never.start_with(move |how| note.note(how));
    eventually("it ends", || {
        never.status() == Status::Over(Outcome::Cancelled)
    });
    assert_eq!(told.all(), [0, 1, 0]);
    let never = Timer::every(PERIOD).on(runtime.handle()).times(0);
    let never = never.start(|| unreachable!());
    eventually("it ends", || {
        never.status() == Status::Over(Outcome::Cancelled)
    });
    assert_eq!(runtime.metrics().total().panics(), 0);
}

#[test]
fn built_timers_count_until_they_are_cancelled_dropped_or_over() {
    let _alarm = alarm();
    let runtime = bounded(2);
    let handle = runtime.handle();
    let is_full = || match Timer::after(HOUR).on(handle).try_start(|| ()) {
        Ok(timer) => {
            assert_eq!(timer.cancel(), Cancel::Cancelled);
            false
        }
        Err(error) => {
            assert_eq!(error, ArmError::Full { max_timers: 2 });
            true
        }
    };
    let told = Told::new();
    // Built timers count until they are dropped.
    let (one, two) = (
        Timer::after(HOUR).on(handle).manual().start(|| ()),
        Timer::at_wall(SystemTime::now() + HOUR)
            .on(handle)
            .manual()
            .start_with(told.once()),
    );
    assert!(is_full());
    drop(one);
    assert!(!is_full());
    let one = Timer::every(HOUR).on(handle).manual().start(|| ());
    assert!(is_full());
    drop(two);
    assert!(!is_full());
    // A cancelled timer that takes no outcome is over.
    let two = Timer::after(HOUR).on(handle).manual().start(|| ());
    assert!(is_full());
    assert_eq!(two.cancel(), Cancel::Cancelled);
    assert!(!is_full());
    // A cancelled timer that takes outcomes is over after the delivery, or when it is dropped.
    for _ in 0..2 {
        let two = Timer::after(HOUR)
            .on(handle)
            .manual()
            .start_with(told.once());
        assert_eq!(two.cancel(), Cancel::Cancelled);
        if told.total() == 0 {
            assert_eq!(two.start(), Started::Cancelled);
            eventually("it is told", || told.all() == [0, 1, 0]);
        }
        drop(two);
        eventually("it is over", || !is_full());
    }
    // A timer that was started counts until it has fired.
    let two = Timer::after(Duration::ZERO)
        .on(handle)
        .manual()
        .start(|| ());
    assert!(is_full());
    assert_eq!(two.start(), Started::Pending);
    eventually("it is over", || !is_full());
    drop(one);
    drop(two);
    // No end was counted twice: there is room for two timers, and no more.
    let (_one, _two) = (
        Timer::after(HOUR).on(handle).try_start(|| ()).unwrap(),
        Timer::after(HOUR).on(handle).try_start(|| ()).unwrap(),
    );
    assert!(is_full());
    assert_eq!(told.total(), 1);
}
