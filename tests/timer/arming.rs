//! One rule for each way to arm a timer. Outside of a runtime it panics, and on a runtime that is
//! shut down or full the timer is over at once. A `try_` method returns the error instead.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Instant, SystemTime},
};

use crate::{
    common::{Drops, Gate, HOUR, Token, alarm, eventually, message, told::worker_number},
    max_timers::bounded,
};
use tourbillon::{
    ArmError, Handle, Timer, after, after_many, at, at_many, every,
    time::BootInstant,
    timer::{Cancel, Outcome, Reset, Schedule, Started, Status, TimerBuilder},
};

/// The outcome that a callback got, and whether it ran on a worker.
type Call = (Outcome, bool);

/// A callback that records its calls.
struct Callback {
    calls: Arc<Mutex<Vec<Call>>>,
    _token: Token,
    /// Whether its destructor panics.
    panics: bool,
}

impl Callback {
    fn call(&self, how: Outcome) {
        let call = (how, worker_number().is_some());
        self.calls.lock().unwrap().push(call);
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        // Two panics at once would abort, which is not what is being tested.
        assert!(!self.panics || thread::panicking(), "a destructor panics");
    }
}

/// What a timer answers.
#[derive(Debug, PartialEq, Eq)]
struct Answers {
    status: Status,
    started: Started,
    refreshed: Reset,
    has_deadline: bool,
    is_pending: bool,
}

/// A timer of any clock.
struct Any {
    answers: Box<dyn Fn() -> Answers>,
    cancel: Box<dyn Fn() -> Cancel>,
}

macro_rules! any {
    ($timer:expr) => {{
        let timer = Arc::new($timer);
        let asked = timer.clone();
        Any {
            answers: Box::new(move || Answers {
                status: asked.status(),
                started: asked.start(),
                refreshed: asked.refresh(),
                has_deadline: asked.deadline().is_some(),
                is_pending: asked.is_pending(),
            }),
            cancel: Box::new(move || timer.cancel()),
        }
    }};
}

type Arm = Box<dyn Fn(Option<&Handle>, Callback) -> Result<Any, ArmError>>;

/// A way to arm a timer that is due in an hour, on the given runtime or on the current one.
struct Way {
    name: String,
    /// Whether the callback is told the outcome.
    told: bool,
    /// Whether the caller gets an error.
    fails: bool,
    is_manual: bool,
    arm: Arm,
}

fn on<S: Schedule, W>(builder: TimerBuilder<S, W>, handle: Option<&Handle>) -> TimerBuilder<S, W> {
    match handle {
        Some(handle) => builder.on(handle),
        None => builder,
    }
}

/// The ways of a builder whose callback gets these arguments, without and with the outcome.
macro_rules! of_builder {
    ($name:literal, $builder:expr, [$($plain:ident)?], [$how:ident $(, $alive:ident)?]) => {{
        let way = |last: &str, told, fails, arm: Arm| Way {
            name: format!("{} {last}", $name),
            told,
            fails,
            is_manual: last.starts_with("manual"),
            arm,
        };
        [
            way("start", false, false, Box::new(|handle, f| {
                let builder = on($builder, handle);
                Ok(any!(builder.start(move |$($plain)?| f.call(Outcome::Fired))))
            })),
            way("manual start", false, false, Box::new(|handle, f| {
                let builder = on($builder, handle).manual();
                Ok(any!(builder.start(move |$($plain)?| f.call(Outcome::Fired))))
            })),
            way("start_with", true, false, Box::new(|handle, f| {
                let builder = on($builder, handle);
                Ok(any!(builder.start_with(move |$how $(, $alive)?| f.call($how))))
            })),
            way("manual start_with", true, false, Box::new(|handle, f| {
                let builder = on($builder, handle).manual();
                Ok(any!(builder.start_with(move |$how $(, $alive)?| f.call($how))))
            })),
            way("try_start", false, true, Box::new(|handle, f| {
                let timer = on($builder, handle).try_start(move |$($plain)?| f.call(Outcome::Fired));
                Ok(any!(timer?))
            })),
            way("try_start_with", true, true, Box::new(|handle, f| {
                let builder = on($builder, handle);
                Ok(any!(builder.try_start_with(move |$how $(, $alive)?| f.call($how))?))
            })),
            way("manual try_start", false, true, Box::new(|handle, f| {
                let builder = on($builder, handle).manual();
                Ok(any!(builder.try_start(move |$($plain)?| f.call(Outcome::Fired))?))
            })),
            way("manual try_start_with", true, true, Box::new(|handle, f| {
                let builder = on($builder, handle).manual();
                Ok(any!(builder.try_start_with(move |$how $(, $alive)?| f.call($how))?))
            })),
        ]
    }};
}

/// The builders of all clocks and schedules, with and without a condition.
fn builders() -> Vec<Way> {
    let mut ways = Vec::new();
    ways.extend(of_builder!("Timer::after", Timer::after(HOUR), [], [how]));
    ways.extend(of_builder!(
        "Timer::at",
        Timer::at(Instant::now() + HOUR),
        [],
        [how]
    ));
    ways.extend(of_builder!("Timer::every", Timer::every(HOUR), [], [how]));
    ways.extend(of_builder!(
        "Timer::at_wall",
        Timer::at_wall(SystemTime::now() + HOUR),
        [],
        [how]
    ));
    ways.extend(of_builder!(
        "Timer::after_boot",
        Timer::after_boot(HOUR),
        [],
        [how]
    ));
    ways.extend(of_builder!(
        "Timer::at_boot",
        Timer::at_boot(BootInstant::now() + HOUR),
        [],
        [how]
    ));
    ways.extend(of_builder!(
        "named",
        Timer::after(HOUR).name("full").on_worker(0),
        [],
        [how]
    ));
    static ALIVE: LazyLock<Arc<()>> = LazyLock::new(Arc::default);
    ways.extend(of_builder!(
        "while_alive once",
        Timer::after(HOUR).while_alive(Arc::downgrade(&ALIVE)),
        [_alive],
        [how, _alive]
    ));
    ways.extend(of_builder!(
        "while_alive every",
        Timer::every(HOUR)
            .while_alive(Arc::downgrade(&ALIVE))
            .times(2),
        [_alive],
        [how, _alive]
    ));
    ways
}

/// The functions and methods that take no options. Those for many timers arm one.
fn functions() -> [Way; 5] {
    let way = |name: &str, arm: Arm| Way {
        name: name.to_owned(),
        told: false,
        fails: false,
        is_manual: false,
        arm,
    };
    [
        way(
            "after",
            Box::new(|handle, f| {
                let f = move || f.call(Outcome::Fired);
                Ok(any!(match handle {
                    Some(handle) => handle.after(HOUR, f),
                    None => after(HOUR, f),
                }))
            }),
        ),
        way(
            "at",
            Box::new(|handle, f| {
                let f = move || f.call(Outcome::Fired);
                let due = Instant::now() + HOUR;
                Ok(any!(match handle {
                    Some(handle) => handle.at(due, f),
                    None => at(due, f),
                }))
            }),
        ),
        way(
            "every",
            Box::new(|handle, f| {
                let f = move || f.call(Outcome::Fired);
                Ok(any!(match handle {
                    Some(handle) => handle.every(HOUR, f),
                    None => every(HOUR, f),
                }))
            }),
        ),
        way(
            "after_many",
            Box::new(|handle, f| {
                let pairs = [(HOUR, move || f.call(Outcome::Fired))];
                let timers = match handle {
                    Some(handle) => handle.after_many(pairs),
                    None => after_many(pairs),
                };
                Ok(any!(one(timers)))
            }),
        ),
        way(
            "at_many",
            Box::new(|handle, f| {
                let pairs = [(Instant::now() + HOUR, move || f.call(Outcome::Fired))];
                let timers = match handle {
                    Some(handle) => handle.at_many(pairs),
                    None => at_many(pairs),
                };
                Ok(any!(one(timers)))
            }),
        ),
    ]
}

fn one(timers: Vec<Timer>) -> Timer {
    let [timer] = timers.try_into().expect("one pair gives one timer");
    timer
}

fn ways() -> Vec<Way> {
    let mut ways = builders();
    ways.extend(functions());
    ways
}

/// Arms a timer in this way, which is refused, and returns what came of it. Checks that its
/// callback gets these calls and is dropped.
fn arm(way: &Way, handle: Option<&Handle>, calls: &[Call]) -> Result<Any, ArmError> {
    arm_that(false, way, handle, calls)
}

/// As [`arm`]. `panics` says whether the callback's destructor panics.
fn arm_that(
    panics: bool,
    way: &Way,
    handle: Option<&Handle>,
    calls: &[Call],
) -> Result<Any, ArmError> {
    let (drops, called) = (Drops::new(), Arc::<Mutex<Vec<Call>>>::default());
    let f = Callback {
        calls: called.clone(),
        _token: drops.token(),
        panics,
    };
    let armed = (way.arm)(handle, f);
    // A worker may have yet to call it.
    eventually(&way.name, || drops.count() == 1);
    assert_eq!(*called.lock().unwrap(), calls, "{}", way.name);
    armed
}

/// Checks that the runtime of `handle`, which takes no timer, refuses each way: by `how`, or by
/// `error`. `is_told_by_worker` says where a callback is told.
fn refuses_all(handle: &Handle, how: Outcome, error: ArmError, is_told_by_worker: bool) {
    refuses(&ways(), handle, how, error, is_told_by_worker);
}

/// As [`refuses_all`], for these ways.
fn refuses(ways: &[Way], handle: &Handle, how: Outcome, error: ArmError, is_told_by_worker: bool) {
    let started = match how {
        Outcome::Refused => Started::Refused,
        _ => Started::Shutdown,
    };
    let over = Answers {
        status: Status::Over(how),
        started,
        refreshed: Reset::TooLate,
        has_deadline: false,
        is_pending: false,
    };
    for way in ways {
        for entered in [false, true] {
            let _entered = entered.then(|| handle.enter());
            let told = [(how, is_told_by_worker)];
            let told = &told[..usize::from(way.told && !way.fails)];
            match arm(way, (!entered).then_some(handle), told) {
                Err(found) => assert!(way.fails && found == error, "{}: {found}", way.name),
                Ok(timer) => {
                    assert!(!way.fails, "{} has no error", way.name);
                    eventually(&way.name, || (timer.answers)() == over);
                    assert_eq!((timer.cancel)(), Cancel::Over, "{}", way.name);
                }
            }
        }
    }
    assert_eq!(handle.count_named("full"), 0);
}

#[test]
fn outside_of_a_runtime_each_way_panics_or_fails() {
    let _alarm = alarm();
    for way in ways() {
        match catch_unwind(AssertUnwindSafe(|| arm(&way, None, &[]))) {
            Err(panic) => {
                assert!(!way.fails, "{} panics", way.name);
                let message = message(&*panic);
                assert!(message.contains("in no Tourbillon runtime"), "{message}");
            }
            Ok(armed) => {
                assert!(way.fails, "{} does not panic", way.name);
                assert_eq!(armed.err(), Some(ArmError::NoRuntime), "{}", way.name);
            }
        }
    }
}

#[test]
fn on_a_runtime_that_is_shut_down_each_way_is_over_or_fails() {
    let _alarm = alarm();
    // Also if it was full.
    for runtime in [bounded(0), bounded(1)] {
        let handle = runtime.handle().clone();
        handle.after(HOUR, || ());
        drop(runtime);
        refuses_all(&handle, Outcome::Shutdown, ArmError::Shutdown, false);
    }
}

#[test]
fn while_a_shutdown_is_under_way_each_way_is_over_or_fails() {
    let _alarm = alarm();
    let runtime = bounded(1);
    let handle = runtime.handle().clone();
    // This callback holds up the shutdown. The other worker calls those of the timers below.
    let (begun, release) = (Gate::new(), Gate::new());
    let _holds = Timer::after(HOUR).on(&handle).start_with({
        let (begun, release) = (begun.clone(), release.clone());
        move |_| {
            begun.open();
            release.wait();
        }
    });
    let ends = thread::spawn(move || drop(runtime));
    begun.wait();
    let (unstarted, ways): (Vec<_>, Vec<_>) = ways()
        .into_iter()
        .partition(|way| way.is_manual && !way.fails);
    refuses(&ways, &handle, Outcome::Shutdown, ArmError::Shutdown, true);
    for way in unstarted {
        let f = Callback {
            calls: Arc::default(),
            _token: Drops::new().token(),
            panics: false,
        };
        let timer = (way.arm)(Some(&handle), f).unwrap();
        let before = (timer.answers)();
        assert_eq!(before.status, Status::NotStarted, "{}", way.name);
        assert_eq!(before.started, Started::Shutdown, "{}", way.name);
        eventually(&way.name, || {
            (timer.answers)().status == Status::Over(Outcome::Shutdown)
        });
    }
    release.open();
    ends.join().unwrap();
}

#[test]
fn a_panic_of_a_destructor_does_not_reach_the_thread_that_is_refused() {
    let _alarm = alarm();
    let runtime = bounded(0);
    let handle = runtime.handle().clone();
    let calls_and_drops = |how, on_worker| {
        for way in ways() {
            let told = [(how, on_worker)];
            let told = &told[..usize::from(way.told && !way.fails)];
            let armed = arm_that(true, &way, Some(&handle), told);
            assert_eq!(armed.is_err(), way.fails, "{}", way.name);
            // The functions for the current runtime.
            let _entered = handle.enter();
            let armed = arm_that(true, &way, None, told);
            assert_eq!(armed.is_err(), way.fails, "{}", way.name);
        }
    };
    calls_and_drops(Outcome::Refused, true);
    let panics = 2 * ways().len() as u64;
    eventually("each is counted", || {
        runtime.metrics().total().panics() == panics
    });
    drop(runtime);
    calls_and_drops(Outcome::Shutdown, false);
}

#[test]
fn on_a_full_runtime_each_way_is_over_or_fails() {
    let _alarm = alarm();
    let runtime = bounded(0);
    let full = ArmError::Full { max_timers: 0 };
    refuses_all(runtime.handle(), Outcome::Refused, full, true);
    let total = runtime.metrics().total();
    assert_eq!(total.refused(), 2 * ways().len() as u64);
    assert_eq!((total.armed(), total.over(), total.panics()), (0, 0, 0));
}

#[test]
fn each_way_takes_room_until_its_timer_ends() {
    let _alarm = alarm();
    let runtime = bounded(1);
    let handle = runtime.handle();
    let room = || Timer::after(HOUR).on(handle).try_start(|| ());
    for way in ways() {
        let f = Callback {
            calls: Arc::default(),
            _token: Drops::new().token(),
            panics: false,
        };
        let timer = (way.arm)(Some(handle), f).unwrap();
        assert_eq!(
            room().err(),
            Some(ArmError::Full { max_timers: 1 }),
            "{}",
            way.name
        );
        // One that is manual begins here.
        (timer.answers)();
        assert_eq!((timer.cancel)(), Cancel::Cancelled, "{}", way.name);
        assert_eq!((timer.cancel)(), Cancel::Over, "{}", way.name);
        // A worker may have yet to tell the callback.
        eventually(&way.name, || {
            room().is_ok_and(|timer| timer.cancel() == Cancel::Cancelled)
        });
    }
    // Sleeps take none.
    let _full = room().unwrap();
    runtime.block_on(tourbillon::time::sleep(std::time::Duration::from_millis(1)));
}

/// Starts a timer that starts its like when it is told its outcome.
fn start_again(handle: &Handle, count: &Arc<AtomicUsize>) {
    let (next, count) = (handle.clone(), count.clone());
    let _detached = Timer::after(HOUR).on(handle).start_with(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        start_again(&next, &count);
    });
}

#[test]
fn a_shutdown_ends_a_callback_that_arms_again_when_it_is_refused() {
    let _alarm = alarm();
    let (runtime, count) = (bounded(0), Arc::default());
    start_again(runtime.handle(), &count);
    eventually("it is told again", || count.load(Ordering::SeqCst) > 100);
    drop(runtime);
    let told = count.load(Ordering::SeqCst);
    eventually("its callback is dropped", || Arc::strong_count(&count) == 1);
    assert_eq!(count.load(Ordering::SeqCst), told);
}
